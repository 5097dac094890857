"""What is foreseen from declarations is what comes, and records of every declared budget pay as planned."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp.budgets import BudgetTable, distribution
from rpdp.errors import InputError
from rpdp.statistics.evaluation_measures import EvaluationMeasure
from rpdp.statistics.evaluation_outlook import DeclaredTest, plan_evaluation
from rpdp.statistics.evaluation_results import evaluate
from rpdp.statistics.noisy_sums import NoisySums
from tests.statistics.test_score_metrics import cells_of, made_up

LEVELS = distribution("ThreeLevels").sample(1000, 0)
AUC = EvaluationMeasure.for_metrics(["auc"], classes=2)
ACCURACY = EvaluationMeasure.for_metrics(["accuracy"], classes=2)


def test_the_width_that_is_foreseen_is_the_width_that_comes() -> None:
    outlook = plan_evaluation(AUC, DeclaredTest(10_000, positives=0.25), LEVELS, delta=1e-4, share=0.5)
    assert outlook.mean_weight == pytest.approx(0.1)  # the records of the largest budget
    deviation = outlook.public.noise_multiplier
    truth, scores = made_up(250, 750)
    random = np.random.default_rng(2)
    widths = []
    for _ in range(15):
        cells = cells_of(truth, scores) + deviation * random.standard_normal(512)
        widths.append(evaluate(NoisySums(outlook.public.request, cells, deviation, ("a",)))[0].first.half_width)  # type: ignore[arg-type]
    assert np.median(widths) == pytest.approx(outlook.half_width, rel=0.3)


@pytest.mark.parametrize("estimator", ["everyone", "representative"])
def test_real_records_of_declared_budgets_have_the_weights_that_are_foreseen(estimator: str) -> None:
    outlook = plan_evaluation(
        ACCURACY,
        DeclaredTest(4000),
        LEVELS,
        delta=1e-4,
        estimator=estimator,  # type: ignore[arg-type]
    )
    budgets = BudgetTable([str(row) for row in range(1000)], LEVELS)
    weights = outlook.public.assign(budgets).q
    assert weights.mean() == pytest.approx(outlook.mean_weight, rel=0.01)


def test_more_silos_and_rarer_classes_make_intervals_wider() -> None:
    few = plan_evaluation(AUC, DeclaredTest(10_000, positives=0.5), LEVELS, delta=1e-4).half_width
    rare = plan_evaluation(AUC, DeclaredTest(10_000, positives=0.1), LEVELS, delta=1e-4).half_width
    many = plan_evaluation(AUC, DeclaredTest(2_500, silos=4, positives=0.5), LEVELS, delta=1e-4).half_width
    assert min(rare, many) > 1.3 * few


@pytest.mark.parametrize(
    "measure",
    [
        EvaluationMeasure.for_metrics(["mae", "rmse"], bound=3.0),
        EvaluationMeasure.for_metrics(["accuracy"], classes=4),
        EvaluationMeasure.for_metrics(["auc"], classes=2, column="sex", levels=["f", "m"]),
    ],
)
def test_every_measure_has_an_outlook(measure: EvaluationMeasure) -> None:
    outlook = plan_evaluation(measure, DeclaredTest(20_000), LEVELS, delta=1e-4)
    assert 0.0 < outlook.half_width < 0.2 * max(1.0, measure.bound)
    assert "to be expected, at 95 %" in outlook.lines()[1]


def test_too_few_records_have_an_outlook_that_says_so() -> None:
    assert plan_evaluation(AUC, DeclaredTest(100), LEVELS, delta=1e-4, share=0.1).half_width == 0.5


def test_budgets_that_pay_for_nothing_are_refused() -> None:
    with pytest.raises(InputError, match=r"no declared budget pays"):
        plan_evaluation(ACCURACY, DeclaredTest(100), np.array([1e-9]), delta=1e-9, share=1e-9)


@pytest.mark.parametrize("wrong", [{"records": 0}, {"silos": 0}, {"positives": 1.0}])
def test_declarations_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        DeclaredTest(**{"records": 10, **wrong})  # type: ignore[arg-type]
