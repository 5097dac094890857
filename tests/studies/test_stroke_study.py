"""The example of the International Stroke Trial: study files and schemas only. Loading needs the data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rpdp.studies.study_data import load_source, make_model
from rpdp.studies.study_file import StudyFile

HERE = Path(__file__).parents[2] / "examples" / "ist"
SILOS = {"by-country": 25, "by-hospital": 118, "survival": 25}
NEVER = {"EXPDD", "EXPD6", "EXPD14", "OCCODE", "DIED", "TD", "ID14", "SET14D"}
"""The trial's own risk scores, and what is known only later."""


def test_the_example_needs_no_code() -> None:
    assert {path.suffix for path in HERE.iterdir()} == {".toml"}


@pytest.mark.parametrize("name", SILOS)
def test_only_what_was_known_at_randomisation_is_a_feature(name: str) -> None:
    spec = StudyFile.read(HERE / f"{name}.toml")
    assert spec.table is not None
    assert not NEVER & set(spec.table.schema.columns)
    assert not spec.table.schema.from_data
    assert spec.table.section.silos is not None
    named = {*spec.table.section.silos, *([spec.table.section.rest] if spec.table.section.rest else [])}
    assert len(named) == SILOS[name]
    assert spec.training.weights is not None
    assert set(spec.training.weights) == named


@pytest.mark.skipif(
    not (Path(os.environ.get("RPDP_DATA", "nowhere")) / "ist/ist.csv.gz").is_file(), reason="needs RPDP_DATA with ist/"
)
@pytest.mark.parametrize("name", SILOS)
def test_the_data_load(name: str) -> None:
    spec = StudyFile.read(HERE / f"{name}.toml")
    source = load_source(spec, 1)
    assert len(source.silos) == SILOS[name]
    records = next(iter(source.silos.values())).train
    assert source.loss(make_model(spec, 1)(records.inputs[0]), records.targets).shape == (len(records),)
