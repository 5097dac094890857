"""Steward actions of `rpdp ledger`: withdraw, reconsent, lower, raise, add. Each has an actor and a reason."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.ledger_access import LedgerFile, opened_ledger, work_progress
from rpdp.cli.output import print_json, say
from rpdp.errors import InputError, PrivacyRefusal

if TYPE_CHECKING:
    from rpdp.ledger import Action, Ledger, StewardKey

Records = Annotated[list[str] | None, typer.Argument(metavar="RECORD…", help="Record ids.")]
Reason = Annotated[str, typer.Option("--reason", help="Kept with the action in the ledger; it stays in the silo.")]
Actor = Annotated[
    str | None, typer.Option("--actor", help="Who acts, kept in the ledger; by default the user of this system.")
]
NewEpsilon = Annotated[float | None, typer.Option("--epsilon", help="The new lifetime ε of these records.")]
NewDelta = Annotated[float | None, typer.Option("--delta", help="The new lifetime δ of these records.")]
NewBudgets = Annotated[
    Path | None, typer.Option("--budgets", "-b", help="Instead: a budget file with the new budgets.")
]
Subjects = Annotated[list[str] | None, typer.Option("--subject", help="All records of a person. Repeatable.")]
StewardKeyFile = Annotated[Path | None, typer.Option("--steward-key", help="The steward's private key (see keygen).")]
Passphrase = Annotated[
    str | None, typer.Option("--passphrase", envvar="RPDP_STEWARD_PASSPHRASE", help="Of the steward's key.")
]


def withdraw(
    ledger: LedgerFile,
    records: Records = None,
    subject: Subjects = None,
    reason: Reason = "",
    actor: Actor = None,
    as_json: options.Json = False,
) -> None:
    """Withdraw consent: from the next local step on the records are not drawn again. Nothing is refunded.

    Example: `rpdp ledger withdraw ledger.db patient-0017 --reason "letter of 3 May"`
    """
    with opened_ledger(ledger) as opened:
        action = opened.withdraw(records or [], subjects=subject or [], reason=reason, actor=actor)
    _report_action(ledger, action, "withdrawn", as_json=as_json)


def reconsent(
    ledger: LedgerFile,
    records: Records = None,
    subject: Subjects = None,
    key: StewardKeyFile = None,
    passphrase: Passphrase = None,
    reason: Reason = "",
    actor: Actor = None,
    as_json: options.Json = False,
) -> None:
    """End a withdrawal, signed by the steward whose key the ledger was created with. In force from the next run on.

    What was spent stays spent. A run that the record withdrew from never draws it again.

    Example: `rpdp ledger reconsent ledger.db patient-0017 --steward-key steward.key --reason "form of 9 June"`
    """
    signer = _signer(key, passphrase, "a withdrawal is ended")
    with opened_ledger(ledger) as opened:
        action = opened.reconsent(records or [], subjects=subject or [], key=signer, reason=reason, actor=actor)
    _report_action(ledger, action, "taken back in", as_json=as_json)


def lower(
    ledger: LedgerFile,
    records: Records = None,
    subject: Subjects = None,
    epsilon: NewEpsilon = None,
    delta: NewDelta = None,
    budgets: NewBudgets = None,
    reason: Reason = "",
    actor: Actor = None,
    as_json: options.Json = False,
) -> None:
    """Lower lifetime budgets, at any time. A budget below what is spent removes the record from current runs.

    In a ledger with subjects a budget is that of the person: it is divided among all of the person's records.

    Example: `rpdp ledger lower ledger.db patient-0017 --epsilon 0.5`
    """
    with opened_ledger(ledger) as opened:
        names, new_epsilon, new_delta = _new_budgets(opened, records, subject, epsilon, delta, budgets)
        action = opened.lower_budgets(names, new_epsilon, new_delta, subjects=subject or [], reason=reason, actor=actor)
    _report_action(ledger, action, "lowered", as_json=as_json)


def raise_(
    ledger: LedgerFile,
    records: Records = None,
    subject: Subjects = None,
    key: StewardKeyFile = None,
    epsilon: NewEpsilon = None,
    delta: NewDelta = None,
    budgets: NewBudgets = None,
    passphrase: Passphrase = None,
    reason: Reason = "",
    actor: Actor = None,
    as_json: options.Json = False,
) -> None:
    """Raise lifetime budgets, signed by the steward whose key the ledger was created with.

    In a ledger with subjects a budget is that of the person: it is divided among all of the person's records.

    Example: `rpdp ledger raise ledger.db patient-0017 --epsilon 2 --steward-key steward.key --reason "new consent"`
    """
    signer = _signer(key, passphrase, "budgets are raised")
    with opened_ledger(ledger) as opened:
        names, new_epsilon, new_delta = _new_budgets(opened, records, subject, epsilon, delta, budgets)
        subjects = subject or []
        action = opened.raise_budgets(
            names, new_epsilon, new_delta, subjects=subjects, key=signer, reason=reason, actor=actor
        )
    _report_action(ledger, action, "raised", as_json=as_json)


def add(
    ledger: LedgerFile,
    budgets: Annotated[
        Path, typer.Option("--budgets", "-b", help="The new records, or their persons, and lifetime budgets.")
    ],
    records: options.RecordsFile = None,
    reason: Reason = "",
    actor: Actor = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Add new records to the ledger. Not while a run or an agent has it open.

    Records of a person who is in the ledger share what is left of the person.

    Example: `rpdp ledger add ledger.db --budgets new-patients.csv`
    """
    from rpdp.budgets import BudgetTable
    from rpdp.ledger import Ledger

    table = BudgetTable.read(budgets, records=records)
    with Ledger.open(ledger, wait=wait) as opened, work_progress() as progress:
        count = opened.add(table, progress, reason=reason, actor=actor)
        total = len(opened.records)
    if as_json:
        print_json({"file": str(ledger), "added": count, "records": total})
        return
    say(f"{ledger}: {count:,} records added, {total:,} in all")


def enrol(
    ledger: LedgerFile,
    records: Records = None,
    subject: Subjects = None,
    every: Annotated[
        bool, typer.Option("--all", help="All records of whose person nothing is booked or held.")
    ] = False,
    reason: Reason = "",
    actor: Actor = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Enrol records with sum accounts anew, as Rényi accounts, which pay for more runs. For life.

    Only records of whose person nothing is booked or held: a kind of account with bookings stays. Persons are enrolled
    with all of their records. Not while a run or an agent has the ledger open.

    Example: `rpdp ledger enrol ledger.db --all --reason "Renyi accounts from now on"`
    """
    from rpdp.ledger import Ledger

    if every == bool(records or subject):
        raise InputError("name records or a --subject, or give --all")
    with Ledger.open(ledger, wait=wait) as opened:
        count = opened.enrol(records or [], subjects=subject or [], reason=reason, actor=actor)
        total = len(opened.records)
    if as_json:
        print_json({"file": str(ledger), "enrolled": count, "records": total})
        return
    say(f"{ledger}: {count:,} of {total:,} records have Rényi accounts now; the others stay as they are.")


def _signer(key: Path | None, passphrase: str | None, what: str) -> StewardKey:
    """Read the steward's private key."""
    from rpdp.ledger import StewardKey

    if key is None:
        raise PrivacyRefusal(f"{what} only with the steward's signature: give --steward-key")
    return StewardKey.read(key, passphrase)


def _new_budgets(
    ledger: Ledger,
    records: list[str] | None,
    subjects: list[str] | None,
    epsilon: float | None,
    delta: float | None,
    budgets: Path | None,
) -> tuple[list[str], Any, Any]:
    """Return the records named and their persons' new budgets; the ledger divides them among a person's records."""
    if budgets is None:
        if not records and not subjects:
            raise InputError("name at least one record or --subject, or give --budgets FILE")
        return records or [], epsilon, delta
    if records or subjects or epsilon is not None or delta is not None:
        raise InputError("--budgets FILE names records and budgets: leave out RECORD, --subject, --epsilon and --delta")
    from rpdp.budgets import BudgetTable

    table = BudgetTable.read(budgets)
    names = table.ids.to_pylist()
    if table.subjects is not None and (table.subject_sizes() > ledger.subject_sizes(names)).any():
        raise InputError(
            f"{budgets}: a subject has more records there than in the ledger, which knows other subjects or none; "
            "leave out the column, and give each record its own budget"
        )
    return names, table.epsilon, table.delta


def _report_action(ledger: Path, action: Action, done: str, *, as_json: bool) -> None:
    """Book the action now, unless a run holds the ledger: then that run books it."""
    from rpdp.ledger.stewardship.prompt_booking import book_now

    booked = book_now(ledger)
    count = len(action.hashes)
    if as_json:
        print_json(
            {"file": str(ledger), "action": action.name, "kind": action.kind, "records": count, "booked": booked}
        )
        return
    when = (
        "booked"
        if booked
        else "in force from the next local step on; the run that holds the ledger books it with its next round"
    )
    say(f"{ledger}: {count:,} {'record' if count == 1 else 'records'} {done}, {when}.")
