"""Lifetimes under an adversary who chooses every run after seeing all earlier releases, through the real accounts.

Each record of one ledger is a life of its own: half of them are in the data, half are not (they have accounts, and are
never drawn). In every turn the adversary looks at what each life has released so far and chooses its next run from a
menu of public plans and shares. All lives that chose the same are one run: planned by the real planner from what the
ledger says is left, reserved in the ledger, then released. A release is one number for each local step, drawn or not
plus noise: all that a record of clip norm 1 can show.

The likelihood ratio of everything released is known, so no attack is stronger. For the lives that are in, the mean of
(1 − e^(ε − L))₊ is the δ at ε when a record is removed; for the others that of (1 − e^(ε + L))₊ when one is added (L is
the log-ratio in/out). Both are means of numbers in [0, 1], so a coin with that chance is counted and the bound of
Clopper and Pearson is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from rpdp import PublicPlan, Schedule
from rpdp.planning import Allowance, assign_allowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rpdp import BudgetTable
    from rpdp.ledger import Ledger
    from rpdp.planning import SiloPlan

    Numbers = NDArray[np.float64]
    Booking = Callable[[Ledger, str, SiloPlan, Allowance], None]
    """What happens to a plan: the real one reserves it."""


def _public(schedule: Schedule, sigma: float) -> PublicPlan:
    return PublicPlan(
        schedule, noise_multiplier=sigma, delta=1e-4, clip_norm=1.0, normaliser=1.0, weights=1.0, accountant="rdp"
    )


MENU: tuple[tuple[PublicPlan, Allowance], ...] = (
    (_public(Schedule(4, 2, participation=0.5), 0.8), Allowance(share=0.5)),
    (_public(Schedule(2, 1, participations=1), 1.5), Allowance(share=0.3)),
    (_public(Schedule(6, 4, participations=6), 6.0), Allowance(share=0.15)),
    (_public(Schedule(6, 2, participation=0.4, max_participations=3), 2.0), Allowance(share=0.2)),
    (_public(Schedule(3, 6, participation=1.0), 20.0), Allowance(share=1.0)),
)
"""Little and much noise, coins, caps and fixed rounds, small shares and all that is left."""


@dataclass(frozen=True)
class Lives:
    """What was released of all lives: for each, the log of its likelihood ratio, in over out, and whether it was in."""

    log_ratio: Numbers
    taken: NDArray[np.bool_]
    runs: int


def live(
    ledger: Ledger,
    table: BudgetTable,
    turns: int,
    seed: int,
    *,
    book: Booking,
    persons: NDArray[np.int64] | None = None,
    limit: Callable[[Ledger], Numbers] | None = None,
) -> Lives:
    """Let the adversary choose so many turns for every life.

    Args:
        ledger: The accounts; the records of `table`.
        table: One record for each life, or for each record of a person.
        turns: How many runs each life has.
        seed: Of coins, draws, noise and choices.
        book: What happens to a plan.
        persons: The life of each record; by default its own. A life sees the sum of its records' contributions.
        limit: What a run may take at most of each record, whatever the ledger says: for controls that split it wrongly.
    """
    generator = np.random.default_rng(seed)
    of = np.arange(len(table)) if persons is None else persons
    lives = int(of.max()) + 1
    taken = np.arange(lives) % 2 == 0
    score = np.zeros(lives)
    runs = 0
    for turn in range(turns):
        wanted = _choice(score, turn, generator)
        for number, (public, allowance) in enumerate(MENU):
            here = wanted == number
            left = ledger.left(table, ledger.lifetime_delta, allowance)
            most = left.amount if limit is None else np.minimum(left.amount, limit(ledger))
            mine = replace(left, amount=np.where(here[of], most, 0.0))
            plan = assign_allowed(public, table.ids, mine)
            if not plan.q.any():
                continue
            book(ledger, f"{turn}.{number}", plan, allowance)
            runs += 1
            score += _released(public, plan.q, of, taken, generator)
    return Lives(score, taken, runs)


def reserve(ledger: Ledger, run: str, plan: SiloPlan, allowance: Allowance) -> None:
    """Book a plan as it has to be."""
    ledger.reserve(run, plan, None, allowance)


def _choice(score: Numbers, turn: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Strong runs for lives that are undecided, weak ones for those that are nearly betrayed; some by chance."""
    decided = np.digitize(np.abs(score), [0.3, 1.0, 2.0])
    chosen = np.array([0, 1, 3, 2])[decided] if turn % 3 < 2 else np.array([3, 2, 0, 1])[decided]
    return np.where(generator.random(score.size) < 0.2, generator.integers(len(MENU), size=score.size), chosen)


def _released(
    public: PublicPlan, q: Numbers, of: NDArray[np.int64], taken: NDArray[np.bool_], generator: np.random.Generator
) -> Numbers:
    """The log-ratio of what one run releases of every life; 0 for those that are not in it."""
    drawn = np.flatnonzero(q > 0.0)
    lives, position = np.unique(of[drawn], return_inverse=True)
    chance = np.zeros(lives.size)
    chance[position] = q[drawn]
    records = np.bincount(position)
    schedule, variance = public.schedule, public.noise_multiplier**2
    found = np.zeros(taken.size)
    joined = _rounds_joined(schedule, lives.size, generator)
    for number in range(schedule.rounds * schedule.local_steps):
        active = number < joined * schedule.local_steps
        draws = np.where(taken[lives], generator.binomial(records, chance), 0)
        seen = draws + public.noise_multiplier * generator.standard_normal(lives.size)
        found[lives] += np.where(active, _log_ratio(seen, chance, records, variance), 0.0)
    return found


def _rounds_joined(schedule: Schedule, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    if schedule.participations is not None:
        return np.full(count, schedule.participations)
    assert schedule.participation is not None
    joined = generator.binomial(schedule.rounds, schedule.participation, size=count)
    return joined if schedule.max_participations is None else np.minimum(joined, schedule.max_participations)


def _log_ratio(seen: Numbers, chance: Numbers, records: NDArray[np.int64], variance: float) -> Numbers:
    """Of one step: a mixture over how many of a life's records were drawn, against none."""
    most = int(records.max())
    draws = np.arange(most + 1)
    weights = stats.binom.pmf(draws, records[:, None], chance[:, None])
    return np.asarray(np.log((weights * np.exp((seen[:, None] - draws / 2.0) * draws / variance)).sum(axis=1)))


def delta_between(lives: Lives, epsilon: float, confidence: float, seed: int) -> tuple[float, float]:
    """Bounds on the larger δ at ε, of removing and of adding a record; each bound holds with this confidence."""
    generator = np.random.default_rng(seed)
    least, most, error = 0.0, 0.0, (1.0 - confidence) / 2.0
    for loss in (lives.log_ratio[lives.taken], -lives.log_ratio[~lives.taken]):
        weight = -np.expm1(np.minimum(epsilon - loss, 0.0))
        hits = int((generator.random(loss.size) < weight).sum())
        if hits:
            least = max(least, float(stats.beta.ppf(error, hits, loss.size - hits + 1)))
        most = max(most, float(stats.beta.ppf(1.0 - error, hits + 1, loss.size - hits)))
    return least, most
