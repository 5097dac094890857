"""Shortfalls: records that earlier runs and withdrawals exclude from a run, or reduce, before anything is admitted.

This is for the data steward. It reads every account, so it stays with the silo; none of it reaches the server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import PrivacyRefusal
from rpdp.ledger.record_accounts import RecordAccounts
from rpdp.planning import Status, assign_allowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rpdp.accounting import Schedule
    from rpdp.federation import Silo
    from rpdp.ledger import Ledger
    from rpdp.planning import PublicPlan, SiloPlan
    from rpdp.studies.building import PreparedRun

    Numbers = NDArray[np.float64]


_RAISE = "in the ledger (`rpdp ledger raise`) and in the budget file"
_NO_KEY = "nothing else: without a steward's key, budgets in this ledger cannot be raised"


@dataclass(frozen=True)
class Shortfall:
    """The records of a silo that this run draws less often than their full lifetime budgets allow. Sensitive.

    Attributes:
        silo: The name of the silo.
        left_out: The number of records that sit out, although their full budgets would let them take part.
        reduced: The number of records that take part with a smaller probability.
        remarks: The reasons, and what would let the records take part fully.
    """

    silo: str
    left_out: int
    reduced: int
    remarks: tuple[str, ...]


def find_shortfalls(built: PreparedRun, ledgers: Mapping[str, Ledger]) -> list[Shortfall]:
    """Return the shortfall of every silo before this run."""
    return [_shortfall(silo, ledgers[silo.name], built.plans[silo.name]) for silo in built.silos]


def require_full(found: Sequence[Shortfall]) -> None:
    """Refuse a run in which some record cannot take part as its full budget allows."""
    short = [one for one in found if one.left_out or one.reduced]
    if short:
        counts = "; ".join(f"silo {one.silo}: {one.left_out:,} left out, {one.reduced:,} reduced" for one in short)
        remarks = " ".join(remark for one in short for remark in one.remarks)
        raise PrivacyRefusal(
            f"--strict: not every record can take part as its full lifetime budget allows ({counts}). {remarks} "
            "Nothing was reserved, and nothing was sent to the server"
        )


def _shortfall(silo: Silo, ledger: Ledger, plan: SiloPlan) -> Shortfall:
    balances = ledger.balances(silo.budgets.ids)
    allowance = silo.policy.allowance(plan.public)
    left = ledger.left(silo.budgets, silo.policy.lifetime_delta, allowance)
    unused = RecordAccounts(
        balances.epsilon, balances.delta, balances.order, silos_per_person=balances.silos_per_person
    )
    stated = replace(ledger.terms, lifetime_delta=silo.policy.lifetime_delta).per_record(silo.budgets)
    full = unused.allowances(allowance, ledger.terms.own_delta, stated)
    wanted = assign_allowed(plan.public, plan.ids, full, estimator=plan.estimator)
    out, fewer = (plan.q == 0.0) & (wanted.q > 0.0), (plan.q > 0.0) & (plan.q < wanted.q)
    gone = out & balances.withdrawn
    no_delta = out & ~gone & (plan.status == Status.DELTA_TOO_SMALL)
    no_epsilon = out & ~gone & ~no_delta
    short = np.maximum(wanted.cost - left.amount, 0.0)
    can_raise = ledger.steward is not None
    said = [
        _of_withdrawn(int(gone.sum())),
        _of_delta(left.delta[no_delta], plan.public, can_raise=can_raise),
        _of_epsilon(left.amount[no_epsilon], plan, _raised(short[no_epsilon], can_raise=can_raise)),
        _of_fewer(left.amount[fewer], plan.q[fewer], wanted.q[fewer], plan, _raised(short[fewer], can_raise=can_raise)),
    ]
    remarks = tuple(f"silo {silo.name}: {text}" for text in said if text)
    return Shortfall(silo.name, int(out.sum()), int(fewer.sum()), remarks)


def _of_withdrawn(count: int) -> str:
    if not count:
        return ""
    return f"{_records(count)} withdrawn; never drawn again. Remove them from the data and the budget file."


def _of_delta(left: Numbers, public: PublicPlan, *, can_raise: bool) -> str:
    if not left.size:
        return ""
    most = float(left.min())
    raised = f"δ raised by {public.delta - most:.3g}, {_RAISE}" if can_raise else _NO_KEY
    way = f"With privacy.delta = {_below(most)} all of them could take part; or {raised}."
    if most == 0.0:
        way = f"For all of them to take part: {raised}."
    return (
        f"{_records(left.size)} with less δ left ({_range(left)}) than the run's {public.delta:g}; not drawn in this "
        f"run. {way}"
    )


def _of_epsilon(left: Numbers, plan: SiloPlan, raised: str) -> str:
    if not left.size:
        return ""
    anything = np.full(left.shape, np.finfo(np.float64).tiny)
    rounds = _rounds_for(left, anything, plan) if left.min() > 0.0 else None
    way = f"With {rounds} all of them could take part" if rounds else "Fewer rounds do not help"
    why = f"with less ε left ({_range(left)}) than any part in {plan.public.schedule.rounds} rounds costs"
    return f"{_records(left.size)} {why}; not drawn in this run. {way}; or {raised}."


def _of_fewer(left: Numbers, q: Numbers, wanted: Numbers, plan: SiloPlan, raised: str) -> str:
    if not left.size:
        return ""
    rounds = _rounds_for(left, wanted, plan)
    way = f"With {rounds} a step would draw them as often" if rounds else "Fewer rounds do not make up for that"
    return (
        f"{_records(left.size)} with less left (ε = {_range(left)}) than the lifetime budget; drawn less often, with "
        f"q = {q.mean():.3g} instead of {wanted.mean():.3g} on average. {way}; or {raised}."
    )


def _raised(short: Numbers, *, can_raise: bool) -> str:
    if not short.size or not can_raise:
        return _NO_KEY
    return f"budgets raised by ε = {_range(short)}, {_RAISE}"


def _rounds_for(left: Numbers, wanted: Numbers, plan: SiloPlan) -> str | None:
    """Return the largest reduced number of rounds at which each record reaches its wanted probability at the same σ."""
    pairs = np.unique(np.stack([left, wanted]), axis=1)
    public = plan.public

    def suffices(rounds: int) -> bool:
        shorter = replace(public, schedule=_shorter(public.schedule, rounds))
        return bool((shorter.curve.sampling_probability(pairs[0]) >= pairs[1]).all())

    low, high = 0, public.schedule.rounds  # invariant: `high` rounds are too many
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if suffices(middle) else (low, middle)
    if low == 0:
        return None
    exactly = _shorter(public.schedule, low).participations
    return f"rounds = {low}" + ("" if exactly is None else f" (participations = {exactly})")


def _shorter(schedule: Schedule, rounds: int) -> Schedule:
    """Return the schedule with the same participation over fewer rounds."""
    exactly, cap = schedule.participations, schedule.max_participations
    return replace(
        schedule,
        rounds=rounds,
        participations=None if exactly is None else max(1, exactly * rounds // schedule.rounds),
        max_participations=None if cap is None else min(cap, rounds),
    )


def _records(count: int) -> str:
    return f"{count:,} {'record' if count == 1 else 'records'}"


def _below(value: float) -> str:
    """Return a short number that does not exceed this one, up to the tolerance that plans have for δ."""
    text = f"{value:.3g}"
    return text if float(text) * (1.0 - 1e-12) <= value else f"{value * 0.995:.3g}"


def _range(values: Numbers) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} – {high}"
