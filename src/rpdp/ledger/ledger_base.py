"""What readers and writers of a ledger share: files, checks when opening, a consistent view, transactions."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rpdp.display import html_table
from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.ledger.account_terms import AccountTerms
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.stewardship.action_booking import ActionBook
from rpdp.ledger.stewardship.inbox import Inbox
from rpdp.ledger.stewardship.steward_keys import StewardPublicKey
from rpdp.ledger.store.chain import ROLLED_BACK, SUCCEED, Chain, PublicHead
from rpdp.ledger.store.database import Database
from rpdp.ledger.store.ledger_files import LedgerFiles
from rpdp.ledger.store.record_keys import RecordKey
from rpdp.ledger.store.record_store import RecordStore
from rpdp.ledger.store.rollback import RollbackNotes
from rpdp.ledger.store.run_book import RunBook
from rpdp.ledger.store.schema import DAMAGED, FORMAT
from rpdp.ledger.store.writer_lock import DatabaseFile, WriterLock
from rpdp.private_files import private_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rpdp.budgets import AccountKind
    from rpdp.ledger.inspection.explanation import Explanation
    from rpdp.ledger.inspection.hold_list import Hold
    from rpdp.ledger.inspection.overview import Overview
    from rpdp.ledger.inspection.person_explanation import NamedAs, PersonExplanation
    from rpdp.ledger.inspection.verification import Verification
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.stewardship.actions import Action
    from rpdp.ledger.store.creation import Kind


class LedgerBase:
    """The parts of a ledger that is open for reading or writing; see `Ledger`.

    Attributes:
        id: A random id, drawn when the ledger was created.
        kind: "production" or "simulation", fixed at creation.
        created: The time of creation.
        lifetime_delta: The δ of records that came without one.
        account: The kind of account of new records.
        silos_per_person: In how many silos a person may have an account.
        steward: The public key of the steward who may raise budgets, or None.
        predecessor: The latest known head of the lost ledger that this one succeeds, or None.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        writable: bool,
        acknowledged: PublicHead | None = None,
        key: str | Path | None = None,
        vfs: str | None = None,
        wait: float = 0.0,
    ) -> None:
        self.files = LedgerFiles(Path(path))
        self._key_path = self.files.key if key is None else Path(key)
        self._turn = threading.RLock()
        self._lock: WriterLock | None = None
        self._rollback_notes: RollbackNotes | None = None
        self._is_stale = False
        self._is_closed = False
        self._file = DatabaseFile(self.files.database)
        try:
            if writable:
                self._lock = WriterLock(self._file, self.files.lock, self.files.database, wait)
            self.database = Database(self.files.database, writable=writable, vfs=vfs)
        except BaseException:
            self._unlock()
            raise
        try:
            self._start(acknowledged, writable=writable)
            if writable:
                self._begin_writing()
        except BaseException:
            self._shut()
            raise

    def _start(self, acknowledged: PublicHead | None, *, writable: bool) -> None:
        try:
            with self.database.snapshot():
                self._load()
        except RpdpError:
            raise
        except (StopIteration, LookupError, ValueError, TypeError) as error:
            raise PrivacyRefusal(
                f"{self.files.database}: its first event is missing or damaged ({error!r}); {DAMAGED}"
            ) from None
        self.inbox = Inbox(self.files.inbox, self.id, self.steward, needed=writable)
        self._rollback_notes = RollbackNotes(self.files.rollback_notes, self.id)
        with self.database.snapshot():
            if acknowledged is not None:
                self.chain.require(acknowledged, self.id)
            if writable:
                self.chain.require_end()
                self._require_own_contents()
                self._require_noted(self._rollback_notes, acknowledged)
        self.database.accept()

    def _load(self) -> None:
        """Load the file, starting with what was fixed at creation."""
        self.chain = Chain(self.database)
        facts = next(self.chain.events("create")).facts
        self.id = str(facts["ledger"])
        self.kind: Kind = "simulation" if facts["kind"] == "simulation" else "production"
        self.created = str(facts["at"])
        self.is_simulation = self.kind == "simulation"
        self.lifetime_delta = float(facts["lifetime_delta"])
        self.account: AccountKind = facts.get("account", "sums")
        self.silos_per_person = int(facts.get("silos_per_person", 1))
        self.steward = None if facts["steward"] is None else StewardPublicKey(bytes.fromhex(facts["steward"]))
        self._key_check = str(facts["key_check"])
        succession = next(self.chain.events(SUCCEED), None)
        self.predecessor = None if succession is None else PublicHead(**succession.facts["predecessor"])
        self.records = RecordStore(self.database)
        self.runs = RunBook(self.database, self.chain, self.records)
        self._action_book = ActionBook(self.database, self.chain, self.steward)

    def _begin_writing(self) -> None:
        """Do what a writer does first; overridden by `Ledger`."""

    def _require_own_format(self) -> None:
        """Refuse to change a ledger of an older format, which versions of that format would misread afterwards."""
        if self.database.format != FORMAT:
            raise InputError(
                f"{self.files.database} has format {self.database.format}; it can be read as it is, but this version "
                f"of rpdp writes format {FORMAT}. Nothing was changed. Back it up, then run `rpdp ledger upgrade "
                f"{self.files.database}`: versions that know only the older format will refuse it from then on"
            )

    def _require_own_contents(self) -> None:
        """Refuse a file whose rows are not those that its chain states.

        SQLite takes whatever pages and log it finds. If a copy was put back for one of the two, or over the file while
        a writer had it open, the last events may look right while totals or withdrawals are older. So every row is held
        against the chain, once, before anything is decided.
        """
        from rpdp.ledger.inspection.verification import check_contents

        for finding in check_contents(self, silent):
            raise PrivacyRefusal(
                f"{self.files.database} is not as its writer left it, or does not belong to the log beside it "
                f"({self.files.log.name}): {finding.problem}. Nothing was changed. Put both back from the same moment; "
                f"{ROLLED_BACK}"
            )

    def _require_noted(self, notes: RollbackNotes, acknowledged: PublicHead | None) -> None:
        if acknowledged is None and not notes.notes():
            raise PrivacyRefusal(
                f"{self.files.rollback_notes} {'cannot be read' if notes.exists else 'is missing'}, so a rollback of "
                "this ledger could not be noticed. Put the file back; if it is lost, open the ledger once with the "
                "head that the server has acknowledged (`rpdp ledger head --acknowledge`)"
            )
        notes.require(self.chain, self.database)
        notes.note(self.chain, acknowledged)

    @property
    def is_writer(self) -> bool:
        """Whether this process may change the ledger."""
        return self._lock is not None

    def close(self) -> None:
        """Close the file."""
        self._shut()

    def _shut(self) -> None:
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
            if self._rollback_notes is not None:
                self._rollback_notes.close()
            self.database.close()
            self._unlock()

    def _unlock(self) -> None:
        """Give up the lock and the file; only after SQLite has closed it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.files.database)!r}, {self.kind}, {len(self.records):,} records)"

    def _repr_html_(self) -> str:
        steward = "nobody" if self.steward is None else "a steward with the key"
        facts = {
            "file": self.files.database,
            "kind": self.kind,
            "created": self.created,
            "lifetime δ": f"{self.lifetime_delta:g}",
            "accounts": self.account,
            "silos per person": str(self.silos_per_person),
            "records": f"{len(self.records):,}",
            "public events": f"{self.chain.public_count:,}",
            "budgets can be raised by": steward,
        }
        return html_table(f"Ledger {self.id}", facts.items())

    # Reading

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read one consistent state of the ledger inside the block; a reader sees the state at its start."""
        with self._turn, self.database.snapshot():
            if self._is_stale or not self.is_writer:
                self._reload()
            yield

    @property
    def terms(self) -> AccountTerms:
        """The terms on which new records get their accounts."""
        return AccountTerms(self.account, self.lifetime_delta, self.silos_per_person)

    def explain(self, record: str) -> Explanation:
        """Explain one record: its budget, its runs, what is spent and what is left."""
        from rpdp.ledger.inspection.explanation import explanation_of

        with self.reading():
            return explanation_of(self, record)

    def explain_subject(self, subject: str) -> PersonExplanation:
        """Explain all records of one person: what the person allows, what share of it is used, and each record."""
        from rpdp.ledger.inspection.person_explanation import explanation_of_person

        with self.reading():
            return explanation_of_person(self, subject)

    def explain_anybody(self, name: str, named_as: NamedAs | None = None) -> PersonExplanation:
        """Explain the person who has this id, or whose record has it: all of the person's records."""
        from rpdp.ledger.inspection.person_explanation import balances_of, explanation_of_members, members_of

        with self.reading():
            members = members_of(self, name, named_as)
            return explanation_of_members(self, name, members, balances_of(self, members))

    def overview(self, progress: Progress = silent) -> Overview:
        """Summarise the ledger: its kind, records, budget groups and runs."""
        from rpdp.ledger.inspection.overview import overview_of

        with self.reading():
            return overview_of(self, progress)

    def holds(self) -> list[Hold]:
        """List the runs that hold budgets and have not begun."""
        from rpdp.ledger.inspection.hold_list import holds_of

        with self.reading():
            return holds_of(self)

    def verify(self, progress: Progress = silent) -> Verification:
        """Recompute everything from the raw events and list every discrepancy."""
        from rpdp.ledger.inspection.verification import verify

        assert self._rollback_notes is not None
        notes = self._rollback_notes.notes()  # before the events: a writer may note events that come after them
        with self.reading():
            return verify(self, notes, progress)

    def copy(self, path: str | Path) -> None:
        """Write a consistent copy for an auditor, without key and inbox. A run may be in progress."""
        with private_file(path, overwrite=False) as file:
            self.database.copy_to(Path(file.name))

    def public_head(self) -> PublicHead:
        """Return the head of the public events, for the server to keep and countersign."""
        with self.reading():
            return PublicHead(self.id, self.chain.public_count, self.chain.public_head.hex())

    @property
    def acknowledged(self) -> PublicHead | None:
        """The latest head that a server has acknowledged, as recorded beside the ledger."""
        assert self._rollback_notes is not None
        return self._rollback_notes.acknowledged()

    def require_newest(self, notes: list[dict[str, Any]]) -> None:
        """Refuse a ledger that is older than a state in `notes`, which were read before the ledger.

        A copy of a ledger has no notes. Notes that are there and cannot be read are refused.
        """
        assert self._rollback_notes is not None
        if not notes and self._rollback_notes.exists:
            raise PrivacyRefusal(f"{self.files.rollback_notes} cannot be read, so a rollback could not be noticed")
        self._rollback_notes.require(self.chain, self.database, notes)

    @property
    def key(self) -> RecordKey:
        """The key of the record hashes."""
        key = RecordKey.read(self._key_path)
        if key.check != self._key_check:
            raise InputError(f"{self._key_path} is the key of another ledger; give the key of {self.files.database}")
        return key

    def actions(self) -> list[Action]:
        """Return all steward actions in force, booked or not, in order."""
        return [*self.booked_actions(), *self.pending()]

    def booked_actions(self, before: int | None = None, after: int = 0) -> list[Action]:
        """Return the steward actions in the chain in order: all, or those before event `before`, or after another."""
        return self._action_book.actions(before, after)

    def pending(self) -> list[Action]:
        """Return the steward actions that are in force but not booked yet."""
        return self.inbox.pending(self._action_book.booked)

    # Writing

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run a transaction, in which everything that a check rests on is what the file holds now (rule 17).

        What is cached was right after the last transaction of this ledger. The end of the chain, read inside the new
        one, tells whether it still is: every change of the file appends an event. If the transaction fails, nothing
        cached is trusted any more. The file must be in place before and after: a commit to a file that was moved away
        would be lost.
        """
        self._require_writer()
        self._file.require_in_place()
        try:
            with self.database.transaction():
                self._require_current()
                yield
            self._file.require_in_place()
        except BaseException:
            self._forget()
            raise

    def _require_current(self) -> None:
        """Inside a transaction: read the state of the file, and everything else again if another process wrote it.

        It may also be older than before, if a copy was put back over the file: every time, the notes must agree.
        """
        assert self._rollback_notes is not None
        known = (self.chain.seq, self.chain.head)
        self.runs.forget()
        self.chain.reload()
        self._rollback_notes.require(self.chain, self.database)
        if self._is_stale or (self.chain.seq, self.chain.head) != known:
            self._forget()

    def _forget(self) -> None:
        """Drop everything cached. It is read again now, or, if the disk fails, before it is next used."""
        self._is_stale = True
        try:
            self._reload()
        except RpdpError:
            return

    def _reload(self) -> None:
        """Read everything cached from the file again."""
        self.runs.forget()
        self.chain.reload()
        self.records.reload()
        self._action_book.reload()
        self._is_stale = False

    def _note_head(self, acknowledged: PublicHead | None = None) -> None:
        """Note the committed state beside the ledger: from now on an older one counts as rolled back."""
        assert self._rollback_notes is not None
        self._rollback_notes.note(self.chain, acknowledged)

    def _require_writer(self) -> None:
        if not self.is_writer:
            raise InputError(f"{self.files.database} is open for reading only; open it with Ledger.open")
