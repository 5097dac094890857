"""Exporting a ledger for an auditor: every account as CSV, or accounts and events as JSON.

Records appear by their keyed hashes, which mean nothing without the silo's key. An export without ids omits the hashes
too and sorts the records by their numbers, so that nothing shows which record is which. Its events leave out whom they
concern and why, and every hash over something private: who knows all records but one could test a guess with it.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from rpdp.errors import InputError
from rpdp.ledger.inspection.account_chunks import all_accounts
from rpdp.ledger.store.record_keys import HASH_BYTES, as_bytes
from rpdp.private_files import private_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rpdp.ledger.inspection.account_chunks import Accounts
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.store.roster import Hashes

ENDINGS = (".csv", ".json")
_NUMBERS = ("epsilon", "delta", "spent_epsilon", "spent_delta", "left_epsilon", "left_delta")
_NUMBERS_OF_RENYI = ("share_used", "order")
"""In ledgers with Rényi accounts. Of such an account, ε and δ spent or left stay empty."""

_FLAGS = ("withdrawn", "is_off")
EXACT = ("booked", "booked_delta", "subject_hash")
"""In JSON with hashes: what is booked, in units, and whose record it is. `rpdp ledger recover` needs them."""

_PERSONAL = (
    "action",
    "actor",
    "reason",
    "signature",
    "sha256",
    "silo_plan",
    "members",
    "totals",
    "orders",
    "carried",
    "export",
)
"""Facts that an export without ids leaves out of events. The hash of a released update stays: the server has it."""


def export(
    ledger: LedgerBase, path: str | Path, *, without_ids: bool, progress: Progress, overwrite: bool = False
) -> int:
    """Write all accounts to a file that only its owner may read, and return how many."""
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise InputError(f"{path}: the file name must end in {' or '.join(ENDINGS)}")
    with ledger.reading(), private_file(path, overwrite=overwrite) as raw:
        is_exact = path.suffix == ".json" and not without_ids
        rows = _rows(ledger, progress, without_ids=without_ids, is_exact=is_exact)
        with TextIOWrapper(raw, encoding="utf-8", newline="", write_through=True) as file:
            if path.suffix == ".csv":
                return _write_csv(file, ledger, rows, without_ids=without_ids)
            return _write_json(file, ledger, rows, without_ids=without_ids)


def _numbers(ledger: LedgerBase) -> tuple[str, ...]:
    """The columns of numbers: those of Rényi accounts only where there are any."""
    is_mixed = any(ledger.records.orders(chunk).any() for chunk in ledger.records.chunks)
    return (*_NUMBERS, *_NUMBERS_OF_RENYI) if is_mixed else _NUMBERS


def _columns(ledger: LedgerBase, *, without_ids: bool) -> list[str]:
    return [*([] if without_ids else ["record_hash"]), *_numbers(ledger), *_FLAGS]


def _rows(ledger: LedgerBase, progress: Progress, *, without_ids: bool, is_exact: bool) -> Iterator[list[Any]]:
    names = _numbers(ledger)
    if not without_ids:
        for chunk, accounts in zip(ledger.records.chunks, all_accounts(ledger, progress), strict=True):
            hashes = _written(accounts.hashes)
            exact = _exact(accounts, ledger.records.subjects(chunk)) if is_exact else [()] * len(hashes)
            for name, numbers, more in zip(hashes, _table(accounts, names), exact, strict=True):
                yield [name, *_plain(numbers, len(names)), *more]
        return
    table = np.concatenate([_table(accounts, names) for accounts in all_accounts(ledger, progress)])
    for numbers in table[np.lexsort(table.T[::-1])]:
        yield _plain(numbers, len(names))


def _written(hashes: Hashes) -> list[str]:
    """Return each hash in hexadecimal."""
    together, size = as_bytes(hashes).hex(), 2 * HASH_BYTES
    return [together[start : start + size] for start in range(0, len(together), size)]


def _exact(accounts: Accounts, subjects: Hashes | None) -> Iterable[tuple[Any, ...]]:
    """Return what `EXACT` names for each record; the subject is None for a record without one."""
    named: list[Any] = [None] * len(accounts) if subjects is None else _written(subjects)
    return zip(accounts.booked.tolist(), accounts.booked_delta.tolist(), named, strict=True)


def _table(accounts: Accounts, names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.column_stack([np.asarray(getattr(accounts, name), dtype=np.float64) for name in (*names, *_FLAGS)])


def _plain(numbers: np.ndarray[Any, np.dtype[np.float64]], count: int) -> list[Any]:
    values = numbers.tolist()
    kept = [None if math.isnan(value) else value for value in values[:count]]
    return [*kept, *(int(value) for value in values[count:])]


def _write_csv(file: TextIO, ledger: LedgerBase, rows: Iterator[list[Any]], *, without_ids: bool) -> int:
    writer = csv.writer(file)
    writer.writerow(_columns(ledger, without_ids=without_ids))
    count = 0
    for row in rows:
        writer.writerow(row)
        count += 1
    return count


def _write_json(file: TextIO, ledger: LedgerBase, rows: Iterator[list[Any]], *, without_ids: bool) -> int:
    head = {
        "ledger": ledger.id,
        "kind": ledger.kind,
        "public_head": asdict(ledger.public_head()),
        "events": [_event(event, without_ids=without_ids) for event in ledger.chain.events()],
        "columns": [*_columns(ledger, without_ids=without_ids), *(() if without_ids else EXACT)],
    }
    file.write(json.dumps(head, indent=1)[:-2] + ',\n "records": [')
    count = 0
    for row in rows:
        file.write(("," if count else "") + "\n  " + json.dumps(row))
        count += 1
    file.write("\n ]\n}\n")
    return count


def _impersonal(facts: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in facts.items() if name not in _PERSONAL}
    return {
        name: _impersonal(value) if name == "records" and isinstance(value, dict) else value
        for name, value in kept.items()
    }


def _event(event: Any, *, without_ids: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"seq": event.seq, "kind": event.kind}
    if without_ids:
        entry["facts"] = event.facts if event.kind == "release" else _impersonal(event.facts)
    else:
        entry |= {"facts": event.facts, "head": event.head.hex()}  # the head covers all facts, private ones included
    return entry | ({"run": event.run, "round": event.round, "joined": bool(event.joined)} if event.run else {})
