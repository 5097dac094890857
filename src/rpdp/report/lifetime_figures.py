"""The use of whole lifetime budgets, for the silo edition: by group, what is spent by year, held and left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.figures import GREY, PALE, Bars, Figure, PlotAxis, cycle
from rpdp.ledger.inspection.use_over_time import group_name
from rpdp.report.rendering import Card, Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rpdp.ledger.inspection.use_over_time import UseOverTime

_MOST_YEARS = 5
_EARLIER = "earlier"


def lifetime_cards(lifetimes: Mapping[str, UseOverTime]) -> list[Card]:
    """A figure for each silo: a bar for each group of budgets, its parts the years, what is held and what is left."""
    return [_card(number, silo, use) for number, (silo, use) in enumerate(sorted(lifetimes.items()))]


def _card(number: int, silo: str, use: UseOverTime) -> Card:
    groups = np.flatnonzero(use.in_group)
    names = [group_name(int(group)) for group in groups]
    parts = _spent(use)
    colours = cycle(len(parts))
    figure = Figure(PlotAxis("lifetime budget", "names"), PlotAxis("share of it", limits=(0.0, 1.0), unit="%"))
    for (name, shares), colour in zip(parts.items(), colours, strict=True):
        figure.add(Bars(names, shares[groups], name, colour, stacked=True))
    left = np.maximum(1.0 - use.held - sum(parts.values(), np.zeros(len(use.held))), 0.0)
    figure.add(Bars(names, use.held[groups], "held", GREY, stacked=True))
    figure.add(Bars(names, left[groups], "left", PALE, stacked=True))
    text = "Means over the records of a group, as the ledger was when this report was made."
    return Card(f"lifetime-{number}", f"Lifetime budgets of silo {silo}", text, figure)


def lifetime_table(lifetimes: Mapping[str, UseOverTime]) -> Table | None:
    """The same in numbers, for every silo and group; None without a ledger."""
    if not lifetimes:
        return None
    columns = [Column("silo", is_text=True), Column("lifetime budget", is_text=True)]
    columns += [Column(name) for name in ("records", "not drawn", "spent", "held", "left")]
    rows = []
    for silo, use in sorted(lifetimes.items()):
        spent = sum(_spent(use).values(), np.zeros(len(use.held)))
        for group in np.flatnonzero(use.in_group).tolist():
            left = max(0.0, 1.0 - spent[group] - use.held[group])
            shares = [f"{share:.1%}" for share in (spent[group], use.held[group], left)]
            rows.append([silo, group_name(group), f"{use.in_group[group]:,}", f"{use.off[group]:,}", *shares])
    return Table(columns, rows, "Shares of the lifetime budgets, mean over the records of a group.")


def _spent(use: UseOverTime) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """The share that each year's runs have spent, oldest first; years that are long ago, and a lost ledger, as one."""
    years = use.by_year()
    shown = list(years)[-_MOST_YEARS:]
    early = sum((years[year] for year in years if year not in shown), use.before)
    found = {_EARLIER: early} if early.any() else {}
    return found | {str(year): years[year] for year in shown}
