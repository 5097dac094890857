"""`rpdp ledger`: the accounts of a silo's records, for the data steward."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.ledger_access import KeyFile, LedgerFile, opened_ledger, work_progress
from rpdp.cli.ledger_holds_command import cancel, holds
from rpdp.cli.ledger_prune_command import prune
from rpdp.cli.ledger_recover_command import accept, recover
from rpdp.cli.ledger_statement_command import statement
from rpdp.cli.ledger_steward_command import add, enrol, lower, raise_, reconsent, withdraw
from rpdp.cli.ledger_text import describe_accounts, show_overview
from rpdp.cli.ledger_upgrade_command import upgrade
from rpdp.cli.output import print_json, refuse_overwriting, say, say_line
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.private_files import private_file

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind
    from rpdp.ledger.inspection.explanation import Explanation
    from rpdp.ledger.inspection.person_explanation import PersonExplanation
    from rpdp.ledger.store.creation import Kind

app = typer.Typer(no_args_is_help=True)
app.command()(prune)
app.command()(holds)
app.command()(cancel)
app.command()(upgrade)
app.command()(recover)
app.command()(accept)
app.command()(withdraw)
app.command()(reconsent)
app.command()(lower)
app.command("raise")(raise_)
app.command()(add)
app.command()(enrol)
app.command()(statement)


@app.callback()
def _root() -> None:
    """Keep the accounts of a silo's records: what each allows, has spent and has left.

    Example: `rpdp ledger create ledger.db --budgets budgets.csv --lifetime-delta 1e-3`, then
    `rpdp ledger show ledger.db`
    """


@app.command()
def create(
    ledger: LedgerFile,
    budgets: Annotated[Path, typer.Option("--budgets", "-b", help="Records, or persons, and their lifetime budgets.")],
    lifetime_delta: Annotated[
        float, typer.Option("--lifetime-delta", help="δ for records without one of their own, over all runs.")
    ],
    steward: Annotated[
        Path | None, typer.Option("--steward", help="Public key of the steward who may raise budgets (see keygen).")
    ] = None,
    records: options.RecordsFile = None,
    account: Annotated[
        str | None,
        typer.Option(
            "--account",
            help="The kind of account of all records, for life: renyi (pays for more runs; the default in production) "
            "or sums (the default with --simulation).",
        ),
    ] = None,
    silos_per_person: Annotated[
        int,
        typer.Option(
            "--silos-per-person",
            help="In how many silos of the federation a person may ever have an account; the same in all silos.",
        ),
    ] = 1,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="For seeded runs, which protect nobody. Cannot be changed later.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Create the ledger of a silo from its budget file, for production unless --simulation is given.

    Never make two ledgers for the same people at one hospital: each would spend the whole budgets. All studies of a
    hospital share one ledger.

    Example: `rpdp ledger create ledger.db --budgets budgets.csv --lifetime-delta 1e-3 --steward steward.pub`
    """
    from rpdp.budgets import BudgetTable
    from rpdp.ledger import Ledger, StewardPublicKey

    table = BudgetTable.read(budgets, records=records)
    key = None if steward is None else StewardPublicKey.read(steward)
    with work_progress() as progress:
        kind: Kind = "simulation" if simulation else "production"
        made = Ledger.create(
            ledger,
            table,
            kind=kind,
            lifetime_delta=lifetime_delta,
            account=cast("AccountKind | None", account),  # checked there
            silos_per_person=silos_per_person,
            steward=key,
            progress=progress,
        )
    with made:
        facts = {
            "ledger": made.id,
            "kind": made.kind,
            "account": made.account,
            "silos_per_person": made.silos_per_person,
            "records": len(made.records),
            "key": str(made.files.key),
        }
    if as_json:
        print_json({"file": str(ledger), **facts})
        return
    say(f"{ledger}: a {facts['kind']} ledger of {facts['records']:,} records, id {facts['ledger']}")
    say(describe_accounts(made.account, made.silos_per_person))
    say_line(f"key of the record ids: {facts['key']} (back it up elsewhere; it never leaves the silo)")
    if key is None:
        say("There is no steward key: budgets in this ledger can be lowered, never raised.")


@app.command()
def show(ledger: LedgerFile, as_json: options.Json = False) -> None:
    """Show totals, budget groups and runs. Works while a run is in progress.

    Example: `rpdp ledger show ledger.db`
    """
    with opened_ledger(ledger) as opened, work_progress() as progress:
        overview = opened.overview(progress)
    if as_json:
        print_json({"file": str(ledger), **asdict(overview)})
        return
    show_overview(ledger, overview)


@app.command()
def explain(
    ledger: LedgerFile,
    record: Annotated[str | None, typer.Argument(help="The id of a record.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Instead: a person, with all records.")] = None,
    key: KeyFile = None,
    as_json: options.Json = False,
) -> None:
    """Explain the account of a record, or of a person: the budget, the runs, what is used and what is left.

    Example: `rpdp ledger explain ledger.db patient-0017`
    """
    if (record is None) == (subject is None):
        raise InputError("name one RECORD, or a person with --subject")
    with opened_ledger(ledger, key) as opened:
        explanation: Explanation | PersonExplanation
        explanation = opened.explain(record) if record is not None else opened.explain_subject(subject or "")
    if as_json:
        print_json(_without_nan(asdict(explanation)))
        return
    say(explanation.text)


def _without_nan(facts: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no NaN: what is spent or left of a Rényi account has no number."""
    return {
        name: [_without_nan(one) for one in value] if name == "records" else None if value != value else value
        for name, value in facts.items()
    }


@app.command()
def verify(ledger: LedgerFile, as_json: options.Json = False) -> None:
    """Recompute the chain and every account from the raw events, price every run again, and list discrepancies.

    Example: `rpdp ledger verify ledger.db`
    """
    with opened_ledger(ledger) as opened, work_progress() as progress:
        result = opened.verify(progress)
        head = opened.public_head()
    if as_json:
        print_json({"file": str(ledger), "good": result.is_good, **asdict(result), "head": asdict(head)})
    elif result.is_good:
        say(
            f"{ledger}: good. {result.events:,} events, {result.records:,} records, {result.runs:,} runs; public head "
            f"{head.head[:16]}… after {head.count:,} public events."
        )
    else:
        for finding in result.findings:
            say(f"{finding.check}: {finding.problem}", style="red")
    if not result.is_good:
        if not as_json:
            raise PrivacyRefusal(
                f"{ledger} does not verify: {len(result.findings):,} findings. Do not train with it; go back to a copy "
                "that verifies, and lower the budgets by what may have been spent since"
            )
        raise typer.Exit(PrivacyRefusal.exit_code)


@app.command()
def export(
    ledger: LedgerFile,
    file: Annotated[Path, typer.Argument(help="Where to write: a name that ends in .csv or .json.")],
    without_ids: Annotated[
        bool, typer.Option("--without-ids", help="Leave out the hashes of the ids, and sort by the numbers.")
    ] = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Export every account for an auditor: CSV, or JSON with all events. Ids appear only as keyed hashes.

    Example: `rpdp ledger export ledger.db accounts.csv --without-ids`
    """
    from rpdp.ledger.inspection.export import export as write

    refuse_overwriting([file], force=force)
    with opened_ledger(ledger) as opened, work_progress() as progress:
        count = write(opened, file, without_ids=without_ids, progress=progress, overwrite=force)
    if as_json:
        print_json({"file": str(file), "records": count, "without_ids": without_ids})
        return
    say_line(f"{file}: {count:,} records{', without ids' if without_ids else ' by keyed hashes'}")


@app.command()
def copy(
    ledger: LedgerFile,
    file: Annotated[Path, typer.Argument(help="Where to write.")],
    as_json: options.Json = False,
) -> None:
    """Copy the ledger for an auditor, without the key of the ids. Works while a run is in progress.

    Example: `rpdp ledger copy ledger.db for-the-auditor.db`
    """
    with opened_ledger(ledger) as opened:
        opened.copy(file)
    if as_json:
        print_json({"file": str(file)})
        return
    say_line(f"{file}: a copy of {ledger} for reading; `rpdp ledger verify {file}` works on it")


@app.command()
def keygen(
    name: Annotated[Path, typer.Argument(help="Writes NAME.key (stays with the steward) and NAME.pub.")],
    passphrase: Annotated[
        str | None,
        typer.Option("--passphrase", envvar="RPDP_STEWARD_PASSPHRASE", help="Encrypts the private key."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Make a steward's key pair. The public key is given to `rpdp ledger create`.

    Example: `rpdp ledger keygen steward`
    """
    from rpdp.ledger import StewardKey

    private, public = name.with_name(f"{name.name}.key"), name.with_name(f"{name.name}.pub")
    refuse_overwriting([private, public], force=False)
    key = StewardKey()
    key.write(private, passphrase)
    key.public.write(public)
    if as_json:
        print_json({"private": str(private), "public": str(public), "encrypted": bool(passphrase)})
        return
    say_line(f"{private}: keep it away from the ledger{'' if passphrase else '; it is not encrypted (--passphrase)'}")
    say_line(f"{public}: for `rpdp ledger create --steward`")


@app.command()
def head(
    ledger: LedgerFile,
    acknowledge: Annotated[
        Path | None,
        typer.Option(
            "--acknowledge", help="A head (JSON) that the server has countersigned: store it, and refuse older states."
        ),
    ] = None,
    wait: options.Wait = 0.0,
    succession: Annotated[
        Path | None,
        typer.Option("--succession", help="Write which lost ledger this one succeeds, for `rpdp ledger accept`."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Print the head of the public events (admissions, charges, releases, cancellations), for the server to keep.

    Example: `rpdp ledger head ledger.db --json > head.json`
    """
    from rpdp.ledger import Ledger, PublicHead
    from rpdp.ledger.succession import Succession

    if succession is not None:
        with opened_ledger(ledger) as opened, private_file(succession, overwrite=False, mode=0o644) as file:
            file.write(f"{Succession.of(opened).to_json()}\n".encode())
    if acknowledge is not None:
        text = acknowledge.read_text(encoding="utf-8")
        with Ledger.open(ledger, acknowledged=PublicHead.from_json(text), wait=wait) as writer:
            found = writer.public_head()
    else:
        with opened_ledger(ledger) as opened:
            found = opened.public_head()
    if as_json:
        print_json(asdict(found))
        return
    say_line(f"ledger {found.ledger}, {found.count:,} public events, head {found.head}")
