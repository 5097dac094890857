"""Creating a ledger: build it beside its final path, sync it, then rename it, so it is complete or absent."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rpdp.checks import require_choice
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.chain import Chain
from rpdp.ledger.store.database import Database
from rpdp.ledger.store.ledger_files import LedgerFiles
from rpdp.ledger.store.record_keys import RecordKey
from rpdp.ledger.store.record_store import NewRecords, RecordStore
from rpdp.ledger.store.rollback import RollbackNotes
from rpdp.ledger.store.run_book import now
from rpdp.ledger.store.schema import FORMAT
from rpdp.private_files import sync_directory

if TYPE_CHECKING:
    from rpdp.budgets import BudgetTable
    from rpdp.ledger.account_terms import AccountTerms
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.stewardship.steward_keys import StewardPublicKey

Kind = Literal["production", "simulation"]
LEDGER_KINDS: tuple[Kind, ...] = ("production", "simulation")


def create_files(
    path: Path,
    budgets: BudgetTable,
    *,
    kind: Kind,
    terms: AccountTerms,
    steward: StewardPublicKey | None,
    progress: Progress,
) -> None:
    """Create all files of a new ledger."""
    require_choice("kind", kind, LEDGER_KINDS)
    files = LedgerFiles(path)
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; create it first")
    if path.exists():
        raise InputError(_exists(path))
    try:
        _create(files, budgets, kind, terms, steward, progress)
    except OSError as error:
        raise InputError(
            f"{path} could not be created ({error.strerror or error}); free some space or choose a place where this "
            "user may write, and create it again"
        ) from None


def _create(
    files: LedgerFiles,
    budgets: BudgetTable,
    kind: Kind,
    terms: AccountTerms,
    steward: StewardPublicKey | None,
    progress: Progress,
) -> None:
    for left_over in files.database.parent.glob(f"{files.unfinished.name}*"):
        left_over.unlink()
    key = RecordKey.find_or_make(files.key)
    files.inbox.mkdir(mode=0o700, exist_ok=True)
    _remove_notes_of_unfinished(files)
    _build(files, key, new_records(key, budgets, terms, progress), kind, terms, steward, progress)
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


def _build(
    files: LedgerFiles,
    key: RecordKey,
    new: NewRecords,
    kind: Kind,
    terms: AccountTerms,
    steward: StewardPublicKey | None,
    progress: Progress,
) -> None:
    os.close(os.open(files.unfinished, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    database = Database.build(files.unfinished)
    ledger = secrets.token_hex(16)
    with database.transaction():
        chain = Chain(database)
        facts = {
            "at": now(),
            "format": FORMAT,
            "ledger": ledger,
            "kind": kind,
            "lifetime_delta": terms.lifetime_delta,
            "account": terms.account,
            "silos_per_person": terms.silos_per_person,
            "key_check": key.check,
            "steward": None if steward is None else steward.raw.hex(),
            "records": RecordStore(database).write(1, new, progress),
        }
        chain.append("create", facts)
    RollbackNotes(files.rollback_notes, ledger).create(chain)
    database.finish_building()


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
