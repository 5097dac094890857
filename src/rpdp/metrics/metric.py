"""A metric: one number that says how good a model's outputs are."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.checks import require_choice
from rpdp.errors import InputError
from rpdp.metrics.needs import NEEDS, Need

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rpdp.metrics.predictions import Predictions

_SURVIVES_NOT_FINITE = ("hits", "classes", "outputs")
"""Needs that a model whose outputs are NaN or infinite can still meet."""


@dataclass(frozen=True)
class Metric:
    """A number that says how good a model's outputs are.

    Attributes:
        name: What study files, tables and JSON call it.
        explanation: One line that says what it is.
        function: Gets what `needs` names, for all records at once, and returns a number, or None where it has no value.
        needs: What it is made from, by default outputs and targets as torch tensors; `rpdp.metrics.NEEDS` lists all.
        larger_is_better: Whether a larger value is a better one.
        title: What figures and tables for people call it; by default the name.
        by_class: Gets the same and returns a value by class, for metrics that have one.

    >>> metric = Metric("bias", "mean error", lambda outputs, targets: float((outputs[:, 0] - targets).mean()))
    >>> metric.needs
    'outputs'
    """

    name: str
    explanation: str
    function: Callable[..., float | None] = field(repr=False)
    needs: Need = "outputs"
    larger_is_better: bool = True
    title: str = ""
    by_class: Callable[..., Mapping[str, float | None]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise InputError(f"name={self.name!r} of a metric is empty; give it one")
        if not callable(self.function):
            raise InputError(f"metric {self.name}: function={self.function!r} must be a function")
        require_choice(f"metric {self.name}: needs", self.needs, list(NEEDS))

    def __call__(self, predictions: Predictions) -> float | None:
        """Return the value; None where it is not defined. Outputs that do not fit are refused in words."""
        arrays = self._arrays(predictions)
        if len(predictions) == 0 or self._is_lost(predictions):
            return None
        try:
            return self._number(self.function(*arrays))
        except InputError:
            raise
        except Exception as error:  # the user's own code may raise anything
            text = (str(error) or "no message").splitlines()[0]
            raise InputError(f"metric {self.name} failed: {type(error).__name__}: {text}") from error

    def classwise(self, predictions: Predictions) -> Mapping[str, float | None]:
        """Return the value of every class; nothing if the metric has none, or cannot be computed."""
        if self.by_class is None or len(predictions) == 0 or self._is_lost(predictions):
            return {}
        return self.by_class(*self._arrays(predictions))

    def _arrays(self, predictions: Predictions) -> tuple[Any, ...]:
        try:
            return predictions.seen_as(self.needs)
        except InputError as error:
            raise InputError(f"metric {self.name} {error}") from None

    def _is_lost(self, predictions: Predictions) -> bool:
        return self.needs not in _SURVIVES_NOT_FINITE and predictions.not_finite > 0

    def _number(self, value: Any) -> float | None:
        if value is None:
            return None
        item = value.item() if getattr(value, "ndim", None) == 0 else value
        if isinstance(item, bool | np.bool_) or not isinstance(item, numbers.Real):
            shape = getattr(value, "shape", None)
            what = f"an array of shape {tuple(shape)}" if shape else f"{type(value).__name__}"
            raise InputError(f"metric {self.name} returned {what}; it must return one number, or None")
        return float(item) if math.isfinite(item) else None
