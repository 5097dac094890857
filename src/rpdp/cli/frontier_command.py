"""`rpdp plan --frontier`: where people choose σ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rpdp.cli import options
from rpdp.cli.output import notes, print_json, print_table, refuse_overwriting, say, say_line

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.accounting import Accountant, Schedule
    from rpdp.budgets import BudgetTable
    from rpdp.planning import FrontierPoint

DEFAULT_RANGE = (0.7, 0.95, 1.25, 1.7, 2.2, 3.0, 4.0, 5.3, 7.0, 9.5, 12.5, 17.0, 22.0, 30.0)
"""The frontier's noise multipliers, unless others are given."""

_FROM_REAL_BUDGETS = (
    "note: a σ chosen by looking at real budgets is not covered by the promise, and a plan made from them with "
    "--at-knee says so; declare a distribution (--distribution, --records) to choose from, beside --budgets"
)


@dataclass(frozen=True)
class Range:
    """The frontier that the options describe."""

    schedule: Schedule
    source: BudgetTable
    delta: float
    accountant: Accountant
    noise_multipliers: str | None
    covered: bool
    """Whether the budgets are declared ones, so that a choice made here reveals nothing."""

    def points(self) -> tuple[list[FrontierPoint], int]:
        """All points by rising σ, with a progress bar on a terminal, and the index of the knee."""
        from rich.progress import track

        from rpdp.planning import frontier, knee

        sigmas: tuple[float, ...] = DEFAULT_RANGE
        if self.noise_multipliers is not None:
            sigmas = tuple(sorted(set(options.numbers_of("--noise-multipliers", self.noise_multipliers))))
        points = frontier(
            self.schedule,
            self.source.per_record().epsilon,
            delta=self.delta,
            noise_multipliers=sigmas,
            accountant=self.accountant,
        )
        quiet = not notes.is_terminal
        listed = list(track(points, "pricing", len(sigmas), console=notes, transient=True, disable=quiet))
        return listed, knee(listed)


def show_frontier(frontier: Range, out: Path | None, *, force: bool, as_json: bool) -> None:
    """The frontier as table or JSON and, if wanted, as a figure."""
    figure = None if out is None else out / "frontier.html"
    refuse_overwriting([figure], force=force)
    points, best = frontier.points()
    if figure is not None:
        from rpdp.report import frontier_figure, write_figure

        write_figure(frontier_figure(points, best), figure)
    note = None if frontier.covered else _FROM_REAL_BUDGETS
    if as_json:
        listed = [asdict(point) for point in points]
        file = None if figure is None else str(figure)
        print_json({"points": listed, "knee": best, "covered": frontier.covered, "note": note, "figure": file})
        return
    columns = [
        "σ",
        "cost at\N{NO-BREAK SPACE}q=1",
        "batch Σq",
        "gradients per round",
        "signal Σq/σ",
        "left out",
        "always in",
    ]
    rows = [_row(point, knee=index == best) for index, point in enumerate(points)]
    say(f"{frontier.schedule.describe()} · δ = {frontier.delta:g} · {len(frontier.source):,} records")
    print_table("Sampling against noise", columns, rows)
    say("knee: beyond it, more noise costs much more compute and buys little more signal. Take it with --at-knee")
    if note is not None:
        say(note, style="yellow")
    if figure is not None:
        say_line(f"figure: {figure}")


def _row(point: FrontierPoint, *, knee: bool) -> list[str]:
    return [
        f"{point.noise_multiplier:.3g}{' ← knee' if knee else ''}",
        f"{point.largest_cost:.3g}",
        f"{point.expected_batch:.1f}",
        f"{point.gradients_per_round:,.0f}",
        f"{point.signal_to_noise:.2f}",
        f"{point.left_out:,}",
        f"{point.in_every_batch:,}",
    ]
