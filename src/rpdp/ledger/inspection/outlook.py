"""The outlook of a run at one silo: who can take part, who cannot and why, what signal is left, how many runs fit.

It is read from the real ledger before anything is held, and it is the one source of what `rpdp doctor`, `rpdp train`,
`rpdp silo check`, an agent's log and a silo's report say about it, in the same words. It rests on every account, so it
stays with the silo; nothing that a server is answered depends on it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.display import counts_repr
from rpdp.planning import LifetimeAllowances, assign_allowed, fitting_runs, floor_of_signal, signal_of_run, words_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable
    from rpdp.ledger.ledger import Ledger
    from rpdp.ledger.silo_accounts import SiloAccounts
    from rpdp.planning import Allowance, Allowances, FittingRuns, Planner, PublicPlan, Purpose, SiloPlan


class Obstacle(IntEnum):
    """Why a record takes part in a run with a smaller q than its unused budget allows, or not at all."""

    NONE = 0
    TOO_SMALL = 1
    WITHDRAWN = 2
    HELD = 3
    RESERVED = 4
    USED = 5
    OTHER_PURPOSE = 6


_WORDS = {
    Obstacle.USED: "used up by earlier runs",
    Obstacle.HELD: "held by another run",
    Obstacle.RESERVED: "reserved for other purposes",
    Obstacle.WITHDRAWN: "withdrawn",
    Obstacle.TOO_SMALL: "budget too small for this plan",
    Obstacle.OTHER_PURPOSE: "kept for runs of another purpose",
}


@dataclass(frozen=True)
class Outlook:
    """What a run, and more runs like it, would find at a silo now. Sensitive.

    Attributes:
        silo: The name of the silo.
        records: The number of records in its table.
        in_full: How many can take part as their unused budgets would let them.
        reduced: How many can take part with a smaller probability or weight.
        left_out: How many cannot take part.
        why_reduced: How many are reduced for each reason.
        why_left_out: How many are left out for each reason.
        signal_to_noise: Σq/σ of a step now; of a release of sums, Σw/s.
        unused_signal_to_noise: Σq/σ of a step if nothing had ever been booked, without those who have withdrawn.
        run_signal: The signal of the whole run, Σq/σ·√K.
        unused_run_signal: The same if nothing had ever been booked.
        runs_in_full: In how many runs like this one, this one included, all take part in full that can do so now.
        runs_above_floor: How many runs like this one, this one included, have a signal above the floor.
        runs_allowed: How many more runs the silo's policy admits; None if it states no limit.
        purpose: What the run is for.
    """

    silo: str
    records: int
    _: KW_ONLY
    in_full: int
    reduced: int
    left_out: int
    why_reduced: Mapping[str, int]
    why_left_out: Mapping[str, int]
    signal_to_noise: float
    unused_signal_to_noise: float
    run_signal: float
    unused_run_signal: float
    runs_in_full: int
    runs_above_floor: int
    runs_allowed: int | None = None
    purpose: Purpose = "training"

    @property
    def missing(self) -> int:
        """How many are left out although their unused budgets would let them in."""
        never = (Obstacle.TOO_SMALL, Obstacle.OTHER_PURPOSE)
        return self.left_out - sum(self.why_left_out.get(_WORDS[reason], 0) for reason in never)

    @property
    def floor(self) -> float:
        """The floor of the signal of the whole run; see `floor_of_signal`."""
        return floor_of_signal(self.unused_run_signal)

    @property
    def is_noise(self) -> bool:
        """Whether the run would be noise at this silo: its signal is below the floor."""
        return self.run_signal < self.floor

    def facts(self) -> dict[str, Any]:
        """The outlook for JSON."""
        return {**asdict(self), "floor": self.floor, "is_noise": self.is_noise}

    def lines(self) -> list[str]:
        """The outlook in words."""
        return [f"silo {self.silo}: {line}" for line in (self._who(), self._signal(), self._more())]

    def _who(self) -> str:
        part = f"{self.in_full:,} of {_records(self.records)} can take part in full"
        reduced = f"{self.reduced:,} reduced{_reasons(self.why_reduced)}"
        return f"{part}, {reduced}, {self.left_out:,} not at all{_reasons(self.why_left_out)}"

    def _signal(self) -> str:
        words = words_for(self.purpose)
        noise = f", below the floor of {self.floor:.3g}: the run would be noise" if self.is_noise else ""
        return (
            f"signal to noise {words.signal} {self.signal_to_noise:.3g} in a {words.step}, "
            f"{self.unused_signal_to_noise:.3g} if nothing had been used; {self.run_signal:.3g} in the whole run{noise}"
        )

    def _more(self) -> str:
        allowed = "" if self.runs_allowed is None else f"; the policy admits {_count(self.runs_allowed, 'more run')}"
        return (
            f"runs like this one that fit, this one included: {self.runs_in_full:,} in full, {self.runs_above_floor:,} "
            f"above the floor of the signal{allowed}"
        )


@dataclass(frozen=True)
class RecordOutlooks:
    """The outlook of every record, in the order of the silo's table. Sensitive.

    Attributes:
        plan: The plan that the run would hold now.
        accounts: The accounts as they are now.
        left: What the run may take of them.
        reasons: For each record, the number of a `Obstacle`.
        runs: How many runs like this one fit, and what one would take if nothing had been booked.
    """

    plan: SiloPlan
    accounts: SiloAccounts
    left: Allowances
    reasons: NDArray[np.uint8]
    runs: FittingRuns

    __repr__ = counts_repr

    def __len__(self) -> int:
        return len(self.plan)

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """Who cannot take part."""
        return np.asarray(self.plan.q == 0.0)

    @property
    def reduced(self) -> NDArray[np.bool_]:
        """Who can take part, with a smaller probability or weight than an unused budget would give."""
        return np.asarray((self.plan.q > 0.0) & (self.plan.q < self.runs.q))

    def summary(self, silo: str, runs_allowed: int | None = None) -> Outlook:
        """The outlook in numbers."""
        signal, public = self.plan.signal_to_noise, self.plan.public
        unused = float(self.runs.q[~self.accounts.accounts.withdrawn].sum()) / public.noise_multiplier
        floor = floor_of_signal(signal_of_run(unused, public.schedule))
        left_out, reduced = int(self.left_out.sum()), int(self.reduced.sum())
        return Outlook(
            silo,
            len(self),
            in_full=len(self) - left_out - reduced,
            reduced=reduced,
            left_out=left_out,
            why_reduced=self._counts(self.reduced),
            why_left_out=self._counts(self.left_out),
            signal_to_noise=signal,
            unused_signal_to_noise=unused,
            run_signal=signal_of_run(signal, public.schedule),
            unused_run_signal=signal_of_run(unused, public.schedule),
            runs_in_full=self.runs.runs_in_full,
            runs_above_floor=self.runs.runs_with_signal(floor / signal_of_run(1.0, public.schedule)),
            runs_allowed=runs_allowed,
            purpose=public.purpose,
        )

    def _counts(self, rows: NDArray[np.bool_]) -> dict[str, int]:
        counts = {words: int((self.reasons[rows] == reason).sum()) for reason, words in _WORDS.items()}
        return {words: count for words, count in counts.items() if count}


def record_outlooks(
    ledger: Ledger,
    budgets: BudgetTable,
    public: PublicPlan,
    allowance: Allowance,
    lifetime_delta: float,
    planner: Planner = assign_allowed,
    serves: NDArray[np.bool_] | None = None,
) -> RecordOutlooks:
    """Find the outlook of a new run of this plan, from the ledger as it is now. Nothing is booked.

    Args:
        ledger: The silo's ledger, open for reading or writing. A hold that has expired counts as ended.
        budgets: The silo's table.
        public: The plan of the run.
        allowance: What the silo's policy lets one run take.
        lifetime_delta: The δ of the silo's policy.
        planner: How budgets become probabilities or weights.
        serves: Which records serve runs of this purpose; by default all.
    """

    def of(accounts: SiloAccounts, within: Allowance) -> Allowances:
        found = accounts.allowances(within)
        return found if serves is None else replace(found, amount=np.where(serves, found.amount, 0.0))

    expired = ledger.runs.expired(ledger.clock())
    now = ledger.silo_accounts(budgets, lifetime_delta, without=expired)
    one_run, left = of(now, allowance), of(now, replace(allowance, share=1.0))
    plan = planner(public, budgets.ids, one_run)
    unused = LifetimeAllowances(of(now.unused(), allowance), left)
    runs = fitting_runs(public, unused, ids=budgets.ids, planner=planner)
    found = RecordOutlooks(plan, now, one_run, np.zeros(len(plan), dtype=np.uint8), runs)
    short = np.flatnonzero(found.left_out | found.reduced)
    if short.size:
        held = [admission.run for admission in ledger.runs.held()]
        freed = ledger.silo_accounts(budgets, lifetime_delta, without=held) if held else now
        everything = replace(allowance, reserved={})
        without_hold = of(freed, allowance).rows(short)
        without_reserve = of(now, everything).rows(short)
        q, ids = plan.q[short], budgets.ids.take(short)
        reasons = np.full(short.size, Obstacle.USED, dtype=np.uint8)
        reasons[planner(public, ids, without_reserve).q > q] = Obstacle.RESERVED
        reasons[planner(public, ids, without_hold).q > q] = Obstacle.HELD
        reasons[now.accounts.withdrawn[short]] = Obstacle.WITHDRAWN
        reasons[runs.q[short] == 0.0] = Obstacle.TOO_SMALL
        if serves is not None:
            reasons[~serves[short]] = Obstacle.OTHER_PURPOSE
        found.reasons[short] = reasons
    return found


def outlook_lines(outlooks: Sequence[Outlook]) -> list[str]:
    """The outlooks of several silos in words."""
    return [line for outlook in outlooks for line in outlook.lines()]


def _reasons(counts: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{count:,} {words}' for words, count in counts.items())})" if counts else ""


def _records(count: int) -> str:
    return _count(count, "record")


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
