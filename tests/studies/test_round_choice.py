"""`[evaluation] every` and `by`: the best round's model is the result, groups are measured at the same price."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from rpdp.budgets import BudgetTable
from rpdp.errors import InputError
from rpdp.ledger import Ledger
from rpdp.planning import PublicPlan
from rpdp.studies import read_result
from rpdp.studies.evaluation_file import evaluation_lines, read_evaluation
from rpdp.studies.private_evaluation import best_of, evaluated_rounds, level_of
from rpdp.studies.run_directory import HELD_OUT_GROUPS, read_groups, read_model
from rpdp.studies.study_file import StudyFile
from tests.studies.patients import REST, table_study, write_hospitals
from tests.studies.steward import SILOS
from tests.studies.test_private_evaluation import PRIVATE, creates_with_test_records
from tests.studies.toy import write_run

if TYPE_CHECKING:
    from tests.studies.steward import Steward
    from tests.studies.toy import Change

EVERY: list[Change] = [
    *PRIVATE,
    ("evaluation.metrics", '["accuracy"]'),
    ("evaluation.every", "1"),
    ("evaluation.widest", "0.9"),
]


def told_in(directory: str | Path) -> dict[str, Any]:
    told = read_evaluation(directory)
    assert told is not None
    return told


def test_a_real_run_keeps_the_model_of_the_best_round(steward: Steward) -> None:
    creates_with_test_records(steward)
    assert steward.types("train", steward.writes(*EVERY)) == 0, steward.err
    assert "for all 3 models together" in steward.out + steward.err
    # One run with three releases, priced as a whole.
    assert [steward.runs(silo) for silo in SILOS] == [[("spring", 3), ("spring-evaluation", 3)]] * 2
    told = told_in("study/spring")
    assert [model["name"] for model in told["models"]] == ["round 1", "round 2", "round 3"]
    assert told["level"] == pytest.approx(1 - 0.05 / 3)
    firsts = [model["scores"][0]["metrics"][0] for model in told["models"]]
    chosen = int(np.argmax([one["value"] for one in firsts]))
    assert told["chosen"] == f"round {chosen + 1}"
    values = read_result("study/spring").values
    if chosen < 2:
        assert torch.equal(values, read_model(Path(f"study/spring/models/round-{chosen + 1}.safetensors")))
    for name in ("report.html", "report-share.html"):
        assert "The models that were compared" in Path(f"study/spring/{name}").read_text()
    assert "its value is flattered by the choice" in steward.out
    before = told
    assert steward.types("train", "run.toml", "--resume") == 0
    assert told_in("study/spring") == before


def test_every_release_is_paid_for_whichever_round_is_chosen(steward: Steward) -> None:
    creates_with_test_records(steward)
    assert steward.types("train", steward.writes(*EVERY)) == 0, steward.err
    with Ledger.read(steward.home / "a" / "ledger.db") as ledger:
        plan = ledger.resume("spring-evaluation", pa.chunked_array([[f"a-{row}" for row in range(60)]]))
    single = PublicPlan.of_request(
        plan.public.request,  # type: ignore[arg-type]
        noise_multiplier=plan.public.noise_multiplier / math.sqrt(3),
        delta=plan.public.delta,
        purpose="evaluation",
    )
    delta = plan.public.delta
    assert plan.public.curve_at(delta).epsilon([1.0]) == pytest.approx(single.curve_at(delta).epsilon([1.0]))
    assert (plan.cost[40:] > 0.0).all()


def test_an_earlier_round_becomes_the_result_and_what_is_said_of_it(steward: Steward) -> None:
    file = write_run(
        steward.home, *EVERY, ("budgets.overrides", "{levels = [10.0, 20.0, 50.0]}"), ("training.learning_rate", "3.0")
    )
    chosen = set()
    for seed in range(1, 6):
        assert steward.types("train", file, "--seed", seed, "--out", f"sim-{seed}") == 0, steward.err
        told, result = told_in(f"sim-{seed}"), read_result(f"sim-{seed}")
        number = int(told["chosen"].split()[1])
        chosen.add(number)
        assert (result.chosen_round or 3) == number
        assert result.score is result.rounds[number - 1].score
        if number < 3:
            assert all(view.correct is None for view in result.silos.values())
            assert result.groups == ()
            assert torch.equal(result.values, read_model(Path(f"sim-{seed}/models/round-{number}.safetensors")))
    assert len(chosen) > 1, "a choice that always falls on the same round is none"


def test_the_best_is_chosen_by_what_was_released_alone() -> None:
    estimates = [{"name": "auc", "value": 0.6}, {"name": "auc", "value": 0.8}, {"name": "auc", "value": 0.8}]
    assert best_of(estimates) == 1
    assert best_of([{**one, "name": "rmse"} for one in estimates]) == 0


def test_rounds_and_levels(tmp_path: Path) -> None:
    spec = StudyFile.read(write_run(tmp_path, *PRIVATE, ("schedule.rounds", "10"), ("evaluation.every", "4")))
    assert evaluated_rounds(spec) == (4, 8, 10)
    assert level_of(10) == pytest.approx(0.995)


@pytest.mark.parametrize("key", ["every", "by"])
def test_settings_of_private_evaluation_need_a_share(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match=rf"evaluation\.{key} is about private evaluation"):
        StudyFile.read(write_run(tmp_path, (f"evaluation.{key}", "2" if key == "every" else '"SEX"')))


def test_a_missing_model_of_a_round_is_named(steward: Steward) -> None:
    from rpdp.studies.building import build
    from rpdp.studies.round_choice import RoundChoice

    spec = StudyFile.read(
        write_run(steward.home, *EVERY, ("budgets.overrides", "{levels = [10.0, 20.0, 50.0]}"), ("run.seeds", "1"))
    )
    assert steward.types("train", spec.path, "--out", "sim") == 0, steward.err
    Path("sim/models/round-2.safetensors").unlink()
    built = build(spec, spec.settings("rpdp"), 1)
    with pytest.raises(InputError, match=r"round-2.*the model after round 2 is missing"):
        RoundChoice(built, Path("sim")).made(read_result("sim"), Path("heads.json"))


EVALUATED = REST.replace("ThreeLevels", 'ThreeLevels"\noverrides = {levels = [20.0, 30.0, 50.0]}\n#"') + (
    '[evaluation]\nmetrics = ["accuracy"]\nshare = 1.0\nrecords = 20\nwidest = 0.9\nby = "%s"\n'
)


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_hospitals(tmp_path, "north", "south")
    return tmp_path


@pytest.mark.parametrize(
    ("by", "groups"),
    [("SEX", ["F", "M"]), ("silo", ["north", "south"]), ("HOSPITAL", ["north", "south"])],
)
def test_groups_have_metrics_of_their_own_in_the_same_release(
    hospitals: Path, steward: Steward, by: str, groups: list[str]
) -> None:
    path = table_study(hospitals, rest=EVALUATED % (by))
    assert steward.types("train", path, "--seed", 1, "--out", "sim") == 0, steward.err
    told = told_in("sim")
    assert [score["group"] for score in told["scores"]] == ["", *groups]
    assert f"of group {groups[0]}" in steward.out
    if by == "SEX":
        assert any("records with another value of SEX" in one for one in told["scores"][1]["metrics"][0]["assumptions"])
    shared = Path("sim/report-share.html").read_text()
    assert "Confusion matrix" in shared


def test_groups_are_declared_columns_with_levels(hospitals: Path, steward: Steward) -> None:
    path = table_study(hospitals, rest=EVALUATED % ("AGE"))
    assert steward.types("train", path, "--seed", 1, "--out", "sim") == 2
    assert "evaluation.by='AGE' must be 'silo', or a column of a [table] with public levels" in steward.err


def test_budget_groups_stay_in_the_silos_edition(hospitals: Path, steward: Steward) -> None:
    path = table_study(hospitals, rest=EVALUATED % ("SEX"))
    assert steward.types("train", path, "--seed", 1, "--out", "sim") == 0, steward.err
    groups = read_groups(Path("sim"), HELD_OUT_GROUPS)
    assert [group.low for group in groups] == [20.0, 30.0, 50.0]
    assert sum(group.records for group in groups) > 20
    sentence = "on held-out records by their budgets, without noise"
    assert sentence in Path("sim/report.html").read_text()
    assert sentence not in Path("sim/report-share.html").read_text()
    assert (Path("sim/silo") / HELD_OUT_GROUPS).stat().st_mode & 0o077 == 0
    assert "held-out-groups" not in json.dumps(told_in("sim"))


def test_a_real_run_shows_its_silos_how_budget_groups_fare(steward: Steward) -> None:
    creates_with_test_records(steward)
    assert steward.types("train", steward.writes(*PRIVATE)) == 0, steward.err
    groups = read_groups(Path("study/spring"), HELD_OUT_GROUPS)
    assert sum(group.records for group in groups) == 40, "the held-out records of both silos, and no other"
    assert BudgetTable.read(steward.home / "a.csv").epsilon.min() == groups[0].low


def test_evaluations_of_one_model_that_were_stored_before_are_read(tmp_path: Path) -> None:
    score = {"group": "", "metrics": [{"name": "auc", "value": 0.7, "low": 0.6, "high": 0.8, "speaks_of": "all"}]}
    (tmp_path / "evaluation.json").write_text(
        json.dumps({"expected": [], "scores": [score], "not_evaluated": None, "run": "x"})
    )
    told = told_in(tmp_path)
    assert told["models"] == []
    assert evaluation_lines(told)[0].startswith("private AUC: 0.700")
