"""An axis of a figure: what it says, where a value stands on it, and which values are written beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

_TICKS = 5
_MOST_DECADES = 7
_MOST_NAMES = 40
_FEW_DECADES = 2.5
"""Up to so many decades, a logarithmic axis also names 2 and 5 of each."""


@dataclass(frozen=True)
class PlotAxis:
    """One axis. Limits that are not given come from what is drawn.

    Attributes:
        title: What is shown, with its unit.
        kind: "names" for categories: they stand in the order in which they are drawn first, from the left or the top.
        limits: Smallest and largest value.
        from_zero: Whether the axis starts at zero.
        unit: "%" to write shares as per cent.
        whole: Whether only whole numbers are named, such as rounds.
        ticks: The values to name, if not those that the axis would choose.
    """

    title: str = ""
    kind: Literal["linear", "log", "names"] = "linear"
    limits: tuple[float, float] | None = None
    from_zero: bool = False
    unit: Literal["", "%"] = ""
    whole: bool = False
    ticks: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Scale:
    """An axis with its limits: places run from 0 at `low` to 1 at `high`."""

    axis: PlotAxis
    low: float
    high: float
    names: tuple[str, ...] = ()

    @classmethod
    def fitted(cls, axis: PlotAxis, values: Iterable[float], names: tuple[str, ...] = ()) -> Scale:
        """The scale that shows all of these values."""
        if axis.kind == "names":
            return cls(axis, -0.5, max(1, len(names)) - 0.5, names)
        if axis.limits is not None:
            return cls(axis, *axis.limits)
        is_log = axis.kind == "log"
        low, high = limits_of([value for value in values if usable(value, log=is_log)], log=is_log)
        return cls(axis, 0.0 if axis.from_zero and not is_log else low, high)

    def place(self, value: float) -> float:
        """Where a value stands; values beyond the limits stand at the edge."""
        return placed(min(max(value, self.low), self.high), self.low, self.high, log=self.axis.kind == "log")

    def holds(self, value: float) -> bool:
        """Whether a value can be shown at all."""
        return usable(value, log=self.axis.kind == "log")

    def ticks(self) -> list[tuple[float, str]]:
        """The values to name, each with its text."""
        if self.axis.kind == "names":
            every = -(-len(self.names) // _MOST_NAMES) or 1
            return [(float(place), name) for place, name in enumerate(self.names) if place % every == 0]
        return [(value, self._text(value)) for value in self._values()]

    def _values(self) -> list[float]:
        if self.axis.ticks is not None:
            return [value for value in self.axis.ticks if self.low <= value <= self.high]
        if self.axis.kind == "log":
            return _log_ticks(self.low, self.high)
        found = linear_ticks(self.low, self.high)
        return sorted({float(round(value)) for value in found}) if self.axis.whole else found

    def _text(self, value: float) -> str:
        return f"{100.0 * value:.4g} %" if self.axis.unit else short_number(value)


def limits_of(values: list[float], *, log: bool) -> tuple[float, float]:
    """The limits of an axis that shows these values with a margin."""
    if not values:
        return (0.1, 1.0)
    low, high = min(values), max(values)
    if log:
        return (low / 1.1, high * 1.1)
    margin = 0.04 * (high - low) or 0.5
    return (low - margin, high + margin)


def placed(value: float, low: float, high: float, *, log: bool) -> float:
    """Where a value stands between two limits: 0 at the lower one, 1 at the upper one."""
    if log:
        low, high, value = math.log10(low), math.log10(high), math.log10(value)
    return (value - low) / (high - low) if high > low else 0.5


def usable(value: float | None, *, log: bool) -> bool:
    """Whether an axis can show a value."""
    return value is not None and math.isfinite(value) and (value > 0.0 or not log)


def linear_ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two limits."""
    if high <= low:
        return [low]
    rough = (high - low) / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1.0, 2.0, 5.0, 10.0) if factor * unit >= rough)
    lowest, highest = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(lowest, highest + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten between two limits, at most seven or so."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / _MOST_DECADES))
    return [10.0**power for power in range(first, last + 1, every)]


def _log_ticks(low: float, high: float) -> list[float]:
    if math.log10(high / low) > _FEW_DECADES:
        return decades(low, high)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [factor * 10.0**power for power in powers for factor in (1.0, 2.0, 5.0)]
    found = [value for value in found if low <= value <= high]
    return found if len(found) > 1 else [value for value in linear_ticks(low, high) if value > 0.0]


def short_number(value: float) -> str:
    """A number beside an axis: 0.05, 200, 1e-5."""
    if value != 0.0 and (abs(value) >= 1e4 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{round(value, 6):g}"
