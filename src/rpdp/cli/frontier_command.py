"""`rpdp frontier`: compare noise multipliers before choosing one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.cli import budget_source, options
from rpdp.cli.budget_source import read_source
from rpdp.cli.output import notes, print_json, print_table, refuse_overwriting, say, say_line
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.accounting import Accountant, Schedule
    from rpdp.budgets import BudgetTable
    from rpdp.planning import FrontierPoint

DEFAULT_NOISE_MULTIPLIERS = (0.7, 0.95, 1.25, 1.7, 2.2, 3.0, 4.0, 5.3, 7.0, 9.5, 12.5, 17.0, 22.0, 30.0)

_FROM_REAL_BUDGETS = (
    "note: the promise does not cover a σ chosen by looking at real budgets, and a plan made from them with --at-knee "
    "says so; declare a distribution (--distribution, --records) to choose from, beside --budgets"
)


def frontier(
    rounds: options.Rounds,
    local_steps: options.LocalSteps,
    delta: options.Delta,
    participation: options.Participation = None,
    max_participations: options.MaxParticipations = None,
    participations: options.Participations = None,
    budgets: Annotated[Path | None, typer.Option("--budgets", "-b", help="The silo's budget file.")] = None,
    distribution: budget_source.DistributionName = None,
    records: budget_source.NominalRecords = None,
    parameters: budget_source.Parameters = None,
    settings: budget_source.DistributionSettings = None,
    noise_multipliers: budget_source.NoiseMultipliers = None,
    accountant: options.AccountantOption = "pld",
    figure: Annotated[Path | None, typer.Option("--figure", help="Also write the figure to this HTML file.")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Compare noise multipliers: what each costs, and how much signal it gives.

    More noise lets every record be drawn more often for the same budget. The knee marks where more noise stops paying
    off; `rpdp plan --at-knee` takes it. Nothing is planned here.

    Example: `rpdp frontier -T 15 -t 50 --participations 8 -d 1e-4 --distribution ThreeLevels -n 4000`
    """
    schedule = options.schedule_of(rounds, local_steps, participation, max_participations, participations)
    chosen = options.accountant_of(accountant)
    if figure is not None and figure.suffix != ".html":
        raise InputError(f"--figure {figure}: the name of the figure must end in .html")
    refuse_overwriting([figure], force=force)
    source = read_source(budgets, distribution, records, parameters, settings)
    compared = NoiseRange(schedule, source.public, delta, chosen, noise_multipliers)
    points, best = compared.points()
    if figure is not None:
        from rpdp.report import frontier_figure, write_figure

        write_figure(frontier_figure(points, best), figure)
    note = None if source.is_declared else _FROM_REAL_BUDGETS
    file = None if figure is None else str(figure)
    if as_json:
        listed = [asdict(point) for point in points]
        print_json({"points": listed, "knee": best, "covered": source.is_declared, "note": note, "figure": file})
        return
    _show(compared, points, best)
    if note is not None:
        say(note, style="yellow")
    if file is not None:
        say_line(f"figure: {file}")


@dataclass(frozen=True)
class NoiseRange:
    """The noise multipliers to compare, and what they are compared for."""

    schedule: Schedule
    budgets: BudgetTable
    delta: float
    accountant: Accountant
    noise_multipliers: str | None

    def points(self) -> tuple[list[FrontierPoint], int]:
        """All points by rising σ, with a progress bar on a terminal, and the index of the knee."""
        from rich.progress import track

        from rpdp.planning import frontier, knee

        sigmas: tuple[float, ...] = DEFAULT_NOISE_MULTIPLIERS
        if self.noise_multipliers is not None:
            sigmas = tuple(sorted(set(options.numbers_of("--noise-multipliers", self.noise_multipliers))))
        points = frontier(
            self.schedule,
            self.budgets.per_record().epsilon,
            delta=self.delta,
            noise_multipliers=sigmas,
            accountant=self.accountant,
        )
        quiet = not notes.is_terminal
        listed = list(track(points, "pricing", len(sigmas), console=notes, transient=True, disable=quiet))
        return listed, knee(listed)


def _show(compared: NoiseRange, points: list[FrontierPoint], best: int) -> None:
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
    say(f"{compared.schedule.describe()} · δ = {compared.delta:g} · {len(compared.budgets):,} records")
    print_table("Sampling against noise", columns, rows)
    say("knee: beyond it, more noise costs much more compute and adds little signal. `rpdp plan --at-knee` takes it.")


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
