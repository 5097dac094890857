"""The server's copy of the latest public head of every silo's ledger: one small file, replaced as a whole.

A ledger older than the head kept here was rolled back and would forget charges, so it is refused. Heads are kept by the
silo's name, so a silo cannot return with a new, empty ledger either.

Several runs of one server share the file, and may write it at the same time: a head in it is never replaced by an older
one, nor by that of another ledger. Only somebody at the server replaces it, by the successor of a lost ledger.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.store.chain import PublicHead

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rpdp.ledger.ledger import Ledger

FORMAT = "rpdp-heads/1"
NAME = "heads.json"


def read_heads(path: str | Path) -> dict[str, PublicHead]:
    """Return the heads in a file by silo; an empty dictionary if there is no file yet."""
    path = Path(path)
    if not path.exists():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ValueError(f"its format is {values['format']!r}, not {FORMAT!r}")
        return {str(silo): PublicHead.from_json(json.dumps(head)) for silo, head in values["heads"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: the file of ledger heads is damaged ({error}); restore its latest copy") from None


def write_heads(path: str | Path, heads: Mapping[str, PublicHead]) -> None:
    """Replace older heads of these silos and keep the others. The file is on disk when this returns."""
    with changed_heads(path) as known:
        known.update(newest_heads(known, heads))


@contextmanager
def changed_heads(path: str | Path) -> Iterator[dict[str, PublicHead]]:
    """Give the heads in a file, to be changed inside the block; they are on disk after it. Others wait meanwhile."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _only_writer(path):
        heads = read_heads(path)
        yield heads
        _replace(path, heads)


def newest_heads(known: Mapping[str, PublicHead], others: Mapping[str, PublicHead]) -> dict[str, PublicHead]:
    """Return the newer head of every silo. A head of another ledger never replaces one that is known."""
    newest = dict(known)
    for silo, head in others.items():
        before = newest.get(silo)
        if before is None or (before.ledger == head.ledger and head.count >= before.count):
            newest[silo] = head
    return newest


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Wait for other runs that write the file: each reads and replaces it as a whole."""
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _replace(path: Path, heads: Mapping[str, PublicHead]) -> None:
    text = json.dumps({"format": FORMAT, "heads": {silo: asdict(head) for silo, head in sorted(heads.items())}})
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def require_heads(path: str | Path, ledgers: Mapping[str, Ledger]) -> None:
    """Refuse a ledger that is older than the state the server knows, or is a different ledger.

    A successor of a lost ledger is refused until the server has accepted it.
    """
    known = read_heads(path)
    for silo, ledger in ledgers.items():
        if silo not in known and ledger.predecessor is not None:
            raise PrivacyRefusal(
                f"silo {silo}: its ledger succeeds ledger {ledger.predecessor.ledger[:12]}…, which was lost, and "
                f"{path} knows neither. Put the heads.json of the lost ledger there, and accept the successor with "
                "`rpdp ledger accept`"
            )
    for silo, head in known.items():
        if silo in ledgers:
            try:
                ledgers[silo].acknowledge(head)
            except PrivacyRefusal as error:
                raise PrivacyRefusal(f"silo {silo}: {error} (the server's heads are in {path})") from None


def keep_heads(path: str | Path, ledgers: Mapping[str, Ledger]) -> None:
    """Keep the current head of every ledger at the server, then record it in each ledger as acknowledged."""
    heads = {silo: ledger.public_head() for silo, ledger in ledgers.items()}
    # The server's file first: a ledger must never claim an acknowledgement that the server does not have on disk.
    write_heads(path, heads)
    for silo, head in heads.items():
        ledgers[silo].acknowledge(head)
