"""From released sums to scores: through real silos, by groups, and by both estimators."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn
from torch import nn

from rpdp.budgets import BudgetTable
from rpdp.errors import InputError
from rpdp.federation import Policy, Silo, release_sums
from rpdp.planning import PublicPlan
from rpdp.planning.request import MeasureSpec, Request
from rpdp.statistics.evaluation_cells import ModelCells
from rpdp.statistics.evaluation_measures import EvaluationMeasure
from rpdp.statistics.evaluation_results import evaluate
from rpdp.statistics.noisy_sums import NoisySums
from rpdp.training import Records

RECORDS = 900


def data() -> Records:
    """Records of two classes that a linear model orders well, but not perfectly."""
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(RECORDS, 2, generator=random)
    targets = (inputs.sum(dim=1) + torch.randn(RECORDS, generator=random) > 0.5).long()
    return Records((inputs,), targets)


def model() -> nn.Module:
    """A model with fixed weights."""
    made = nn.Linear(2, 1)
    nn.init.ones_(made.weight)
    nn.init.constant_(made.bias, -0.5)
    return made


def plan(measure: EvaluationMeasure, noise: float, estimator: str = "everyone") -> PublicPlan:
    """A plan for one evaluation."""
    request = Request(estimator, (measure.spec(),))  # type: ignore[arg-type]
    return PublicPlan.of_request(request, noise_multiplier=noise, delta=1e-4, purpose="evaluation")


def released(public: PublicPlan, records: Records, held_out: np.ndarray, seed: int) -> NoisySums:
    """What a silo releases; half of its records allow too little for weight 1."""
    budgets = BudgetTable([str(row) for row in range(RECORDS)], [0.1, 10.0] * (RECORDS // 2))
    groups = {"half": ["low", "high"] * (RECORDS // 2)}
    source = ModelCells(records, model(), groups)
    silo = Silo("a", records, budgets, policy=Policy.of(public), measured={"evaluation": source}, held_out=held_out)
    found = release_sums(public, [silo], model=model(), seed=seed)
    return NoisySums.of(public, found.by_silo)


HELD_OUT = np.arange(RECORDS) % 3 == 0


def truth(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Classes and scores of some records."""
    records = data()
    scores = model()(records.inputs[0]).detach().numpy()[:, 0]
    return records.targets.numpy()[rows], scores[rows]


def test_everyone_covers_the_held_out_records_above_the_floor() -> None:
    measure = EvaluationMeasure.for_metrics(["auc", "accuracy", "average_precision", "f1"], classes=2)
    public = plan(measure, 0.8)
    actual, scores = truth(np.flatnonzero(HELD_OUT & (np.arange(RECORDS) % 2 == 1)))
    true = sklearn.roc_auc_score(actual, scores), sklearn.accuracy_score(actual, scores > 0)
    covered = np.zeros(2)
    for seed in range(60):
        score = evaluate(released(public, data(), HELD_OUT, seed))[0]
        covered += [one.low <= value <= one.high for one, value in zip(score.metrics, true, strict=False)]
    assert (covered >= 50).all()  # fewer in one of 5,000 such tests
    assert score.first.name == "auc"
    assert "above the public floor" in score.first.speaks_of
    assert json.loads(json.dumps(score.plain()))["metrics"][0]["name"] == "auc"


def test_records_for_training_take_no_part() -> None:
    measure = EvaluationMeasure.for_metrics(["accuracy"], classes=2)
    public = plan(measure, 0.8)
    changed = data()
    changed.targets[~HELD_OUT] = 1 - changed.targets[~HELD_OUT]
    before, after = (released(public, one, HELD_OUT, 5).cells for one in (data(), changed))
    assert (before == after).all()
    changed.targets[HELD_OUT] = 0
    assert (released(public, changed, HELD_OUT, 5).cells != before).any()


def test_groups_are_scored_by_themselves() -> None:
    everybody = np.ones(RECORDS, dtype=np.bool_)
    measure = EvaluationMeasure.for_metrics(["accuracy"], classes=2, column="half", levels=["low", "high"])
    whole, low, high = evaluate(released(plan(measure, 0.8), data(), everybody, 1))
    assert (whole.group, low.group, high.group) == ("", "low", "high")
    assert (low.first.low, low.first.high) == (0.0, 1.0)  # nobody in it is above the floor
    actual, scores = truth(np.arange(1, RECORDS, 2))
    assert high.first.low <= sklearn.accuracy_score(actual, scores > 0) <= high.first.high


def test_representative_intervals_are_longer_by_the_spread_of_weights() -> None:
    measure = EvaluationMeasure.for_metrics(["accuracy"], classes=2)
    everyone, representative = (
        evaluate(NoisySums(plan(measure, 1.0, one).request, np.array([40.0, 10, 10, 40]), 0.01, ("a",)))[0].first  # type: ignore[arg-type]
        for one in ("everyone", "representative")
    )
    assert everyone.half_width < 0.001
    assert representative.half_width == pytest.approx(1.96 * (0.8 * 0.2 / 100) ** 0.5, rel=0.05)
    assert representative.assumptions[0] == "values do not depend on budgets"


def test_errors_come_with_their_bound() -> None:
    measure = EvaluationMeasure.for_metrics(["mae", "rmse"], bound=4.0)
    cells = np.array([200.0, 50.0, 25.0]) / 3**0.5  # a mean of bound/4, a mean square of bound²/8
    score = evaluate(NoisySums(plan(measure, 1.0).request, cells, 1e-6, ("a",)))[0]  # type: ignore[arg-type]
    assert [one.value for one in score.metrics] == pytest.approx([1.0, 2.0**0.5], abs=1e-4)
    assert "errors above 4 count as 4" in score.first.assumptions


def test_sums_of_statistics_are_refused() -> None:
    request = Request("everyone", (MeasureSpec("count", 1),))
    with pytest.raises(InputError):
        evaluate(NoisySums(request, np.zeros(1), 1.0, ("a",)))
