"""`rpdp ledger recover` and `accept`: a successor of a lost ledger, and the server's consent to it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.ledger_access import work_progress
from rpdp.cli.ledger_steward_command import Actor  # noqa: TC001
from rpdp.cli.output import print_json, say, say_line
from rpdp.errors import InputError


def recover(
    ledger: Annotated[Path, typer.Argument(metavar="SUCCESSOR", help="The ledger to make; a new name.")],
    export: Annotated[Path, typer.Option("--export", help="The last export of the lost ledger: JSON, with hashes.")],
    budgets: Annotated[Path, typer.Option("--budgets", "-b", help="Records and budgets as in force when it was lost.")],
    key: Annotated[Path, typer.Option("--key", help="The key of the lost ledger's record ids, or its copy.")],
    heads: Annotated[list[Path], typer.Option("--heads", help="A server's heads.json. Repeatable: one per server.")],
    silo: Annotated[str, typer.Option("--silo", help="The silo's name in these files.")],
    reason: Annotated[str, typer.Option("--reason", help="What happened to the ledger; kept in the successor.")],
    max_runs: Annotated[
        int | None, typer.Option("--max-runs", help="The largest max_runs of the silo's policy since the export.")
    ] = None,
    max_share: Annotated[
        float | None, typer.Option("--max-share-per-run", help="The largest max_share_per_run since the export.")
    ] = None,
    actor: Actor = None,
    as_json: options.Json = False,
) -> None:
    """Make the successor of a lost ledger. Everything that may have been spent since its last export is booked.

    Without --max-runs and --max-share-per-run that is everything. No server accepts the successor until somebody there
    runs `rpdp ledger accept` with the statement that `rpdp ledger head --succession` writes.

    Example: `rpdp ledger recover new.db --export last.json --budgets budgets.csv --key ledger.db.key --heads heads.json
    --silo north --max-runs 4 --max-share-per-run 0.1 --reason "disk failure on 3 May"`
    """
    from rpdp.budgets import BudgetTable
    from rpdp.federation.heads import read_heads
    from rpdp.ledger import Ledger
    from rpdp.ledger.recovery import LostLimits
    from rpdp.ledger.recovery import recover as make

    if (max_runs is None) != (max_share is None):
        raise InputError("--max-runs and --max-share-per-run go together; without both, everything is booked as spent")
    limits = None if max_runs is None or max_share is None else LostLimits(max_runs, max_share)
    known = {path: read_heads(path).get(silo) for path in heads}
    for path, head in known.items():
        if head is None:
            raise InputError(f"{path} has no head of silo {silo!r}; give the name that the server knows it by")
    table = BudgetTable.read(budgets)
    kept = [head for head in known.values() if head is not None]
    with work_progress() as progress:
        make(
            ledger,
            table,
            export=export,
            key=key,
            heads=kept,
            limits=limits,
            reason=reason,
            actor=actor,
            progress=progress,
        )
    with Ledger.open(ledger) as made:
        overview = made.overview()
        succession = next(made.chain.events("succeed")).facts
    used = sum(group.mean_share_used * group.records for group in overview.groups) / overview.records
    if as_json:
        facts = {name: succession[name] for name in ("predecessor", "runs_since", "share")}
        print_json({"file": str(ledger), "ledger": overview.ledger, "mean_share_used": used, **facts})
        return
    since = succession["runs_since"]
    booked = "everything" if since is None else f"{since} runs since the export, at {succession['share']:g} each"
    say(f"{ledger}: ledger {overview.ledger[:12]}… succeeds {succession['predecessor']['ledger'][:12]}….")
    say(f"Booked besides what the export shows: {booked}. On average {used:.1%} of the lifetime budgets is used.")
    say_line(f"For the servers: `rpdp ledger head {ledger} --succession FILE`, then `rpdp ledger accept` there.")
    say("What stewards did after the export is not in it: withdraw, lower and raise again before anything runs.")


def accept(
    heads: Annotated[Path, typer.Argument(metavar="HEADS", help="The server's heads.json.")],
    statement: Annotated[Path, typer.Argument(metavar="STATEMENT", help="What the silo sent: who succeeds whom.")],
    silo: Annotated[str, typer.Option("--silo", help="The silo's name in HEADS.")],
    reason: Annotated[str, typer.Option("--reason", help="Why the server accepts it; kept beside HEADS.")],
    as_json: options.Json = False,
) -> None:
    """At the server: accept the successor of a silo's lost ledger, which is refused until then.

    It must have been made from the head that this server keeps, or from a later one. What was accepted, when and why
    is kept in HEADS with the ending .successions. Not while a run of this server goes on.

    Example: `rpdp ledger accept heads.json north.json --silo north --reason "disk failure, letter of 3 May"`
    """
    from rpdp.federation.successions import accept_successor
    from rpdp.ledger.succession import Succession

    try:
        text = statement.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{statement} cannot be read ({error}); ask the silo for its statement") from None
    succession = Succession.from_json(text)
    is_new = accept_successor(heads, silo, succession, reason)
    if as_json:
        print_json({"file": str(heads), "silo": silo, "accepted_now": is_new, **asdict(succession)})
        return
    pair = f"ledger {succession.successor.ledger[:12]}… succeeds {succession.predecessor.ledger[:12]}…"
    say(f"{heads}: silo {silo}: {pair}{', accepted' if is_new else ' already; nothing was changed'}.")
