"""`rpdp ledger upgrade`: a ledger of an older version, made ready to be written by this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.output import print_json, say


def upgrade(
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file.")], as_json: options.Json = False
) -> None:
    """Upgrade a ledger of an older version to the format of this one, in place. Not while a run holds the ledger.

    Ledgers of older formats can be read without it; only writing needs it. Accounts, events and heads stay exactly as
    they are, and an interruption leaves the old file. Older versions of rpdp will refuse the ledger from then on.

    Example: `rpdp ledger upgrade ledger.db`
    """
    from rpdp.ledger.format_upgrade import upgrade as bring_up

    done = bring_up(ledger)
    if as_json:
        print_json({"file": str(ledger), "before": done.before, "after": done.after})
        return
    if done.before == done.after:
        say(f"{ledger}: has format {done.after} already; nothing was changed.")
    else:
        say(f"{ledger}: upgraded from format {done.before} to {done.after}; `rpdp ledger verify {ledger}` checks it.")
