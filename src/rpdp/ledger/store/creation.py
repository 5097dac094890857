"""Creating a ledger: build it beside its final path, sync it, then rename it, so it is complete or absent."""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rpdp.checks import require_choice
from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.stewardship.action_booking import ActionBook
from rpdp.ledger.stewardship.actions import Action
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.chain import SUCCEED, Chain, PublicHead
from rpdp.ledger.store.database import Database
from rpdp.ledger.store.ledger_files import LedgerFiles
from rpdp.ledger.store.record_keys import RecordKey
from rpdp.ledger.store.record_store import NewRecords, RecordStore
from rpdp.ledger.store.rollback import RollbackNotes
from rpdp.ledger.store.roster import sorted_order
from rpdp.ledger.store.run_book import now
from rpdp.ledger.store.schema import FORMAT
from rpdp.private_files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable
    from rpdp.ledger.account_terms import AccountTerms
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.stewardship.steward_keys import StewardPublicKey
    from rpdp.ledger.store.fixed_point import UnitArray

Kind = Literal["production", "simulation"]
LEDGER_KINDS: tuple[Kind, ...] = ("production", "simulation")


@dataclass(frozen=True, eq=False)
class Inheritance:
    """What a successor takes over from a ledger that was lost.

    Attributes:
        predecessor: The latest public head of that ledger which anybody knows.
        facts: What else the event of the succession states.
        booked: The units of ε or ρ that every record begins with, in the order of the new records.
        booked_delta: Their units of δ.
        withdrawn: Who had withdrawn.
    """

    predecessor: PublicHead
    facts: Mapping[str, Any]
    booked: UnitArray
    booked_delta: UnitArray
    withdrawn: NDArray[np.bool_]

    __repr__ = counts_repr


@dataclass(frozen=True, eq=False)
class NewLedger:
    """What is fixed when a ledger is created.

    Attributes:
        kind: "production" or "simulation".
        terms: The terms of its accounts.
        steward: The public key of the steward who may raise budgets.
        records: Makes the records, given the key of their hashes.
        key: The key, if there is one already.
        inheritance: What it takes over, if it succeeds a ledger that was lost.
    """

    kind: Kind
    terms: AccountTerms
    steward: StewardPublicKey | None
    records: Callable[[RecordKey], NewRecords]
    key: RecordKey | None = None
    inheritance: Inheritance | None = None

    __repr__ = counts_repr


def create_files(path: Path, new: NewLedger, progress: Progress) -> None:
    """Create all files of a new ledger."""
    require_choice("kind", new.kind, LEDGER_KINDS)
    files = LedgerFiles(path)
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; create it first")
    if path.exists():
        raise InputError(_exists(path))
    try:
        _create(files, new, progress)
    except OSError as error:
        raise InputError(
            f"{path} could not be created ({error.strerror or error}); free some space or choose a place where this "
            "user may write, and create it again"
        ) from None


def _create(files: LedgerFiles, new: NewLedger, progress: Progress) -> None:
    for left_over in files.database.parent.glob(f"{files.unfinished.name}*"):
        left_over.unlink()
    key = RecordKey.find_or_make(files.key, new.key)
    files.inbox.mkdir(mode=0o700, exist_ok=True)
    _remove_notes_of_unfinished(files)
    _build(files, key, new, progress)
    crash_points.reached("create: built")
    _sync(files.unfinished)
    _put_in_place(files)
    crash_points.reached("create: in place")


def _put_in_place(files: LedgerFiles) -> None:
    """Give the finished file its name. A link is never put over a ledger that appeared meanwhile; a rename would be."""
    try:
        os.link(files.unfinished, files.database)
    except FileExistsError:
        raise InputError(_exists(files.database)) from None
    files.unfinished.unlink()
    sync_directory(files.database.parent)


def _exists(path: Path) -> str:
    return f"{path} exists; a ledger is never overwritten, because it would forget what was spent. Choose another name"


def _build(files: LedgerFiles, key: RecordKey, new: NewLedger, progress: Progress) -> None:
    os.close(os.open(files.unfinished, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    database = Database.build(files.unfinished)
    ledger, terms, records = secrets.token_hex(16), new.terms, new.records(key)
    with database.transaction():
        chain, store = Chain(database), RecordStore(database)
        facts = {
            "at": now(),
            "format": FORMAT,
            "ledger": ledger,
            "kind": new.kind,
            "lifetime_delta": terms.lifetime_delta,
            "account": terms.account,
            "silos_per_person": terms.silos_per_person,
            "key_check": key.check,
            "steward": None if new.steward is None else new.steward.raw.hex(),
            "records": store.write(1, records, progress),
        }
        chain.append("create", facts)
        # The note of the first event alone: an interrupted creation is told from a lost ledger by it.
        RollbackNotes(files.rollback_notes, ledger).create(chain)
        if new.inheritance is not None:
            _inherit(chain, store, records, new.inheritance)
            ActionBook(database, chain, new.steward).book(_withdrawals(ledger, records, new.inheritance))
    database.finish_building()


def _inherit(chain: Chain, store: RecordStore, new: NewRecords, inherited: Inheritance) -> None:
    """Book what the records begin with, as the event that says whom this ledger succeeds."""
    store.reload()
    order, seq = sorted_order(new.hashes), chain.seq + 1
    for chunk in store.chunks:
        rows = order[chunk.rows]
        store.write_carried(seq, chunk, inherited.booked[rows], inherited.booked_delta[rows])
        store.write_totals(chunk, inherited.booked[rows], inherited.booked_delta[rows])
    facts = {
        "at": now(),
        "predecessor": asdict(inherited.predecessor),
        **inherited.facts,
        "carried": store.carried_digest(seq),
        "totals": store.totals_digest(),
    }
    chain.append(SUCCEED, facts)


def _withdrawals(ledger: str, new: NewRecords, inherited: Inheritance) -> list[Action]:
    """Who had withdrawn withdraws from the successor, too."""
    hashes = new.hashes[inherited.withdrawn]
    unchanged = np.full(len(hashes), np.nan)
    reason = f"withdrawn in ledger {inherited.predecessor.ledger}"
    return [Action("withdraw", ledger, hashes, unchanged, unchanged, reason=reason)] if len(hashes) else []


def new_records(key: RecordKey, budgets: BudgetTable, terms: AccountTerms, progress: Progress) -> NewRecords:
    """Return the records of a table with their lifetime budgets. A subject's budget is divided among its records."""
    allowed = terms.per_record(budgets)
    subjects = None if budgets.subjects is None else key.subjects(budgets.subjects)
    hashes = key.records(budgets.ids, progress)
    assert allowed.delta is not None
    return NewRecords(hashes, allowed.epsilon, allowed.delta, terms.orders(allowed), subjects)


def _remove_notes_of_unfinished(files: LedgerFiles) -> None:
    """Remove the note of an interrupted creation, which has one event. More events mean that a ledger was lost."""
    notes = RollbackNotes(files.rollback_notes, "")
    events = max((note["seq"] for note in notes.notes()), default=0)
    if notes.exists and not events:
        raise PrivacyRefusal(
            f"{files.rollback_notes} cannot be read, so a ledger may have been here: put both back. A new ledger would "
            "forget what was spent; if there never was one, remove the file"
        )
    if events > 1:
        raise PrivacyRefusal(
            f"{files.rollback_notes} says that a ledger with {events:,} events was here: put it back. A new ledger "
            "would forget what was spent; if you want one all the same, lower the budgets accordingly and use another "
            "name"
        )
    files.rollback_notes.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
