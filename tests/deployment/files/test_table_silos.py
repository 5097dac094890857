"""Silos with tables: the study proposes table, schema and network; the agent opens them without any code."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpdp.deployment.agent.opening import open_agent, silo_records, table_remarks
from rpdp.deployment.files.layout import Layout
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.deployment.trial import provide_trial_budgets
from rpdp.errors import InputError
from rpdp.planning import PublicPlan
from rpdp.studies.study_file import StudyFile
from tests.studies.patients import CLASSES, REST, SCHEMA, table_study, write_hospitals

FILES = 'files = { north = "north.csv", south = "south.csv" }'


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    write_hospitals(tmp_path, "north", "south")
    study = StudyFile.read(table_study(tmp_path, table=FILES))
    made = Layout.create(tmp_path / "federation", study, ["north", "south"], "127.0.0.1", 8443)
    provide_trial_budgets(made, study)
    return made


def test_a_trial_of_tables_opens(layout: Layout) -> None:
    plan = PublicPlan.read(layout.server / "plan.json")
    spec = layout.silo_file("north")
    assert spec.models["study"].network == "linear"
    with open_agent(spec) as agent:
        assert agent.silo.schema_fingerprint == plan.schema_fingerprint is not None
        assert [model.fingerprint for model in agent.models] == [plan.model_fingerprint]
        assert 40 < len(agent.silo.records) < 80  # test records are left out
    assert any("SMOKER: " in remark for remark in table_remarks(spec))
    assert StudyFile.read(layout.server / "study.toml").schema_fingerprint == plan.schema_fingerprint


def test_a_schema_of_its_own_travels_with_the_study(tmp_path: Path) -> None:
    write_hospitals(tmp_path, "north", "south")
    (tmp_path / "columns").mkdir()
    (tmp_path / "columns/ours.toml").write_text(SCHEMA.format("", CLASSES), encoding="utf-8")
    path = tmp_path / "study.toml"
    path.write_text(f'[table]\n{FILES}\nschema = "columns/ours.toml"\n[model]\nname = "mlp"\nhidden = [3]\n{REST}')
    study = StudyFile.read(path)
    made = Layout.create(tmp_path / "federation", study, ["north", "elsewhere"], "127.0.0.1", 8443)
    assert silo_records(made.silo_file("north")).schema_fingerprint == study.schema_fingerprint
    assert made.silo_file("elsewhere").data.table == "elsewhere.csv"
    assert made.silo_file("north").models["study"].hidden == (3,)
    assert StudyFile.read(made.server / "study.toml").schema_fingerprint == study.schema_fingerprint


def changed(layout: Layout, old: str, new: str) -> SiloFile:
    path = layout.silo("north") / "silo.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return SiloFile.read(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('schema = "study.toml"', "", r'data needs either .* table = "north.csv" with schema'),
        ('network = "linear"', "", r"a model needs either .* network ="),
        ('network = "linear"', 'network = "linear"\nhidden = [3]', 'needs network = "mlp"'),
        ('network = "linear"', 'network = "lineal"', "models.study.network='lineal'"),
    ],
)
def test_what_does_not_fit_is_named(layout: Layout, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        changed(layout, old, new)


def test_records_need_ids(layout: Layout) -> None:
    path = layout.silo("north") / "study.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('record = "PATIENT"', ""), encoding="utf-8")
    with pytest.raises(InputError, match="record is missing: accounts are kept by the ids"):
        silo_records(layout.silo_file("north"))
