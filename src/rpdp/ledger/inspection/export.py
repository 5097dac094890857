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
from rpdp.ledger.store.record_keys import as_bytes
from rpdp.private_files import private_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rpdp.ledger.inspection.account_chunks import Accounts
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress

ENDINGS = (".csv", ".json")
_NUMBERS = ("epsilon", "delta", "spent_epsilon", "spent_delta", "left_epsilon", "left_delta")
_NUMBERS_OF_RENYI = ("share_used", "order")
"""In ledgers with Rényi accounts. Of such an account, ε and δ spent or left stay empty."""

_FLAGS = ("withdrawn", "is_off")
_PERSONAL = ("action", "actor", "reason", "signature", "sha256", "silo_plan", "members", "totals", "orders")
"""Facts that an export without ids leaves out of events. The hash of a released update stays: the server has it."""


def export(
    ledger: LedgerBase, path: str | Path, *, without_ids: bool, progress: Progress, overwrite: bool = False
) -> int:
    """Write all accounts to a file that only its owner may read, and return how many."""
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise InputError(f"{path}: the file name must end in {' or '.join(ENDINGS)}")
    with ledger.reading(), private_file(path, overwrite=overwrite) as raw:
        rows = _rows(ledger, progress, without_ids=without_ids)
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


def _rows(ledger: LedgerBase, progress: Progress, *, without_ids: bool) -> Iterator[list[Any]]:
    names = _numbers(ledger)
    if not without_ids:
        for accounts in all_accounts(ledger, progress):
            hashes = as_bytes(accounts.hashes).hex()
            for index, numbers in enumerate(_table(accounts, names)):
                yield [hashes[32 * index : 32 * index + 32], *_plain(numbers, len(names))]
        return
    table = np.concatenate([_table(accounts, names) for accounts in all_accounts(ledger, progress)])
    for numbers in table[np.lexsort(table.T[::-1])]:
        yield _plain(numbers, len(names))


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
        "columns": _columns(ledger, without_ids=without_ids),
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
