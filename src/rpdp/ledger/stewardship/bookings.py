"""What the writer of a ledger books besides runs: ended holds, new records, enrolments, removed updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp.errors import BudgetError
from rpdp.ledger.account import Account
from rpdp.ledger.cached_balances import CachedBalances
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.stewardship.actions import Action
from rpdp.ledger.stewardship.actors import checked_actor
from rpdp.ledger.stewardship.enrolment import write_enrolment
from rpdp.ledger.stewardship.pruning import prune
from rpdp.ledger.stewardship.sharing import SHARED, shared
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.creation import new_records
from rpdp.ledger.store.holds import Cancellation
from rpdp.ledger.store.roster import ABSENT, Roster
from rpdp.ledger.store.run_book import now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.budgets import BudgetTable
    from rpdp.ledger.account import Canceller
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.stewardship.pruning import Updates


class StewardBookings(CachedBalances, Account):
    """The part of a ledger that ends holds and changes which records there are, each in one transaction."""

    def cancel(self, run: str, *, by: Canceller = "server", reason: str = "", actor: str | None = None) -> None:
        """Cancel a run that is held, in one transaction. Cancelling it again changes nothing.

        `actor` is the steward; by default the user of this process. The reason is public, the actor is not.
        """
        with self._turn:
            self._require_writer()
            if self.runs.cancellation(run) is None:
                self._end_holds([run], by, reason, self.clock(), checked_actor(actor) if by == "steward" else None)

    def expire(self) -> None:
        """Book the end of every hold whose expiry has passed, in one transaction."""
        with self._turn:
            self._require_writer()
            moment = self.clock()  # once: a clock that steps back in between must not date the end before the expiry
            expired = self.runs.expired(moment)
            if expired:
                self._end_holds(expired, "expiry", "", moment)

    def uncovered_cancellations(self) -> tuple[str, ...]:
        """Return the runs that the steward cancelled without a public reason, which the promise does not cover."""
        with self.reading():
            ended = [Cancellation.of(event) for event in self.chain.events("cancel")]
        return tuple(one.run for one in ended if not one.is_covered)

    def _end_holds(
        self, runs: Sequence[str], by: Canceller, reason: str, moment: float, actor: str | None = None
    ) -> None:
        with self._writing():
            crash_points.reached("cancel: begun")
            for run in runs:
                self.runs.cancel(run, by, reason, moment, actor)
        crash_points.reached("cancel: committed")
        if self._balances is not None:
            self._read_balances(self._balances)  # after the commit: only now is what was held free again
        self._note_head()
        self.database.shorten_log()

    def add(
        self, budgets: BudgetTable, progress: Progress = silent, *, reason: str = "", actor: str | None = None
    ) -> int:
        """Add new records and return how many. None of them may be in the ledger already.

        Those of a person who is in the ledger share what is left of the person (`rpdp.ledger.stewardship.sharing`): the
        parts of the old records become smaller, in the same transaction.
        """
        who, why = checked_actor(actor), self._reason("add", reason)
        facts: dict[str, Any] = {"at": now(), "actor": who, "reason": why}
        # While the inbox is held nobody divides a budget among the records that a person had before.
        with self._turn, self.inbox.turn():
            self.expire()
            new = new_records(self.key, budgets, self.terms, progress)
            roster, booked = Roster(new.hashes), list(self.pending())
            with self._writing():
                self._require_unknown(budgets, roster)
                self._action_book.book(booked)
                sharing = shared(self.records, self.runs, self.booked_actions(), self.terms, budgets, new)
                if sharing is not None:
                    new, less = sharing.new, (sharing.members, sharing.epsilon, sharing.delta)
                    booked.append(Action("lower", self.id, *less, reason=f"{SHARED} {why}".strip(), actor=who))
                    self._action_book.book(booked[-1:])
                    facts["shared"] = {"persons": sharing.persons, "lower": self.chain.seq}
                facts["records"] = self.records.write(self.chain.seq + 1, new, progress)
                self.chain.append("add", facts)
            self.records.reload()
            if self._balances is not None and not self._are_balances_stale:
                self._balances.extend(len(budgets))
            self._after_booking(booked)
            self._note_head()
            self.database.shorten_log()
        return len(budgets)

    def enrol(
        self,
        records: Sequence[str] = (),
        *,
        subjects: Sequence[str] = (),
        reason: str = "",
        actor: str | None = None,
    ) -> int:
        """Enrol records with sum accounts anew, as Rényi accounts, and return how many.

        Only records of whose person nothing is booked or held; without names, all of those.
        """
        facts: dict[str, Any] = {"at": now(), "actor": checked_actor(actor), "reason": self._reason("enrol", reason)}
        with self._turn, self.inbox.turn():
            self.expire()
            pending = list(self.pending())
            named = self._all_of_persons(records, subjects) if records or subjects else None
            with self._writing():
                self._action_book.book(pending)
                seq = self.chain.seq + 1
                facts["records"] = write_enrolment(seq, self.records, self.booked_actions(), self.terms, named)
                self.chain.append("enrol", facts | {"orders": self.records.orders_digest(seq)})
            self._are_balances_stale = True
            self._after_booking(pending)
            self._note_head()
        return int(facts["records"])

    def prune(self, run: str | None = None, *, reason: str = "", actor: str | None = None) -> list[Updates]:
        """Remove the updates of a run, or of every run whose rounds were all announced, in one transaction.

        The releases stay in the chain. A round that is announced again is sat out.
        """
        with self._turn:
            with self._writing():
                crash_points.reached("prune: begun")
                gone = prune(self.database, self.chain, self.runs, run, reason, checked_actor(actor))
            crash_points.reached("prune: committed")
            if gone:
                self._note_head()
                self.database.shrink()
        return gone

    def _require_unknown(self, budgets: BudgetTable, roster: Roster) -> None:
        for chunk in self.records.chunks:
            known = roster.find(self.records.hashes(chunk))
            known = known[known != ABSENT]
            if known.size:
                raise BudgetError(
                    f"record {budgets.ids[int(known[0])].as_py()!r} is in the ledger already; leave it out of the "
                    "table. Its account stays; `rpdp ledger lower` and `rpdp ledger raise` change its budget"
                )
