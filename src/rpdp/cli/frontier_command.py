"""`rpdp frontier`: compare noise multipliers before choosing one."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from rpdp.cli import budget_source, options, runs_text
from rpdp.cli.budget_source import read_source, refuse_unused
from rpdp.cli.output import notes, print_json, print_table, refuse_overwriting, say, say_line
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.accounting import Accountant, Schedule
    from rpdp.budgets import BudgetTable
    from rpdp.planning import FrontierPoint, LifetimeAllowances
    from rpdp.report import FigurePage

DEFAULT_NOISE_MULTIPLIERS = (0.7, 0.95, 1.25, 1.7, 2.2, 3.0, 4.0, 5.3, 7.0, 9.5, 12.5, 17.0, 22.0, 30.0)

_FROM_REAL_BUDGETS = (
    "note: the promise does not cover a σ chosen by looking at real budgets, and a plan made from them with --at-knee "
    "says so; declare a distribution (--distribution, --records) to choose from, beside --budgets"
)

_KNEE = "knee: beyond it, more noise costs much more compute and adds little signal. `rpdp plan --at-knee` takes it."


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
    share: Annotated[
        str | None,
        typer.Option(
            "--share",
            help="The share of lifetime budgets that one run may take: how many such runs fit? Several, such as "
            "0.2,0.05, are compared at one σ.",
        ),
    ] = None,
    account: runs_text.KindOfAccount = None,
    lifetime_delta: runs_text.LifetimeDelta = None,
    accountant: options.AccountantOption = "pld",
    figure: Annotated[Path | None, typer.Option("--figure", help="Also write the figure to this HTML file.")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Compare noise multipliers: what each costs, and how much signal it gives.

    More noise lets every record be drawn more often for the same budget. The knee marks where more noise stops paying
    off; `rpdp plan --at-knee` takes it. Nothing is planned here. With --share a run takes that share of every lifetime
    budget, and the table says how many such runs fit; several shares are compared with each other.

    Example: `rpdp frontier -T 15 -t 50 --participations 8 -d 1e-4 --distribution ThreeLevels -n 4000`
    """
    schedule = options.schedule_of(rounds, local_steps, participation, max_participations, participations)
    chosen = options.accountant_of(accountant)
    if figure is not None and figure.suffix != ".html":
        raise InputError(f"--figure {figure}: the name of the figure must end in .html")
    refuse_overwriting([figure], force=force)
    source = read_source(budgets, distribution, records, parameters, settings)
    refuse_unused({"--account": account, "--lifetime-delta": lifetime_delta}, share, "--share")
    shares = () if share is None else options.fractions_of("--share", share)
    terms = None if share is None else runs_text.LifetimeTerms.of(account, lifetime_delta, delta)
    compared = NoiseRange(schedule, source.public, delta, chosen, noise_multipliers)
    if terms is not None and len(shares) > 1:
        shown: _Compared = _Shares(compared, shares, terms)
    else:
        lifetime = None if terms is None else unused(source.public, shares[0], terms)
        shown = _Noise(replace(compared, lifetime=lifetime))
    if figure is not None:
        from rpdp.report import write_figure

        write_figure(shown.figure(), figure)
    note = None if source.is_declared else _FROM_REAL_BUDGETS
    file = None if figure is None else str(figure)
    if as_json:
        print_json({**shown.facts(), "covered": source.is_declared, "note": note, "figure": file})
        return
    shown.show()
    if note is not None:
        say(note, style="yellow")
    if file is not None:
        say_line(f"figure: {file}")


def unused(budgets: BudgetTable, share: float, terms: runs_text.LifetimeTerms) -> LifetimeAllowances:
    """What one run that takes a share, and all such runs, may take of new accounts."""
    from rpdp.ledger import unused_accounts
    from rpdp.planning import Allowance

    return unused_accounts(budgets, Allowance(share=share), account=terms.account, lifetime_delta=terms.lifetime_delta)


@dataclass(frozen=True)
class NoiseRange:
    """The noise multipliers to compare, and what they are compared for."""

    schedule: Schedule
    budgets: BudgetTable
    delta: float
    accountant: Accountant
    noise_multipliers: str | None
    lifetime: LifetimeAllowances | None = None
    """What one run, and all runs, may take of lifetime budgets; None if one run takes all of them."""

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise multipliers, rising."""
        if self.noise_multipliers is None:
            return DEFAULT_NOISE_MULTIPLIERS
        return tuple(sorted(set(options.numbers_of("--noise-multipliers", self.noise_multipliers))))

    def points(self) -> tuple[list[FrontierPoint], int]:
        """All points by rising σ, with a progress bar on a terminal, and the index of the knee."""
        from rich.progress import track

        from rpdp.planning import frontier, knee

        sigmas = self.sigmas
        points = frontier(
            self.schedule,
            self.budgets.per_record().epsilon if self.lifetime is None else self.lifetime,
            delta=self.delta,
            noise_multipliers=sigmas,
            accountant=self.accountant,
        )
        quiet = not notes.is_terminal
        listed = list(track(points, "pricing", len(sigmas), console=notes, transient=True, disable=quiet))
        return listed, knee(listed)


class _Compared(Protocol):
    """What is compared, in its three forms."""

    def facts(self) -> dict[str, Any]: ...

    def show(self) -> None: ...

    def figure(self) -> FigurePage: ...


class _Noise:
    """Noise multipliers, at one share of the budgets."""

    def __init__(self, compared: NoiseRange) -> None:
        self._compared = compared
        self._points, self._best = compared.points()

    def facts(self) -> dict[str, Any]:
        runs = () if self._compared.lifetime is not None else ("runs_in_full", "runs_in_part")
        points = [{name: value for name, value in asdict(one).items() if name not in runs} for one in self._points]
        return {"points": points, "knee": self._best}

    def figure(self) -> FigurePage:
        from rpdp.report import frontier_figure

        return frontier_figure(self._points, self._best)

    def show(self) -> None:
        compared = self._compared
        columns = [
            "σ",
            "cost at\N{NO-BREAK SPACE}q=1",
            "batch Σq",
            "gradients per round",
            "signal Σq/σ",
            "left out",
            "always in",
            *(["runs in full"] if compared.lifetime is not None else []),
        ]
        rows = [_row(point, knee=index == self._best) for index, point in enumerate(self._points)]
        say(f"{compared.schedule.describe()} · δ = {compared.delta:g} · {len(compared.budgets):,} records")
        print_table("Sampling against noise", columns, rows)
        say(_KNEE)


class _Shares:
    """Shares of the budgets, at one noise multiplier: the number of runs against what each of them gets."""

    def __init__(self, compared: NoiseRange, shares: Sequence[float], terms: runs_text.LifetimeTerms) -> None:
        from rpdp.planning import PublicPlan

        if len(compared.sigmas) != 1:
            raise InputError("several shares are compared at one σ: give it with --noise-multipliers 10")
        public = PublicPlan(
            compared.schedule,
            noise_multiplier=compared.sigmas[0],
            delta=compared.delta,
            clip_norm=1.0,  # probabilities depend neither on L nor on B
            normaliser=1.0,
            weights=1.0,
            accountant=compared.accountant,
        )
        self._planned = [
            runs_text.PlannedRuns.count(public, compared.budgets, share, terms)
            for share in sorted(set(shares), reverse=True)
        ]

    def facts(self) -> dict[str, Any]:
        return {"shares": [one.facts() for one in self._planned]}

    def figure(self) -> FigurePage:
        from rpdp.report import runs_figure

        return runs_figure({f"{one.share:g} of a lifetime": one.found for one in self._planned})

    def show(self) -> None:
        runs_text.show_shares(self._planned)


def _row(point: FrontierPoint, *, knee: bool) -> list[str]:
    return [
        f"{point.noise_multiplier:.3g}{' ← knee' if knee else ''}",
        f"{point.largest_cost:.3g}",
        f"{point.expected_batch:.1f}",
        f"{point.gradients_per_round:,.0f}",
        f"{point.signal_to_noise:.2f}",
        f"{point.left_out:,}",
        f"{point.in_every_batch:,}",
        *([] if point.runs_in_full is None else [f"{point.runs_in_full:,}"]),
    ]
