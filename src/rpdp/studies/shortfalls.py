"""Shortfalls: what earlier runs and withdrawals have left for a run, before anything is admitted, and what would help.

This is for the data steward. It reads every account, so it stays with the silo; none of it reaches the server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rpdp.errors import PrivacyRefusal
from rpdp.federation.silo_outlook import runs_allowed, silo_record_outlooks
from rpdp.ledger.inspection.outlook import Obstacle
from rpdp.planning import Status, assign_allowed, floor_of_signal, signal_of_silos

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rpdp.accounting import Schedule
    from rpdp.federation import Silo
    from rpdp.ledger import Ledger
    from rpdp.ledger.inspection.outlook import Outlook, RecordOutlooks
    from rpdp.planning import PublicPlan
    from rpdp.studies.building import PreparedRun

    Numbers = NDArray[np.float64]


_RAISE = "in the ledger (`rpdp ledger raise`) and in the budget file"
_NO_KEY = "nothing else: without a steward's key, budgets in this ledger cannot be raised"


@dataclass(frozen=True)
class Shortfall:
    """What a run finds at a silo before anything is held, and what would let more of its records in. Sensitive.

    Attributes:
        outlook: Who can take part, the signal that is left, how many more runs fit.
        remarks: For the records that take part less than unused budgets would let them: what would change that.
    """

    outlook: Outlook
    remarks: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """The shortfall for JSON."""
        return {**self.outlook.facts(), "remarks": list(self.remarks)}


def find_shortfalls(built: PreparedRun, ledgers: Mapping[str, Ledger]) -> list[Shortfall]:
    """Return the shortfall of every silo before this run."""
    return [_shortfall(silo, ledgers[silo.name], built.public) for silo in built.silos]


def require_full(found: Sequence[Shortfall]) -> None:
    """Refuse a run in which some record cannot take part as its full budget allows."""
    short = [one for one in found if one.outlook.missing or one.outlook.reduced]
    if short:
        counts = "; ".join(
            f"silo {one.outlook.silo}: {one.outlook.missing:,} left out, {one.outlook.reduced:,} reduced"
            for one in short
        )
        remarks = " ".join(remark for one in short for remark in one.remarks)
        raise PrivacyRefusal(
            f"--strict: not every record can take part as its full lifetime budget allows ({counts}). {remarks} "
            "Nothing was reserved, and nothing was sent to the server"
        )


def require_signal(found: Sequence[Shortfall]) -> None:
    """Refuse a run that would be noise, judged by what the ledgers have left.

    This is for whoever holds the ledgers, before anybody else hears of the run. It must never decide what a server is
    answered: that would show what is left in the accounts.
    """
    outlooks = [one.outlook for one in found]
    signal = signal_of_silos(outlook.run_signal for outlook in outlooks)
    floor = floor_of_signal(signal_of_silos(outlook.unused_run_signal for outlook in outlooks))
    if signal < floor:
        by_silo = ", ".join(f"{outlook.silo}: {outlook.run_signal:.3g}" for outlook in outlooks)
        records = sum(outlook.records for outlook in outlooks)
        left = sum(outlook.in_full + outlook.reduced for outlook in outlooks)
        raise PrivacyRefusal(
            f"this run would be noise: its signal over all silos is {signal:.3g} ({by_silo}), below the floor of "
            f"{floor:.3g}, and {left:,} of {records:,} records can take part. It would spend what is left and learn "
            "next to nothing. Nothing was reserved, and nothing was sent to the server. Use records or budgets that "
            "are not used up, or run it all the same with --even-if-noise"
        )


def _shortfall(silo: Silo, ledger: Ledger, public: PublicPlan) -> Shortfall:
    found = silo_record_outlooks(silo, ledger, public)
    accounts, out, reasons = found.accounts, found.left_out, found.reasons
    can_raise = ledger.steward is not None
    budget = accounts.accounts.lifetime(accounts.stated)[0]
    used = reasons == Obstacle.USED
    no_delta = out & used & (found.plan.status == Status.DELTA_TOO_SMALL)

    def short(rows: NDArray[np.bool_]) -> _Short:
        return _Short(rows, found, budget, can_raise)

    said = [
        _of_withdrawn(int((out & (reasons == Obstacle.WITHDRAWN)).sum())),
        _of_held(int((reasons == Obstacle.HELD).sum())),
        _of_reserved(int((reasons == Obstacle.RESERVED).sum())),
        _of_delta(int(no_delta.sum()), can_raise=can_raise),
        _of_left_out(short(out & used & ~no_delta)),
        _of_fewer(short(found.reduced & used)),
    ]
    remarks = tuple(f"silo {silo.name}: {text}" for text in said if text)
    return Shortfall(found.summary(silo.name, runs_allowed(silo)), remarks)


class _Short:
    """Some records, what this run may take of them, and what it would take of their unused accounts. Sensitive."""

    def __init__(self, rows: NDArray[np.bool_], found: RecordOutlooks, budget: Numbers, can_raise: bool) -> None:
        self.count = int(rows.sum())
        self.public = found.plan.public
        self.q, self.wanted = found.plan.q[rows], found.runs.q[rows]
        self.left = found.left.rows(rows)
        self._budget, self._missing = budget[rows], np.maximum(found.runs.cost - found.left.amount, 0.0)[rows]
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
        kinds = self.left.rows(one_of_each)
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


def _of_held(count: int) -> str:
    if not count:
        return ""
    return f"{_records(count)} held by a run that has not begun; free again if it is cancelled (`rpdp ledger cancel`)."


def _of_reserved(count: int) -> str:
    if not count:
        return ""
    return f"{_records(count)} with the rest reserved for other purposes (`reserved` in the silo's policy)."


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
