"""Replaying accounts and rounds from raw events alone, without using any sum that the ledger keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, get_args

import numpy as np

from rpdp.accounting.renyi_filter import is_mapped_order
from rpdp.ledger.account import Canceller
from rpdp.ledger.inspection.account_chunks import IndexedAction
from rpdp.ledger.record_accounts import RecordAccounts, is_overbooked
from rpdp.ledger.stewardship.actions import KINDS
from rpdp.ledger.store.chain import SUCCEED, Event
from rpdp.ledger.store.fixed_point import DELTA_TOLERANCE, fits_amount, fits_delta
from rpdp.ledger.store.run_book import Admission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.store.record_store import Chunk
    from rpdp.ledger.store.sampling_classes import Classes


@dataclass(frozen=True)
class _Booking:
    """A reservation, or its return, according to the event and classes of the reservation."""

    admission: Admission
    classes: Classes
    sign: int = 1


_Entry: TypeAlias = "IndexedAction | _Booking | Event"
"""What changes an account: a steward action, a reservation or its return, an enrolment, a succession."""


def replay_accounts(ledger: LedgerBase, progress: Progress) -> Iterator[str]:
    """Replay every record's budget and bookings, event by event, and compare them with the ledger's totals."""
    history: list[tuple[int, _Entry]] = [(event.seq, event) for event in ledger.chain.events("enrol", SUCCEED)]
    for action_seq, action in zip(_seqs(ledger, *KINDS), ledger.booked_actions(), strict=True):
        action.require_signature(ledger.steward)
        history.append((action_seq, IndexedAction(action)))
    admissions = ledger.runs.admissions()
    for admission in admissions:
        classes = ledger.runs.members.of(admission)
        history.append((admission.seq, _Booking(admission, classes)))
        cancelled = ledger.runs.cancellation(admission.run)
        if cancelled is not None:
            history.append((cancelled.seq, _Booking(admission, classes, sign=-1)))
    history.sort(key=lambda entry: entry[0])
    drawn = {admission.seq: 0 for admission in admissions}
    for chunk in ledger.records.chunks:
        yield from _replay_chunk(ledger, chunk, history, drawn)
        progress("replaying accounts", chunk.rows.stop, len(ledger.records))
    for admission in admissions:
        found = drawn[admission.seq]
        if found != admission.drawn:
            yield f"run {admission.run!r}: {found:,} records can be drawn, but its event says {admission.drawn:,}"


def _seqs(ledger: LedgerBase, *kinds: str) -> list[int]:
    return [event.seq for event in ledger.chain.events(*kinds)]


def _replay_chunk(
    ledger: LedgerBase, chunk: Chunk, history: list[tuple[int, _Entry]], drawn: dict[int, int]
) -> Iterator[str]:
    hashes = ledger.records.hashes(chunk)
    epsilon, delta = ledger.records.budgets(chunk)
    first = ledger.records.orders(chunk, before=chunk.segment + 1)
    replayed = RecordAccounts(epsilon, delta, first, terms=ledger.terms)
    inherited = ledger.records.carried(chunk)
    if ledger.predecessor is None or chunk.segment > 1:  # a successor keeps orders that budgets of earlier days gave
        yield from _first_orders(chunk, replayed)
    for seq, entry in history:
        if seq < chunk.segment:
            continue
        if isinstance(entry, IndexedAction):
            entry.apply(hashes, replayed)
            continue
        if isinstance(entry, Event):
            if entry.kind == SUCCEED:
                replayed.booked, replayed.booked_delta = (units.copy() for units in inherited)
            else:
                yield from _enrol(ledger, chunk, entry, replayed)
            continue
        index = ledger.runs.members.index(entry.admission.seq, chunk, entry.classes)
        if index is None:
            continue
        drawn[seq] = drawn.get(seq, 0) + int((index > 0).sum())
        yield from _book(entry, index, chunk, replayed)
    totals = ledger.records.totals(chunk)
    wrong = (totals[0] != replayed.booked) | (totals[1] != replayed.booked_delta)
    if wrong.any():
        yield f"{int(wrong.sum()):,} records of chunk {chunk.key}: their totals differ from the sum of their bookings"
    overbooked = is_overbooked(*replayed.lifetime(), replayed.booked, replayed.booked_delta)
    overbooked &= (replayed.booked != inherited[0]) | (replayed.booked_delta != inherited[1])  # by this ledger itself
    if (overbooked & ~_was_changed(history, hashes)).any():
        yield f"records of chunk {chunk.key} are booked beyond their budget, although no steward lowered it"


def _book(entry: _Booking, index: NDArray[np.int64], chunk: Chunk, replayed: RecordAccounts) -> Iterator[str]:
    """Add a booking to replayed accounts, or return it, and check that it was within the accounts at that moment."""
    takes_part, classes = index > 0, entry.classes
    if entry.sign > 0:
        budget, delta = replayed.lifetime()
        cost = classes.cost[index]
        fits = fits_amount(cost, budget, replayed.booked)
        fits &= fits_delta(classes.delta[index], delta, replayed.booked_delta)
        if entry.admission.share is not None:
            fits &= cost <= entry.admission.share * budget
            fits &= classes.delta[index] <= entry.admission.share * delta * (1.0 + 2.0 * DELTA_TOLERANCE)
        over = takes_part & (~fits | replayed.withdrawn)
        run = entry.admission.run
        if over.any():
            yield f"run {run!r} booked {int(over.sum()):,} records of chunk {chunk.key} beyond their budget in force"
        if (takes_part & (classes.order[index] != replayed.order)).any():
            yield f"run {run!r} booked records of chunk {chunk.key} at another order than they were enrolled with"
    replayed.booked += entry.sign * np.where(takes_part, classes.booked[index], 0)
    replayed.booked_delta += entry.sign * np.where(takes_part, classes.booked_delta[index], 0)


def _first_orders(chunk: Chunk, replayed: RecordAccounts) -> Iterator[str]:
    """Check the orders with which records were added: those of the public map, or none."""
    if replayed.order.any() and not is_mapped_order(replayed.order, replayed.epsilon, replayed.delta).all():
        yield f"records of chunk {chunk.key} were enrolled at other orders than the public map gives"


def _enrol(ledger: LedgerBase, chunk: Chunk, event: Event, replayed: RecordAccounts) -> Iterator[str]:
    """Enrol records anew as Rényi accounts, and check that nothing of them was booked."""
    orders = ledger.records.orders(chunk, before=event.seq + 1)
    changed = orders != replayed.order
    if (changed & ((replayed.order > 0) | (replayed.booked != 0) | (replayed.booked_delta != 0))).any():
        yield f"event {event.seq} changed accounts of chunk {chunk.key} of which something was booked"
    if not is_mapped_order(orders[changed], replayed.epsilon[changed], replayed.delta[changed]).all():
        yield f"event {event.seq} enrolled records of chunk {chunk.key} at other orders than the public map gives"
    replayed.order = orders


def _was_changed(
    history: list[tuple[int, _Entry]], hashes: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    changed = np.zeros(len(hashes), dtype=bool)
    for _, entry in history:
        if isinstance(entry, IndexedAction):
            entry.mark(hashes, changed)
    return changed


def replay_rounds(ledger: LedgerBase) -> Iterator[str]:
    """Check that rounds are in order, coins follow the plan, and only joined rounds were released.

    A run is committed by its first charge, before its hold expires, or cancelled without any charge: never both.
    """
    runs: dict[str, _Rounds] = {}
    for event in ledger.chain.events():
        if event.kind == "admit":
            if event.run in runs:
                yield f"run {event.run!r} was admitted twice"
            runs[event.run] = _Rounds(Admission.of(event))
        elif event.run:
            if event.run not in runs:
                yield f"event {event.seq}: run {event.run!r} was never admitted"
            else:
                yield from runs[event.run].take(event)


class _Rounds:
    """The state of one run during the replay."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._announced = 0
        self._join = admission.rounds_to_join
        self._is_cancelled = False
        self._joined: set[int] = set()
        self._released: set[int] = set()

    def take(self, event: Event) -> Iterator[str]:
        if self._is_cancelled:
            yield f"event {event.seq}: run {event.run!r} was cancelled before it"
        if event.kind == "cancel":
            yield from self._cancel(event)
        else:
            yield from self._take_round(event)

    def _cancel(self, event: Event) -> Iterator[str]:
        if self._announced:
            yield f"run {event.run!r} was cancelled after round {self._announced} was charged"
        by, expires = event.facts["by"], self._admission.expires
        if by not in get_args(Canceller):
            yield f"event {event.seq}: run {event.run!r} was cancelled by {by!r}"
        if by == "expiry" and (expires is None or event.facts["at"] < expires):
            yield f"run {event.run!r} is booked as expired at {event.facts['at']}, but expires at {expires}"
        self._is_cancelled = True

    def _take_round(self, event: Event) -> Iterator[str]:
        where = f"round {event.round} of run {event.run!r}"
        if event.kind == "release":
            if event.round not in self._joined or event.round in self._released:
                yield f"{where} was released without being joined, or released twice"
            self._released.add(event.round)
            return
        schedule = self._admission.public.schedule
        if self._announced == 0:
            yield from self._commit(event)
        join = self._join
        if not self._announced < event.round <= schedule.rounds:
            yield f"{where} was charged after round {self._announced} of {schedule.rounds}"
        if event.facts["missed"] != event.round - self._announced - 1:
            yield f"{where}: {event.facts['missed']} is not the number of rounds missed before it"
        self._announced = event.round
        if event.joined:
            self._joined.add(event.round)
        cap = schedule.max_participations
        if cap is not None and len(self._joined) > cap:
            yield f"{where} was joined beyond the cap of {cap}"
        if join is not None and bool(event.joined) != (event.round in join):
            yield f"{where}: whether it was joined contradicts the rounds drawn for the run"

    def _commit(self, event: Event) -> Iterator[str]:
        """Check the first charge: within the hold, and with the drawn rounds if the schedule says "exactly k"."""
        schedule, expires = self._admission.public.schedule, self._admission.expires
        if expires is not None and event.facts["at"] >= expires:
            yield f"run {event.run!r} was committed at {event.facts['at']}, but its hold expired at {expires}"
        if self._join is None and "join" in event.facts:
            self._join = tuple(event.facts["join"])
        rounds = set(self._join or ())
        if len(rounds) != (schedule.participations or 0) or not rounds <= set(range(1, schedule.rounds + 1)):
            yield f"run {event.run!r}: the rounds drawn for it are not those of its schedule"
