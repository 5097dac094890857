"""fit, predict and a budget for every row: scikit-learn's interface, with declarations where the promise needs them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from rpdp import BudgetTable, PersonalClassifier, PersonalRegressor, Policy
from rpdp.errors import InputError
from rpdp.ledger import Ledger

GENERATOR = np.random.default_rng(3)
X = GENERATOR.uniform(-3.0, 3.0, size=(600, 4))
SCORE = X @ np.array([1.0, -1.0, 0.5, 0.0])
Y = np.where(SCORE > 0, "ill", "well")
EPSILON = np.tile([0.5, 2.0, 5.0, 10.0], 150)
DECLARED: dict[str, Any] = {
    "feature_ranges": [(-3, 3)] * 4,
    "declared_budgets": [0.5, 2.0, 5.0, 10.0],
    "declared_records": 600,
    "delta": 1e-4,
}


@pytest.fixture(scope="module")
def fitted() -> PersonalClassifier:
    return PersonalClassifier(declared_target=["well", "ill"], seed=1, **DECLARED).fit(X, Y, budgets=EPSILON)


def test_a_classifier_learns_and_keeps_every_budget(fitted: PersonalClassifier) -> None:
    assert fitted.classes_.tolist() == ["ill", "well"]
    assert fitted.score(X, Y) > 0.9
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1.0, atol=1e-6)
    view = fitted.result_.silos["here"]
    assert view.overdrawn == 0
    assert (view.plan.cost <= EPSILON).all()
    assert not fitted.result_.public.notes
    assert fitted.result_.is_simulation


def test_strict_rows_teach_less(fitted: PersonalClassifier) -> None:
    """The control of the test above: the same model with everybody strict."""
    strict = PersonalClassifier(declared_target=["well", "ill"], seed=1, **DECLARED)
    assert strict.fit(X, Y, budgets=np.full(600, 0.02)).score(X, Y) < fitted.score(X, Y) - 0.05


def test_hidden_layers_learn_what_lines_cannot() -> None:
    ring = np.where((X[:, 0] ** 2 + X[:, 1] ** 2) > 6, 1, 0)
    settings: dict[str, Any] = {**DECLARED, "declared_target": [0, 1], "seed": 2, "rounds": 40, "learning_rate": 2.0}
    deep = PersonalClassifier(hidden=[16], **settings).fit(X, ring, budgets=np.full(600, 10.0))
    assert deep.score(X, ring) > max(ring.mean(), 1.0 - ring.mean()) + 0.1  # no line does better than the largest class


def test_a_regressor_answers_in_the_unit_of_the_target() -> None:
    pressure = 120.0 + 10.0 * SCORE
    model = PersonalRegressor(declared_target=(40.0, 200.0), seed=1, **DECLARED).fit(X, pressure, budgets=EPSILON)
    assert model.score(X, pressure) > 0.7
    assert 40.0 < float(model.predict(X).mean()) < 200.0


def test_it_is_one_of_scikit_learns(fitted: PersonalClassifier) -> None:
    assert fitted.get_params()["delta"] == 1e-4
    chain = make_pipeline(FunctionTransformer(), clone(fitted))
    chain.fit(X, Y, personalclassifier__budgets=EPSILON)
    assert (chain.predict(X) == fitted.predict(X)).all()


def test_what_a_simulation_reads_from_the_data_is_named() -> None:
    model = PersonalClassifier(seed=1, delta=1e-4, rounds=3).fit(X, Y, budgets=EPSILON)
    notes = " ".join(model.result_.public.notes)
    assert "feature_ranges and declared_target read from private values" in notes
    assert "chosen by looking at real budgets" in notes


def test_a_real_fit_is_charged_and_needs_declarations(tmp_path: Path, fitted: PersonalClassifier) -> None:
    table = BudgetTable([f"p{row}" for row in range(600)], EPSILON)
    policy = replace(Policy.of(fitted.result_.public), lifetime_delta=1e-3, max_share_per_run=0.5)
    with Ledger.create(tmp_path / "l.db", table, kind="production", lifetime_delta=1e-3) as ledger:
        real: dict[str, Any] = {"ledger": ledger, "policy": policy, "run": "first"}
        for missing in ("feature_ranges", "declared_budgets", "declared_records", "declared_target"):
            settings: dict[str, Any] = {**DECLARED, "declared_target": ["well", "ill"], missing: None}
            with pytest.raises(InputError, match=f"a real run needs {missing}"):
                PersonalClassifier(**settings, **real).fit(X, Y, budgets=table)
        assert not ledger.status().runs
        model = PersonalClassifier(declared_target=["well", "ill"], **DECLARED, **real).fit(X, Y, budgets=table)
        assert not model.result_.is_simulation
        assert ledger.status().runs[0].announced == 20
        assert ledger.verify().is_good
        assert model.score(X, Y) > 0.8


@pytest.mark.parametrize(
    ("x", "y", "budgets", "changes", "said"),
    [
        (X[:, 0], Y, EPSILON, {}, "X has shape \\(600,\\)"),
        (X, Y[:5], EPSILON, {}, "600 rows and y has 5"),
        (X, Y, EPSILON[:5], {}, "600 records and 5 budgets"),
        (X, Y, EPSILON, {"feature_ranges": [(0, 1)]}, "for each of the 4 features"),
        (X, Y, EPSILON, {"declared_target": ["ill", "dead"]}, "one of the 2 declared classes"),
        (X, Y, EPSILON, {"declared_budgets": [0.0]}, "positive numbers"),
        (X, Y, EPSILON, {"seed": None}, "exactly one of them"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(x: Any, y: Any, budgets: Any, changes: dict[str, Any], said: str) -> None:
    settings = {**DECLARED, "declared_target": ["well", "ill"], "seed": 1, **changes}
    with pytest.raises(InputError, match=said):
        PersonalClassifier(**settings).fit(x, y, budgets=budgets)


def test_asked_before_it_was_fitted() -> None:
    with pytest.raises(InputError, match="not fitted yet"):
        PersonalClassifier().predict(X)
    with pytest.raises(InputError, match="not fitted yet"):
        PersonalRegressor().predict(X)
    model = PersonalRegressor(declared_target=(-9, 9), seed=1, rounds=2, **DECLARED).fit(X, SCORE, budgets=EPSILON)
    with pytest.raises(InputError, match="fitted on 4"):
        model.predict(X[:, :2])
