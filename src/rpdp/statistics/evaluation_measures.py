"""What private evaluation asks of silos: one measure, whose part of a record has norm 1, for all metrics at once.

| kind | cells | a record contributes | metrics |
|---|---|---|---|
| `scores` | two classes × bins of the score | a running count in its class, from its bin on | all of two classes |
| `classes` | true × predicted class | 1 in one cell | accuracy, balanced accuracy |
| `errors` | count, and one per metric | 1, |e|/bound, e²/bound², each divided by the root of their number | MAE, RMSE |

The score of two classes is the logit of class 1: the single output, or the second minus the first. Its bins are equal
steps from −limit to +limit, the outermost without an end; they are public and the same for every model. With `levels`
the cells exist once for each declared group, at the same price, because a record is in one group only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.checks import require_choice, require_count, require_positive
from rpdp.errors import InputError
from rpdp.planning.request import MeasureSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SCORES, CLASSES, ERRORS = "scores", "classes", "errors"
BINS = 256
LIMIT = 8.0
"""Logits from −8 to 8 in 256 steps: probabilities from 0.0003 to 0.9997, no step longer than 0.016."""

MOST_BINS = 1024
MOST_LIMIT = 1e9

RANKING = ("auc", "average_precision", "f1")
"""Metrics of two classes that need scores, or are worth their bins."""

COUNTING = ("accuracy", "balanced_accuracy")
NUMBERS = ("mae", "rmse")
PRIVATE_METRICS = (*COUNTING, *RANKING, *NUMBERS)
"""What can be measured privately, by the names that simulations use, too."""


@dataclass(frozen=True)
class EvaluationMeasure:
    """The measure of an evaluation, with its settings checked.

    Args:
        kind: `scores`, `classes` or `errors`.
        metrics: The metrics to compute; the first one decides.
        classes: The number of classes; 0 for numbers.
        bins: Of `scores`, an even number, so that 0, where the predicted class changes, is between two bins.
        limit: Of `scores`: bins go from −limit to +limit.
        bound: Of `errors`: larger errors count as this one. It is public: declare it, do not look for it.
        column: The name of what divides records into groups; empty without groups.
        levels: The declared groups.

    >>> measure = EvaluationMeasure.for_metrics(["auc", "accuracy"], classes=2)
    >>> measure.kind, measure.spec().size
    ('scores', 512)
    """

    kind: str
    metrics: tuple[str, ...]
    classes: int = 0
    bins: int = 0
    limit: float = 0.0
    bound: float = 0.0
    column: str = ""
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, (SCORES, CLASSES, ERRORS))
        known = {SCORES: (*COUNTING, *RANKING), CLASSES: COUNTING, ERRORS: NUMBERS}[self.kind]
        _require_metrics(self.metrics, known)
        if self.kind == SCORES:
            require_count("classes", self.classes, least=2, most=2)
            require_count("bins", self.bins, least=2, most=MOST_BINS)
            if require_positive("limit", self.limit) > MOST_LIMIT:
                raise InputError(f"limit={self.limit:g} is above {MOST_LIMIT:g}, the most that bins can reach")
            if self.bins % 2:
                raise InputError(f"bins={self.bins} must be even: the predicted class changes at 0, between two bins")
        elif self.kind == CLASSES:
            require_count("classes", self.classes, least=2)
        else:
            require_positive("bound", self.bound)
        if not isinstance(self.column, str) or not all(isinstance(level, str) for level in self.levels):
            raise InputError(f"groups of {self.column!r} and their levels {self.levels!r} must be text")
        if bool(self.column) != bool(self.levels) or len(set(self.levels)) < len(self.levels):
            raise InputError(f"groups of {self.column!r} need declared levels, each once, not {list(self.levels)}")

    @classmethod
    def for_metrics(
        cls,
        metrics: Sequence[str],
        *,
        classes: int = 0,
        bound: float | None = None,
        bins: int = BINS,
        limit: float = LIMIT,
        column: str = "",
        levels: Sequence[str] = (),
    ) -> EvaluationMeasure:
        """The cheapest measure from which all these metrics follow; refused if there is none."""
        groups = {"column": column, "levels": tuple(levels)}
        named = tuple(metrics)
        if named and all(name in NUMBERS for name in named):
            if bound is None:
                raise InputError(
                    f"{', '.join(named)} need a public bound: give the largest error that counts, from what is known "
                    "without looking at the records"
                )
            return cls(ERRORS, named, bound=bound, **groups)  # type: ignore[arg-type]
        if classes == 2 and any(name in RANKING for name in named):
            return cls(SCORES, named, classes=2, bins=bins, limit=limit, **groups)  # type: ignore[arg-type]
        return cls(CLASSES, named, classes=classes, **groups)  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        """The number of cells of one group."""
        return {SCORES: 2 * self.bins, CLASSES: self.classes**2, ERRORS: 1 + len(self.metrics)}[self.kind]

    @property
    def edges(self) -> NDArray[np.float64]:
        """The ends of the bins between −limit and +limit, without the outermost two."""
        return np.linspace(-self.limit, self.limit, self.bins + 1)[1:-1]

    def spec(self) -> MeasureSpec:
        """The measure as a part of a request."""
        settings: dict[str, Any] = {"metrics": list(self.metrics)}
        own = {SCORES: ("classes", "bins", "limit"), CLASSES: ("classes",), ERRORS: ("bound",)}[self.kind]
        settings |= {name: getattr(self, name) for name in own}
        if self.levels:
            settings |= {"column": self.column, "levels": list(self.levels)}
        return MeasureSpec(self.kind, self.size * max(1, len(self.levels)), settings)

    @classmethod
    def of(cls, spec: MeasureSpec) -> EvaluationMeasure:
        """The measure that a request describes; refused unless it is exactly one that `spec` would make."""
        settings = {name: tuple(value) if isinstance(value, list) else value for name, value in spec.settings.items()}
        try:
            made = cls(spec.kind, **settings)  # type: ignore[arg-type]
        except (TypeError, OverflowError) as error:
            raise InputError(
                f"measure {spec.kind!r} has other settings than private evaluation knows: {error}"
            ) from None
        if made.spec() != spec:
            raise InputError(
                f"measure {spec.kind!r}: {spec.plain()} is not what its settings mean: {made.spec().plain()}"
            )
        return made


def _require_metrics(metrics: tuple[str, ...], known: tuple[str, ...]) -> None:
    wrong = [name for name in metrics if name not in known]
    if not metrics or wrong or len(set(metrics)) < len(metrics):
        what = f"{', '.join(map(repr, wrong))} cannot be" if wrong else "name at least one, each once:"
        raise InputError(f"metrics={list(metrics)}: {what} measured together in private; here are {', '.join(known)}")
