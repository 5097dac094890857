"""`rpdp ledger holds` and `rpdp ledger cancel`: budgets that are taken by runs which have not begun."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.output import print_json, print_table, say, say_line

LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file.")]


def holds(ledger: LedgerFile, as_json: options.Json = False) -> None:
    """Show the runs that hold budgets and have not begun: since when, until when, and for how many records.

    Example: `rpdp ledger holds ledger.db`
    """
    from rpdp.ledger import Ledger

    with Ledger.read(ledger) as opened:
        found = opened.holds()
    if as_json:
        print_json({"file": str(ledger), "holds": [asdict(one) for one in found]})
        return
    if not found:
        say(f"{ledger}: no run holds budgets. Runs that have begun are in `rpdp ledger show`.")
        return
    rows = [
        [one.run, one.admitted, _until(one.expires, has_expired=one.has_expired), f"{one.records:,}", one.plan[:12]]
        for one in found
    ]
    print_table("Held, not begun", ["run", "since", "until", "records", "public plan"], rows)
    say("The first charged round spends a hold. Until then it can be returned: by the server, by its expiry, or by")
    say_line(f"`rpdp ledger cancel {ledger} RUN --reason TEXT`")


def _until(expires: str | None, *, has_expired: bool) -> str:
    if expires is None:
        return "it is cancelled"
    return f"{expires} (passed: returned with the next write)" if has_expired else expires


def cancel(
    ledger: LedgerFile,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a run that holds budgets and has not begun.")],
    reason: Annotated[
        str,
        typer.Option("--reason", help="Why, in public. Without it, reports say that the cancellation is not covered."),
    ] = "",
    actor: Annotated[
        str | None, typer.Option("--actor", help="Who cancels, kept in the ledger, never public; by default the user.")
    ] = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Cancel a run that has not begun: all that it holds is returned, and its id never returns.

    A steward who cancels after looking at who sits out reveals something about them. Give a reason that does not depend
    on the records, and that may be published. Not while an agent has the ledger open.

    Example: `rpdp ledger cancel ledger.db spring --reason "the study was withdrawn"`
    """
    from rpdp.ledger import Ledger

    with Ledger.open(ledger, wait=wait) as opened:
        opened.cancel(run, by="steward", reason=reason, actor=actor)
        cancelled = opened.runs.cancellation(run)
    assert cancelled is not None
    if as_json:
        print_json({"file": str(ledger), "is_covered": cancelled.is_covered, **asdict(cancelled)})
        return
    say(f"{ledger}: run {run} is {cancelled.state}; all that it held is free again, and its id never returns.")
    if not cancelled.is_covered:
        say("No public reason was given: reports say that this cancellation is not covered by the promise.")
