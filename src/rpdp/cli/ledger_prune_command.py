"""`rpdp ledger prune`: free the space of updates that no server will request again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.output import print_json, say


def prune(
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file.")],
    run: Annotated[
        str | None, typer.Option("--run", help="Only this run, even if not all of its rounds were announced.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Kept in the ledger; it stays in the silo.")] = "",
    actor: Annotated[
        str | None, typer.Option("--actor", help="Who acts, kept in the ledger; by default the user of this system.")
    ] = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Remove the stored updates of finished runs. Charges and releases stay.

    A run is finished when all of its rounds were announced; name an abandoned one with --run. If the server asks for a
    removed round again, the silo sits it out. Not while a run holds the ledger.

    Example: `rpdp ledger prune ledger.db --run spring`
    """
    from rpdp.ledger import Ledger

    with Ledger.open(ledger, wait=wait) as opened:
        before = ledger.stat().st_size
        gone = opened.prune(run, reason=reason, actor=actor)
    after = ledger.stat().st_size
    if as_json:
        print_json({"file": str(ledger), "removed": [asdict(one) for one in gone], "before": before, "after": after})
        return
    for one in gone:
        say(f"{ledger}: {one.count:,} updates of run {one.run} removed ({one.bytes / 1e6:,.1f} MB)")
    if not gone:
        say(f"{ledger}: there is nothing to remove. Name an abandoned run with --run.")
