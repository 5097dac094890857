"""Figures as rows of bars, drawn on the server: each part has a length, a colour and words. No script, no image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.ledger.inspection.overview import EDGES
from rpdp.ledger.inspection.use_over_time import group_name

if TYPE_CHECKING:
    from rpdp.console.run_forecast import RunForecast
    from rpdp.ledger.inspection.use_over_time import UseOverTime

_MOST_YEARS = 6
_EARLIER = "earlier"


@dataclass(frozen=True)
class BarPart:
    """A part of a bar: where it begins and how long it is, in percent; its colour class; what it stands for."""

    start: float
    length: float
    style: str
    meaning: str


@dataclass(frozen=True)
class Bar:
    """One row of a figure: its name, its parts, and what it says in words."""

    name: str
    parts: tuple[BarPart, ...]
    words: str


@dataclass(frozen=True)
class BarFigure:
    """Rows of bars with a key of colours, and the ends of the axis."""

    title: str
    caption: str
    key: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    axis: tuple[str, str]


def use_figure(use: UseOverTime) -> BarFigure:
    """What each group has used of its lifetime budgets, by year; what is held; what is left."""
    years = use.by_year()
    shown = list(years)[-_MOST_YEARS:]
    older = [year for year in years if year not in shown]
    layers = [(str(year), years[year], f"year-{number}") for number, year in enumerate(shown)]
    early = sum((years[year] for year in older), use.before)
    if early.any():
        layers.insert(0, (_EARLIER, early, "earlier"))
    layers.append(("held", use.held, "held"))
    bars = []
    for number in range(len(EDGES) + 1):
        if use.in_group[number]:
            shares = [(name, float(values[number]), style) for name, values, style in layers]
            left = max(0.0, 1.0 - sum(share for _, share, _ in shares))
            bars.append(_bar(group_name(number), [*shares, ("left", left, "left")]))
    return BarFigure(
        "Lifetime budgets used, by group and year",
        "Each bar is what the records of a group allow for life, all together. Its parts show which year's runs have "
        "spent it, what runs hold that have not begun, and what is left.",
        (*((name, style) for name, _, style in layers), ("left", "left")),
        tuple(bars),
        ("0 %", "100 % of the lifetime budgets"),
    )


def _bar(name: str, shares: list[tuple[str, float, str]]) -> Bar:
    parts, start = [], 0.0
    for meaning, share, style in shares:
        length = min(100.0 * share, 100.0 - start)
        if length > 0.0:
            parts.append(BarPart(round(start, 3), round(length, 3), style, f"{meaning}: {share:.1%}"))
        start += length
    return Bar(name, tuple(parts), ", ".join(f"{meaning} {share:.1%}" for meaning, share, _ in shares if share > 0.0))


def runs_figure(forecast: RunForecast) -> BarFigure:
    """How many runs each group has before it."""
    most = max((group.most_runs for group in forecast.groups), default=0) or 1
    bars = []
    for group in forecast.groups:
        fewest, typical = 100.0 * group.fewest_runs / most, 100.0 * group.typical_runs / most
        parts = (
            BarPart(0.0, round(fewest, 3), "year-0", f"everybody: {group.fewest_runs:,} runs"),
            BarPart(
                round(fewest, 3), round(typical - fewest, 3), "year-1", f"half of them: {group.typical_runs:,} runs"
            ),
        )
        words = (
            f"{_runs(group.typical_runs)} for half of them, at least {group.fewest_runs:,}, at most {group.most_runs:,}"
        )
        bars.append(Bar(group_name(group.number), tuple(part for part in parts if part.length > 0.0), words))
    return BarFigure(
        "Runs that are left, by group",
        "In how many more runs like this one records can take part in full, if one run takes at most "
        f"{forecast.share:.3g} of each lifetime budget.",
        (("everybody in the group", "year-0"), ("half of the group", "year-1")),
        tuple(bars),
        ("0", _runs(most)),
    )


def signal_figure(forecast: RunForecast) -> BarFigure:
    """The signal of one run after the other."""
    most = max((*forecast.signals.values(), forecast.floor)) or 1.0
    bars = []
    for run, signal in forecast.signals.items():
        style = "year-0" if signal >= forecast.floor else "held"
        words = f"signal {signal:.3g}, batch {forecast.batches[run]:,.1f}"
        words += "" if signal >= forecast.floor else ": below the floor, this run would be noise"
        bars.append(Bar(f"run {run:,}", (BarPart(0.0, round(100.0 * signal / most, 3), style, words),), words))
    return BarFigure(
        "Signal of each run",
        f"The signal of a whole run, Σq/σ·√K. Below the floor of {forecast.floor:.3g} a run is noise.",
        (("above the floor", "year-0"), ("noise", "held")),
        tuple(bars),
        ("0", f"{most:.3g}"),
    )


def _runs(count: int) -> str:
    return f"{count:,} {'run' if count == 1 else 'runs'}"
