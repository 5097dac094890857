"""How many runs lifetime budgets pay for, as tables, sentences and JSON, for `rpdp plan` and `rpdp frontier`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.cli.output import print_table, say
from rpdp.planning.words import words_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.budgets import AccountKind, BudgetTable
    from rpdp.planning import FittingRuns, PublicPlan

KindOfAccount = Annotated[
    str | None,
    typer.Option("--account", help="With --share: the kind of account, renyi (default, as in new ledgers) or sums."),
]
LifetimeDelta = Annotated[
    float | None,
    typer.Option(
        "--lifetime-delta",
        help="δ over all runs for records without one of their own. With --share: by default --delta.",
    ),
]

_MOST_COLUMNS = 4
"""The q of so many budgets fit into a table beside each other."""


@dataclass(frozen=True)
class LifetimeTerms:
    """The accounts that a study is planned with."""

    account: AccountKind
    lifetime_delta: float

    @classmethod
    def of(cls, account: str | None, lifetime_delta: float | None, delta: float) -> LifetimeTerms:
        """What the options say; by default a Rényi account, and the δ of one run for the whole life."""
        from rpdp.budgets import ACCOUNT_KINDS
        from rpdp.checks import require_choice, require_delta

        kept = require_delta("--lifetime-delta", delta if lifetime_delta is None else lifetime_delta)
        chosen = "renyi" if account is None else require_choice("--account", account, ACCOUNT_KINDS)
        return cls("sums" if chosen == "sums" else "renyi", kept)


@dataclass(frozen=True)
class PlannedRuns:
    """The runs of one plan that fit, if each takes at most a share of every lifetime budget."""

    public: PublicPlan
    share: float
    terms: LifetimeTerms
    found: FittingRuns

    @classmethod
    def count(cls, public: PublicPlan, budgets: BudgetTable, share: float, terms: LifetimeTerms) -> PlannedRuns:
        """Count them."""
        from rpdp.ledger import runs_that_fit

        found = runs_that_fit(public, budgets, share=share, account=terms.account, lifetime_delta=terms.lifetime_delta)
        return cls(public, share, terms, found)

    @property
    def runs_above_floor(self) -> int:
        """How many runs in a row have a signal above the floor."""
        from rpdp.planning import floor_of_signal, signal_of_run

        steps = signal_of_run(1.0, self.public.schedule)
        return self.found.runs_with_signal(floor_of_signal(self.found.signal_to_noise() * steps) / steps)

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        found = self.found
        return {
            "share": self.share,
            "account": self.terms.account,
            "lifetime_delta": self.terms.lifetime_delta,
            "noise_multiplier": found.noise_multiplier,
            "runs_in_full": found.runs_in_full,
            "runs_in_part": found.runs_in_part,
            "runs_above_floor": self.runs_above_floor,
            "signal_to_noise": found.signal_to_noise(),
            "groups": [asdict(group) for group in found.groups()],
        }

    def show(self) -> None:
        """Print what each budget pays for, and what all do together."""
        words = words_for(self.public.purpose)
        each, after = f"{words.symbol} in each run", f"{words.symbol} in the run after"
        columns = ["budget ε", "records", each, "runs in full", after]
        rows = [
            [
                _between(group.low, group.high, "{:.4g}"),
                f"{group.records:,}",
                f"{group.mean_q:.4g}",
                _between(group.fewest_runs, group.most_runs, "{:,}"),
                f"{group.mean_last_q:.4g}" if group.mean_last_q else "–",
            ]
            for group in self.found.groups()
        ]
        print_table(f"Runs of this kind that these budgets pay for ({_terms(self)})", columns, rows)
        runs, found = self.found.runs_in_full, self.found
        say(
            f"all together: {runs:,} runs in full with signal to noise {words.signal} "
            f"{found.signal_to_noise():.2f} each, {found.signal_to_noise(runs + 1):.2f} in the run after; "
            f"{self.runs_above_floor:,} runs above the floor of the signal"
        )


def show_shares(planned: Sequence[PlannedRuns]) -> None:
    """Print how the number of runs trades against what each of them gets."""
    first = planned[0]
    public, terms, records = first.public, first.terms, int(first.found.records.sum())
    words = words_for(public.purpose)
    levels = [f"{words.symbol} at ε = {group.low:.4g}" for group in first.found.groups() if group.low == group.high]
    is_short = len(levels) <= _MOST_COLUMNS
    columns = ["share", "runs in full", "above the floor", f"signal {words.signal}", *(levels if is_short else [])]
    rows = [
        [
            f"{one.share:g}",
            f"{one.found.runs_in_full:,}",
            f"{one.runs_above_floor:,}",
            f"{one.found.signal_to_noise():.2f}",
            *(f"{group.mean_q:.4g}" for group in (one.found.groups() if levels and is_short else [])),
        ]
        for one in planned
    ]
    say(f"{public.describe()} · {words.noise} = {public.noise_multiplier:.4g} · {records:,} records")
    print_table(f"Runs against signal ({terms.account} accounts, lifetime δ = {terms.lifetime_delta:g})", columns, rows)


def _terms(planned: PlannedRuns) -> str:
    return (
        f"{planned.share:g} of every lifetime budget a run, {planned.terms.account} accounts, lifetime δ = "
        f"{planned.terms.lifetime_delta:g}"
    )


def _between(low: float, high: float, pattern: str) -> str:
    return pattern.format(low) if low == high else f"{pattern.format(low)} – {pattern.format(high)}"
