"""`rpdp consent`: consent that arrives as consent becomes budgets and withdrawals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.ledger_access import opened_ledger
from rpdp.cli.ledger_steward_command import (  # noqa: TC001  # typer reads the annotations
    Actor,
    Passphrase,
    StewardKeyFile,
)
from rpdp.cli.output import print_json, print_table, refuse_overwriting, say, say_line

if TYPE_CHECKING:
    from rpdp.consent import ConsentImport
    from rpdp.ledger.stewardship.wanted_budgets import BudgetChanges

app = typer.Typer(no_args_is_help=True)

_SHOWN = 20
_WORDS = {"withdraw": "withdrawn", "lower": "lowered", "reconsent": "taken back in", "raise": "raised"}


@app.callback()
def _group() -> None:
    """Import consent: FHIR Consent resources, or tables such as REDCap's.

    Example: `rpdp consent import consents.json --map consent.toml --ledger ledger.db --dry-run`
    """


@app.command("import")
def import_(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="FHIR resources in JSON, or a table in CSV.")],
    consent_map: Annotated[Path, typer.Option("--map", "-m", help="What each code means: consent.toml.")],
    ledger: Annotated[Path, typer.Option("--ledger", "-l", help="The ledger file.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference; change nothing.")] = False,
    key: StewardKeyFile = None,
    passphrase: Passphrase = None,
    only_less: Annotated[
        bool, typer.Option("--only-less", help="Withdraw and lower alone; leave out what needs a signature.")
    ] = False,
    budgets: Annotated[
        Path | None, typer.Option("--budgets", "-b", help="A file to write for persons who are not in the ledger yet.")
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", help="Kept with the actions, before the SHA-256 of bundle and map.")
    ] = "",
    actor: Actor = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Bring a ledger to what people have consented to, by a declared map from codes to budgets.

    Revoked, expired or erroneous consent withdraws; a smaller budget lowers; a larger one, or consent given again,
    needs the steward's signature. Nothing is changed if anything is wrong. Imported again, nothing is left to do.

    Example: `rpdp consent import consents.json --map consent.toml --ledger ledger.db --dry-run`
    """
    from rpdp.consent import ConsentMap, read_consents
    from rpdp.ledger.stewardship.prompt_booking import book_now

    if not dry_run:
        refuse_overwriting([budgets], force=force)
    consents = read_consents(bundle, ConsentMap.read(consent_map))
    with opened_ledger(ledger) as opened:
        if dry_run:
            found = consents.changes(opened, only_less=only_less, reason=reason, actor=actor)
        else:
            signer = None
            if key is not None:
                from rpdp.ledger import StewardKey

                signer = StewardKey.read(key, passphrase)
            found = consents.bring_about(
                opened, key=signer, only_less=only_less, reason=reason, actor=actor, budgets=budgets
            )
    booked = None if dry_run or not found.actions else book_now(ledger)
    written = str(budgets) if budgets is not None and not dry_run and budgets.exists() else None
    if as_json:
        print_json({**_facts(consents, found), "dry_run": dry_run, "booked": booked, "budgets": written})
        return
    _show(ledger, consents, found, dry_run=dry_run)
    if booked is False:
        say("In force from the next local step on; the run that holds the ledger books it with its next round.")
    if written is not None:
        say_line(f"budgets of new persons: {written}")


def _facts(consents: ConsentImport, found: BudgetChanges) -> dict[str, Any]:
    latest = consents.decisions.latest
    by_kind = {kind: [latest[row].person for row in rows] for kind, rows in found.rows.items()}
    return {
        "changes": by_kind,
        "unchanged": len(found.unchanged),
        "new": [latest[row].person for row in found.unknown if latest[row].kind == "allows"],
        "not_in_ledger": len(found.unknown),
        "delta_stays": [latest[row].person for row in found.delta_stays],
        "passed_over": consents.decisions.passed_over,
        "needs_signature": found.signed,
        "bundle_sha256": consents.digest,
        "map_sha256": consents.consent_map.digest,
    }


def _show(ledger: Path, consents: ConsentImport, found: BudgetChanges, *, dry_run: bool) -> None:
    latest = consents.decisions.latest
    new = sum(latest[row].kind == "allows" for row in found.unknown)
    counts = [(_WORDS[kind], len(rows)) for kind, rows in found.rows.items()]
    counts += [("unchanged", len(found.unchanged)), ("not in the ledger yet", new)]
    counts += [("not in the ledger, no use", len(found.unknown) - new)]
    counts += [(f"passed over: {why}", count) for why, count in consents.decisions.passed_over.items()]
    title = f"{ledger}: would change" if dry_run else f"{ledger}: changed"
    print_table(title, ("", "persons"), [(what, f"{count:,}") for what, count in counts if count])
    listed = [(row, kind) for kind, rows in found.rows.items() for row in rows]
    for row, kind in listed[:_SHOWN]:
        one = latest[row]
        budget = "" if one.choice is None else f", ε = {one.choice.epsilon:g}, δ = {one.choice.delta:g}"
        say_line(f"{one.person}: {_WORDS[kind]}{budget} ({one.place}{', ' + one.why if one.why else ''})")
    if len(listed) > _SHOWN:
        say(f"… and {len(listed) - _SHOWN:,} more (--json lists all)")
    if len(found.delta_stays):
        say(f"{len(found.delta_stays):,} persons keep a smaller δ than they chose: it never rises in their accounts.")
    if dry_run and found.signed:
        say(f"{found.signed:,} persons would be allowed more: give --steward-key, or leave them out (--only-less).")
