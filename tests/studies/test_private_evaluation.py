"""`[evaluation]` with a share: test records pay for what is found out about the model, in simulations and for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from rpdp.budgets import BudgetTable
from rpdp.errors import InputError
from rpdp.ledger import Ledger
from rpdp.studies.evaluation_file import EVALUATION, evaluation_lines, read_evaluation
from tests.studies.steward import SILOS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.studies.steward import Steward
    from tests.studies.toy import Change

PRIVATE: list[Change] = [
    ("task.data", "with_test_ids"),
    ("evaluation.metrics", '["accuracy", "auc"]'),
    ("evaluation.share", "0.5"),
    ("evaluation.records", "20"),
    ("evaluation.widest", "0.6"),
]


def creates_with_test_records(steward: Steward, *options: str, epsilon: float = 20.0) -> None:
    """Ledgers of 40 records for training and 20 for testing in every silo."""
    for silo in SILOS:
        ids = [f"{silo}-{row}" for row in range(60)]
        BudgetTable(ids, np.full(60, epsilon)).write(steward.home / f"{silo}.csv")
        (steward.home / silo).mkdir(exist_ok=True)
        more = ["--budgets", f"{silo}.csv", "--lifetime-delta", "1e-3", *options]
        assert steward.types("ledger", "create", f"{silo}/ledger.db", *more) == 0


def found(steward: Steward) -> dict[str, Any]:
    """What the evaluation of the run says."""
    del steward
    told = read_evaluation("study/spring")
    assert told is not None
    return told


def test_a_real_run_measures_its_model_and_books_that(steward: Steward) -> None:
    creates_with_test_records(steward)
    assert steward.types("train", steward.writes(*PRIVATE)) == 0, steward.err
    assert [steward.runs(silo) for silo in SILOS] == [[("spring", 3), ("spring-evaluation", 1)]] * 2
    told = found(steward)
    assert told["silos"] == list(SILOS)
    assert [one["name"] for one in told["scores"][0]["metrics"]] == ["accuracy", "auc"]
    assert "private accuracy: " in steward.out
    assert "this speaks of the held-out records above the public floor" in steward.out
    assert steward.types("train", "run.toml", "--resume", "--json") == 0
    assert json.loads(steward.out)["public"]["private_evaluation"]["scores"] == told["scores"]
    assert steward.runs("a") == [("spring", 3), ("spring-evaluation", 1)], "nothing was charged again"
    for name in ("report.html", "report-share.html"):
        assert "Private evaluation" in Path(f"study/spring/{name}").read_text()


def test_training_records_pay_for_training_and_test_records_for_evaluation(steward: Steward) -> None:
    creates_with_test_records(steward)
    assert steward.types("train", steward.writes(*PRIVATE)) == 0, steward.err
    ids = pa.chunked_array([[f"a-{row}" for row in range(60)]])
    with Ledger.read(steward.home / "a" / "ledger.db") as ledger:
        plans = {run: ledger.resume(run, ids) for run in ("spring", "spring-evaluation")}
    assert [plan.public.purpose for plan in plans.values()] == ["training", "evaluation"]
    is_test = np.arange(60) >= 40
    assert (plans["spring"].q[~is_test] > 0.0).all()
    assert (plans["spring"].q[is_test] == 0.0).all()
    assert (plans["spring-evaluation"].q[is_test] == 1.0).all()
    assert (plans["spring-evaluation"].q[~is_test] == 0.0).all()
    assert (plans["spring-evaluation"].cost[~is_test] == 0.0).all()


def test_nothing_is_spent_where_no_useful_interval_is_possible(steward: Steward) -> None:
    creates_with_test_records(steward)
    assert steward.types("train", steward.writes(*PRIVATE, ("evaluation.widest", "0.05"))) == 0, steward.err
    assert "no useful interval is possible: accuracy ± " in steward.err + steward.out
    assert [steward.runs(silo) for silo in SILOS] == [[("spring", 3)]] * 2
    assert found(steward)["scores"] == []


def test_an_evaluation_that_no_silo_finished_does_not_undo_the_training(steward: Steward) -> None:
    """Every silo is interrupted after its charge. No noise is drawn a second time, so there is nothing to show."""
    creates_with_test_records(steward)
    file = steward.writes(*PRIVATE)
    for _ in SILOS:  # with --resume, the next silo is interrupted
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "store", _interrupted(Ledger.store))
            assert steward.types("train", file, "--resume") not in (0, 2, 3)
    assert steward.types("train", file, "--resume") == 0, steward.err
    assert "no silo released its sums" in found(steward)["not_evaluated"]
    assert [steward.runs(silo) for silo in SILOS] == [[("spring", 3), ("spring-evaluation", 1)]] * 2
    assert Path("study/spring/result.json").exists()


def _interrupted(store: Callable[..., None]) -> Callable[..., None]:
    def interrupted(self: Ledger, run: str, *more: Any) -> None:
        if run.endswith("-evaluation"):
            raise KeyboardInterrupt
        store(self, run, *more)

    return interrupted


@pytest.mark.parametrize(
    ("changes", "code", "expected"),
    [
        ([("evaluation.share", "0.7")], 3, "above max_share_per_run=0.6 of its policy"),
        ([("evaluation.records", None)], 2, "evaluation.share and evaluation.records belong together"),
        ([("evaluation.metrics", '["log_loss"]')], 2, "log_loss cannot be measured in private"),
        ([("evaluation.metrics", '["mae"]')], 2, "need a public bound"),
        ([("task.data", "two")], 2, "test records need ids to have budgets"),
        ([("policy.max_runs", "1")], 3, "max_runs=1"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_held(
    steward: Steward, changes: list[Change], code: int, expected: str
) -> None:
    creates_with_test_records(steward)
    assert steward.types("train", steward.writes(*PRIVATE, *changes)) == code
    assert expected in steward.err
    assert [steward.runs(silo) for silo in SILOS] == [[], []]


def test_simulations_evaluate_privately_too(steward: Steward) -> None:
    from tests.studies.toy import write_run

    file = write_run(steward.home, *PRIVATE, ("budgets.overrides", "{levels = [10.0, 20.0, 50.0]}"), ("run.seeds", "1"))
    assert steward.types("train", file, "--out", "sim") == 0, steward.err
    told = read_evaluation("sim")
    assert told is not None
    assert told["is_simulation"]
    first = told["scores"][0]["metrics"][0]
    assert 0.0 <= first["low"] < first["value"] <= first["high"] <= 1.0
    assert steward.types("report", "sim") == 0, steward.err


def test_methods_without_a_promise_measure_nothing_in_private(steward: Steward) -> None:
    from tests.studies.toy import write_run

    file = write_run(steward.home, *PRIVATE, ("run.seeds", "1"), ("run.method", '"privacy_free"'))
    assert steward.types("train", file, "--out", "open") == 0, steward.err
    assert not Path("open", EVALUATION).exists()


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    (tmp_path / EVALUATION).write_text("{}")
    with pytest.raises(InputError, match=r"evaluation.json: damaged"):
        read_evaluation(tmp_path)
    assert read_evaluation(tmp_path / "none") is None
    assert evaluation_lines({"not_evaluated": "why", "scores": []}) == ["private evaluation: why"]
