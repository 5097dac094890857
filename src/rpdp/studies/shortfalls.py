"""Shortfalls: records that earlier runs and withdrawals exclude from a run, or reduce, before anything is admitted.

This is for the data steward. It reads every account, so it stays with the silo; none of it reaches the server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rpdp.errors import PrivacyRefusal
from rpdp.ledger.record_accounts import RecordAccounts
from rpdp.planning import Status, assign_allowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rpdp.accounting import Schedule
    from rpdp.federation import Silo
    from rpdp.ledger import Ledger
    from rpdp.planning import Allowances, SiloPlan
    from rpdp.studies.building import PreparedRun

    Numbers = NDArray[np.float64]


_RAISE = "in the ledger (`rpdp ledger raise`) and in the budget file"
_NO_KEY = "nothing else: without a steward's key, budgets in this ledger cannot be raised"


@dataclass(frozen=True)
class Shortfall:
    """The records of a silo that this run draws less often than unused lifetime budgets would allow. Sensitive.

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
    unused = RecordAccounts(balances.epsilon, balances.delta, balances.order, terms=balances.terms)
    stated = replace(ledger.terms, lifetime_delta=silo.policy.lifetime_delta).per_record(silo.budgets)
    full = unused.allowances(allowance, ledger.terms.own_delta, stated)
    wanted = assign_allowed(plan.public, plan.ids, full, estimator=plan.estimator)
    out, fewer = (plan.q == 0.0) & (wanted.q > 0.0), (plan.q > 0.0) & (plan.q < wanted.q)
    gone = out & balances.withdrawn
    no_delta = out & ~gone & (plan.status == Status.DELTA_TOO_SMALL)
    no_budget = out & ~gone & ~no_delta
    budget = unused.lifetime(stated)[0]
    can_raise = ledger.steward is not None
    said = [
        _of_withdrawn(int(gone.sum())),
        _of_delta(int(no_delta.sum()), can_raise=can_raise),
        _of_left_out(_Short(no_budget, left, budget, plan, wanted, can_raise)),
        _of_fewer(_Short(fewer, left, budget, plan, wanted, can_raise)),
    ]
    remarks = tuple(f"silo {silo.name}: {text}" for text in said if text)
    return Shortfall(silo.name, int(out.sum()), int(fewer.sum()), remarks)


class _Short:
    """Some records, what this run may take of them, and what it would take of their unused accounts. Sensitive."""

    def __init__(
        self,
        rows: NDArray[np.bool_],
        left: Allowances,
        budget: Numbers,
        plan: SiloPlan,
        wanted: SiloPlan,
        can_raise: bool,
    ) -> None:
        self.count = int(rows.sum())
        self.public = plan.public
        self.q, self.wanted = plan.q[rows], wanted.q[rows]
        self.left = replace(
            left,
            lifetime=left.lifetime[rows],
            amount=left.amount[rows],
            delta=left.delta[rows],
            order=left.order[rows],
        )
        self._budget, self._missing = budget[rows], np.maximum(wanted.cost - left.amount, 0.0)[rows]
        self._can_raise = can_raise

    @property
    def amount_text(self) -> str:
        """What is left: ε of sum accounts, a share of B of Rényi accounts, of which no ε can be split off."""
        if (self.left.order == 0).all():
            return f"ε = {_range(self.left.amount)}"
        share = np.divide(self.left.amount, self._budget, out=np.zeros(self.count), where=self._budget > 0.0)
        return f"{_range(100.0 * share)} % of the lifetime budget"

    @property
    def raise_text(self) -> str:
        """The raise that would help: B of a Rényi account rises by as much as ε."""
        if not self._can_raise:
            return _NO_KEY
        return f"budgets raised by ε = {_range(self._missing)}, {_RAISE}"

    def rounds_for(self, wanted: Numbers) -> str | None:
        """Return the largest reduced number of rounds at which each record reaches this probability at the same σ."""
        columns = [self.left.amount, self.left.delta, self.left.order.astype(np.float64), wanted]
        _, one_of_each = np.unique(np.stack(columns), axis=1, return_index=True)
        kinds = replace(
            self.left,
            lifetime=self.left.lifetime[one_of_each],
            amount=self.left.amount[one_of_each],
            delta=self.left.delta[one_of_each],
            order=self.left.order[one_of_each],
        )
        names = pa.chunked_array([[str(row) for row in one_of_each]])

        def suffices(rounds: int) -> bool:
            shorter = replace(self.public, schedule=_shorter(self.public.schedule, rounds))
            return bool((assign_allowed(shorter, names, kinds).q >= wanted[one_of_each]).all())

        low, high = 0, self.public.schedule.rounds  # invariant: `high` rounds are too many
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if suffices(middle) else (low, middle)
        if low == 0:
            return None
        exactly = _shorter(self.public.schedule, low).participations
        return f"rounds = {low}" + ("" if exactly is None else f" (participations = {exactly})")


def _of_withdrawn(count: int) -> str:
    if not count:
        return ""
    return f"{_records(count)} withdrawn; never drawn again. Remove them from the data and the budget file."


def _of_delta(count: int, *, can_raise: bool) -> str:
    if not count:
        return ""
    raised = f"δ raised, {_RAISE}" if can_raise else _NO_KEY
    return f"{_records(count)} with no δ left; not drawn in this run. For all of them to take part: {raised}."


def _of_left_out(short: _Short) -> str:
    if not short.count:
        return ""
    anything = np.full(short.count, np.finfo(np.float64).tiny)
    rounds = short.rounds_for(anything) if short.left.amount.min() > 0.0 else None
    way = f"With {rounds} all of them could take part" if rounds else "Fewer rounds do not help"
    why = f"with less left ({short.amount_text}) than any part in {short.public.schedule.rounds} rounds costs"
    return f"{_records(short.count)} {why}; not drawn in this run. {way}; or {short.raise_text}."


def _of_fewer(short: _Short) -> str:
    if not short.count:
        return ""
    rounds = short.rounds_for(short.wanted)
    way = f"With {rounds} a step would draw them as often" if rounds else "Fewer rounds do not make up for that"
    return (
        f"{_records(short.count)} with less left ({short.amount_text}) than the allowance of one run; drawn less "
        f"often, with q = {short.q.mean():.3g} instead of {short.wanted.mean():.3g} on average. {way}; or "
        f"{short.raise_text}."
    )


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


def _range(values: Numbers) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} – {high}"
