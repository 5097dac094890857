"""Opening a ledger for reading, and showing how far its work is, for all commands of `rpdp ledger`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.cli.output import notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.ledger import Ledger
    from rpdp.ledger.progress_callback import Progress

LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key", help="The key file of the record ids, for a copy of the ledger.")
]


@contextmanager
def opened_ledger(ledger: Path, key: Path | None = None) -> Iterator[Ledger]:
    """Open a ledger as a reader."""
    from rpdp.ledger import Ledger

    with Ledger.read(ledger, key=key) as opened:
        yield opened


@contextmanager
def work_progress() -> Iterator[Progress]:
    """Progress bars on a terminal, nothing elsewhere."""
    from rich.progress import Progress as Bars

    with Bars(console=notes, transient=True, disable=not notes.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done, total=of)

        yield update
