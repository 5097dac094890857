"""What a run of statistics or of evaluation asks of silos: measures whose noisy sums they release. It is public.

Such a run samples nobody. Record j contributes w_j · x_j, all records at once, where x_j is the vector of all measures
and w_j its personal weight (privacy.md, section 9). Every measure contributes a part of norm at most 1, so x_j has norm
at most √(number of measures). Planning does not know what the measures mean: a silo's own code does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from rpdp.accounting.gaussian_curve import ALL_OR_NOTHING, PERSONAL_WEIGHTS
from rpdp.checks import require_choice, require_count
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.accounting._types import FloatArray

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
RequestEstimator = Literal["everyone", "representative"]
REQUEST_ESTIMATORS: tuple[RequestEstimator, ...] = get_args(RequestEstimator)

MOST_CELLS = 1 << 22
"""The largest vector of a request: 32 MB for every silo."""

MOST_MEASURES = 10_000


@dataclass(frozen=True)
class MeasureSpec:
    """One measure of a request.

    Args:
        kind: What is measured, by a name that the silo's own code knows.
        size: The number of cells that it fills.
        settings: All else that is to know of it, as JSON: columns, edges, ranges.
    """

    kind: str
    size: int
    settings: Mapping[str, JSON] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not self.kind:
            raise InputError(f"kind={self.kind!r} must be the name of a measure")
        object.__setattr__(self, "size", require_count("size", self.size, most=MOST_CELLS))
        object.__setattr__(self, "settings", _plain(self.kind, self.settings))

    def plain(self) -> dict[str, Any]:
        """The measure as plain values for JSON."""
        return {"kind": self.kind, "size": self.size, "settings": dict(self.settings)}


@dataclass(frozen=True)
class Request:
    """The measures of a run, which share one vector, and how records are weighted.

    | estimator | a record's weight | what the sum speaks of |
    |---|---|---|
    | everyone | 1 if its budget pays for that, else 0 | the records above a public floor, whatever their values |
    | representative | the largest that its budget pays for, at most 1 | all, if values do not depend on budgets |

    >>> request = Request("everyone", (MeasureSpec("count", 1), MeasureSpec("histogram", 10, {"column": "age"})))
    >>> request.size, round(request.norm, 3), [part.start for part in request.parts]
    (11, 1.414, [0, 1])
    """

    estimator: RequestEstimator
    measures: tuple[MeasureSpec, ...]

    def __post_init__(self) -> None:
        require_choice("estimator", self.estimator, REQUEST_ESTIMATORS)
        if not isinstance(self.measures, Sequence) or not all(isinstance(one, MeasureSpec) for one in self.measures):
            raise InputError(f"measures={self.measures!r} must be a list of measures")
        object.__setattr__(self, "measures", tuple(self.measures))
        require_count("number of measures", len(self.measures), most=MOST_MEASURES)
        require_count("cells of all measures", self.size, most=MOST_CELLS)

    @property
    def size(self) -> int:
        """The number of cells of all measures: the length of the vector that a silo releases."""
        return sum(measure.size for measure in self.measures)

    @property
    def norm(self) -> float:
        """The largest norm of a record's contribution: L of the run."""
        return math.sqrt(len(self.measures))

    @property
    def weights(self) -> FloatArray:
        """The weights above 0 that a record may have, rising to 1."""
        return ALL_OR_NOTHING if self.estimator == "everyone" else PERSONAL_WEIGHTS

    @property
    def parts(self) -> tuple[slice, ...]:
        """Where each measure's cells are in the vector."""
        ends = accumulate((measure.size for measure in self.measures), initial=0)
        return tuple(slice(low, high) for low, high in pairwise(ends))

    def plain(self) -> dict[str, Any]:
        """The request as plain values for JSON."""
        return {"estimator": self.estimator, "measures": [measure.plain() for measure in self.measures]}

    @classmethod
    def of(cls, values: object) -> Request:
        """The request that `plain` described; refused if anything is missing or unknown."""
        try:
            given = dict(values)  # type: ignore[call-overload]
            measures = tuple(MeasureSpec(**one) for one in given.pop("measures"))
            return cls(measures=measures, **given)
        except (TypeError, ValueError, KeyError) as error:
            raise InputError(f"not a request: {type(error).__name__}: {error}") from None


def _plain(kind: str, settings: object) -> Mapping[str, JSON]:
    """Settings as JSON reads them: an own copy, in which equal settings are equal, and no value is not finite."""
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise InputError(f"settings of measure {kind!r} must map names to values, not be {settings!r}")
    try:
        text = json.dumps(dict(settings), default=_mapping, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"settings of measure {kind!r} are not JSON: {error}") from None
    return MappingProxyType(json.loads(text))


def _mapping(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")
