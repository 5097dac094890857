"""An existing score beside the models: measured on the same test records, never a feature."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from rpdp.errors import InputError
from rpdp.studies.comparison import NAME, compare
from rpdp.studies.study_data import load_source
from rpdp.studies.study_file import StudyFile
from rpdp.studies.yardsticks import measure_yardsticks
from tests.studies.patients import CLASSES, NUMBER, ONE_FILE, REST, SCHEMA, write_hospitals

if TYPE_CHECKING:
    from pathlib import Path

SCORED = '[evaluation]\nmetrics = ["auc", "accuracy"]\nyardsticks = ["DAYS"]\n'


def study(directory: Path, target: str = CLASSES, evaluation: str = SCORED) -> StudyFile:
    write_hospitals(directory, "north", "south")
    text = f"[table]\n{ONE_FILE}\n{SCHEMA.format('table.', target)}\n{REST}split = 'by_seed'\n{evaluation}"
    (directory / "study.toml").write_text(text, encoding="utf-8")
    return StudyFile.read(directory / "study.toml")


def test_a_score_is_measured_on_the_test_records_of_every_seed(tmp_path: Path) -> None:
    spec = study(tmp_path)
    (found,) = measure_yardsticks(spec, [1, 2])
    lines = [line.split(",") for line in (tmp_path / "all.csv").read_text().splitlines()[1:]]
    rows = {line[0]: (float(line[5]), line[6] == "yes") for line in lines}
    for seed, value in zip([1, 2], found.of("auc"), strict=True):
        ids = [each for held in load_source(spec, seed).silos.values() for each in held.test_ids or ()]
        score, truth = np.array([rows[each] for each in ids]).T
        assert value == pytest.approx(roc_auc_score(truth, score))
    assert found.of("auc")[0] != found.of("auc")[1]
    assert found.of("accuracy") == ()  # a score alone has no threshold


def test_it_stands_beside_the_methods(tmp_path: Path) -> None:
    spec = study(tmp_path)
    done = compare(spec, [spec.settings(name) for name in ("rpdp", "pooled")], [1, 2], tmp_path / "out", workers=1)
    kept = json.loads((tmp_path / "out" / NAME).read_text())["yardsticks"]
    assert kept["DAYS"]["auc"]["values"] == list(done.yardsticks[0].of("auc"))
    for edition in ("report.html", "report-share.html"):
        assert "DAYS, as it is" in (tmp_path / "out" / edition).read_text()


@pytest.mark.parametrize(
    ("target", "evaluation", "said"),
    [
        (CLASSES, SCORED.replace("DAYS", "AGE"), "AGE is a feature as well"),
        (CLASSES, SCORED.replace('"auc", ', ""), "add auc or average_precision"),
        (NUMBER, SCORED.replace('["auc", "accuracy"]', '["mae"]'), "a target with two classes"),
    ],
)
def test_refused_at_reading(tmp_path: Path, target: str, evaluation: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        study(tmp_path, target, evaluation)


@pytest.mark.parametrize(("column", "said"), [("SMOKED", "have no number in SMOKED"), ("DAY", "no column 'DAY'")])
def test_refused_at_measuring(tmp_path: Path, column: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        measure_yardsticks(study(tmp_path, evaluation=SCORED.replace("DAYS", column)), [1])
