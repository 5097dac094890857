"""Private models of tables with scikit-learn's interface: fit, predict, predict_proba, and a budget for every row.

Linear models, or networks with hidden layers, trained by `PersonalTrainer`. What the promise needs to be public is
declared: the classes or the range of the target, the ranges of the features, the nominal number of rows. What is not
declared is read from the data in simulations, and refused in real runs.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from torch import nn

from rpdp.accounting import Schedule
from rpdp.errors import InputError
from rpdp.one_silo.personal_trainer import PersonalTrainer, as_budget_table
from rpdp.planning import TUNED_ON_BUDGETS, declared_plan
from rpdp.training import Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from rpdp.budgets import BudgetTable
    from rpdp.budgets.distributions import Distribution
    from rpdp.federation import Policy
    from rpdp.ledger import Ledger
    from rpdp.planning import PublicPlan
    from rpdp.training import PerRecordLoss

READ = "not covered: {} read from private values; declare them to have them covered"
AVERAGED_SHARE = 0.25
"""The model is the mean over the last quarter of the rounds: noise cancels, at no further cost."""

_CLASS_LOSS = nn.CrossEntropyLoss(reduction="none")


def _squared_error(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.squeeze(1) - target).square()


class _PersonalEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share."""

    def __init__(
        self,
        *,
        declared_target: ArrayLike | None = None,
        max_epsilon: float = 10.0,
        delta: float = 1e-5,
        rounds: int = 20,
        local_steps: int = 10,
        learning_rate: float = 0.5,
        clip_norm: float = 1.0,
        hidden: Sequence[int] = (),
        feature_ranges: ArrayLike | None = None,
        declared_budgets: Distribution | ArrayLike | None = None,
        declared_records: int | None = None,
        share: float | None = None,
        seed: int | None = None,
        ledger: Ledger | None = None,
        policy: Policy | None = None,
        run: str | None = None,
    ) -> None:
        self.declared_target = declared_target
        self.max_epsilon = max_epsilon
        self.delta = delta
        self.rounds = rounds
        self.local_steps = local_steps
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.hidden = hidden
        self.feature_ranges = feature_ranges
        self.declared_budgets = declared_budgets
        self.declared_records = declared_records
        self.share = share
        self.seed = seed
        self.ledger = ledger
        self.policy = policy
        self.run = run

    def _fit(self, x: ArrayLike, targets: NDArray[Any], outputs: int, loss: PerRecordLoss, budgets: Any) -> Self:
        rows = _rows(x)
        self.ranges_ = self._declared_ranges(rows)
        if len(targets) != len(rows):
            raise InputError(f"X has {len(rows):,} rows and y has {len(targets):,}; give one target for each row")
        table = as_budget_table(budgets, len(rows))
        records = Records.of(_to_unit(rows, self.ranges_), targets)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the start is public
            model = _network(rows.shape[1], list(self.hidden), outputs)
        trainer = PersonalTrainer(
            model,
            loss,
            torch.optim.SGD(model.parameters(), lr=self.learning_rate),
            records,
            table,
            self._public_plan(table),
            seed=self.seed,
            ledger=self.ledger,
            policy=self.policy,
            run=self.run,
        )
        self.model_ = _averaged(model, trainer, self.rounds)
        self.result_ = trainer.result
        self.n_features_in_ = rows.shape[1]
        return self

    def _public_plan(self, table: BudgetTable) -> PublicPlan:
        self._require_declared("declared_budgets", "declared_records", "feature_ranges", "declared_target")
        missing = [name for name in ("feature_ranges", "declared_target") if getattr(self, name) is None]
        chosen = self.declared_budgets is None or self.declared_records is None
        notes = [*([TUNED_ON_BUDGETS] if chosen else []), *([READ.format(" and ".join(missing))] if missing else [])]
        return declared_plan(
            Schedule(self.rounds, self.local_steps, participations=self.rounds),
            budgets=table.epsilon if self.declared_budgets is None else self.declared_budgets,
            records=len(table) if self.declared_records is None else self.declared_records,
            delta=self.delta,
            max_epsilon=self.max_epsilon,
            clip_norm=self.clip_norm,
            share=self.share,
            notes=tuple(notes),
        )

    def _require_declared(self, *names: str) -> None:
        """Refuse a real run whose public settings would be read from private values."""
        missing = [name for name in names if getattr(self, name) is None]
        if missing and self.ledger is not None:
            raise InputError(
                f"a real run needs {', '.join(missing)}: what is public must be declared, not read from private values"
            )

    def _declared_ranges(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        self._require_declared("feature_ranges")
        if self.feature_ranges is None:
            return np.stack([np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)], axis=1)
        ranges = np.asarray(self.feature_ranges, dtype=np.float64)
        if ranges.shape != (rows.shape[1], 2) or not (ranges[:, 0] < ranges[:, 1]).all():
            raise InputError(
                f"feature_ranges={ranges.tolist()} must have (lowest, highest) for each of the {rows.shape[1]} features"
            )
        return ranges

    def _outputs(self, x: ArrayLike) -> torch.Tensor:
        rows = _rows(x)
        if rows.shape[1] != self.n_features_in_:
            raise InputError(f"X has {rows.shape[1]} features, but the model was fitted on {self.n_features_in_}")
        with torch.no_grad():
            output: torch.Tensor = self.model_(torch.from_numpy(_to_unit(rows, self.ranges_)))
        return output

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise InputError(f"this {type(self).__name__} is not fitted yet: call fit first")


class PersonalClassifier(ClassifierMixin, _PersonalEstimator):  # type: ignore[misc]
    """A classifier whose every row keeps its own privacy budget.

    Guarantee: the fitted model is (ε_j, δ)-DP for row j. With `seed` it is a simulation and protects nobody; with
    `ledger`, `policy` and `run` it is real, and charged.

    Args:
        declared_target: All classes that there may be.
        max_epsilon: The most that a row may pay, however much it allows.
        delta: δ of the run.
        rounds: Rounds; each is charged as a whole.
        local_steps: Steps in a round.
        learning_rate: The step size. Choose it on public or made-up data.
        clip_norm: The largest influence of a row on a step.
        hidden: Widths of hidden layers; none for a linear model.
        feature_ranges: (lowest, highest) of each feature, declared.
        declared_budgets: How strict people are, as far as is publicly known: a distribution, or examples.
        declared_records: The nominal number of rows.
        share: The largest share of a lifetime budget that this run asks for.
        seed: For a simulation.
        ledger: The production ledger of these rows, for a real run. It needs everything declared.
        policy: What the data holder allows, for a real run.
        run: The id of the run in the ledger.

    >>> x = np.random.default_rng(1).normal(size=(400, 3))
    >>> y = x.sum(axis=1) > 0
    >>> model = PersonalClassifier(delta=1e-4, feature_ranges=[(-3, 3)] * 3, declared_target=[False, True], seed=7)
    >>> model.fit(x, y, budgets=[0.5, 2.0, 5.0, 10.0] * 100).score(x, y) > 0.85
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike, *, budgets: BudgetTable | ArrayLike) -> Self:
        """Train on the rows of X, each within its budget: an ε for each row, or a `BudgetTable` in their order."""
        given = np.asarray(y)
        if self.declared_target is None:
            self._require_declared("declared_target")
            self.classes_ = np.unique(given)
        else:
            self.classes_ = np.unique(np.asarray(self.declared_target))
        places = np.searchsorted(self.classes_, given).clip(max=len(self.classes_) - 1)
        if given.ndim != 1 or not (self.classes_[places] == given).all():
            raise InputError(f"y must hold one of the {len(self.classes_)} declared classes for each row")
        return self._fit(X, places.astype(np.int64), len(self.classes_), _CLASS_LOSS, budgets)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of `classes_`."""
        self._require_fitted()
        return np.asarray(self._outputs(X).softmax(dim=1).numpy(), dtype=np.float64)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each row."""
        self._require_fitted()
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class PersonalRegressor(RegressorMixin, _PersonalEstimator):  # type: ignore[misc]
    """A regression model whose every row keeps its own privacy budget.

    Guarantee: the fitted model is (ε_j, δ)-DP for row j. With `seed` it is a simulation and protects nobody; with
    `ledger`, `policy` and `run` it is real, and charged.

    Settings are those of `PersonalClassifier`, but `declared_target` is (lowest, highest): targets outside are clipped.
    """

    def fit(self, X: ArrayLike, y: ArrayLike, *, budgets: BudgetTable | ArrayLike) -> Self:
        """Train on the rows of X, each within its budget: an ε for each row, or a `BudgetTable` in their order."""
        given = np.asarray(y, dtype=np.float64)
        self._require_declared("declared_target")
        declared = (given.min(), given.max()) if self.declared_target is None else self.declared_target
        self.target_range_ = np.asarray(declared, dtype=np.float64)
        if self.target_range_.shape != (2,) or not self.target_range_[0] < self.target_range_[1]:
            raise InputError(f"declared_target={declared!r} must be (lowest, highest)")
        if given.ndim != 1:
            raise InputError(f"y has shape {given.shape}; it must have one number for each row")
        return self._fit(X, _to_unit(given[:, None], self.target_range_[None])[:, 0], 1, _squared_error, budgets)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the expected target of each row."""
        self._require_fitted()
        low, high = self.target_range_
        unit = self._outputs(X).squeeze(1).double().numpy()
        return np.asarray(low + (unit + 1.0) * (high - low) / 2.0)


def _rows(x: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise InputError(f"X has shape {rows.shape}; it must have a row for each record and a column for each feature")
    return rows


def _to_unit(rows: NDArray[np.float64], ranges: NDArray[np.float64]) -> NDArray[np.float32]:
    """Clip every column to its range and bring it to −1 … 1."""
    low, high = ranges[:, 0], ranges[:, 1]
    middle, half = (low + high) / 2.0, np.maximum((high - low) / 2.0, np.finfo(np.float32).tiny)
    return np.asarray((np.clip(rows, low, high) - middle) / half, dtype=np.float32)


def _network(features: int, hidden: list[int], outputs: int) -> nn.Sequential:
    """Layers from features to outputs. The last one starts at zero: at first no class is preferred."""
    widths = [features, *hidden]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    last = nn.Linear(widths[-1], outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def _averaged(model: nn.Module, trainer: PersonalTrainer, rounds: int) -> nn.Module:
    """Train, and return the mean of the models after the last rounds."""
    first = rounds - max(1, round(AVERAGED_SHARE * rounds))
    average = torch.optim.swa_utils.AveragedModel(model)
    taken = 0
    for training_round in trainer.rounds():
        for batch in training_round:
            trainer.step(batch)
        if training_round.number > first:
            average.update_parameters(model)
            taken += 1
    return average.module if taken else copy.deepcopy(model)
