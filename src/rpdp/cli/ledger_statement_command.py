"""`rpdp ledger statement`: what a person's data was used for and what that can reveal, as a page for the person."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rpdp.checks import require_choice
from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.ledger_access import KeyFile, LedgerFile, opened_ledger, work_progress
from rpdp.cli.output import print_json, refuse_overwriting, say, say_line
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.ledger.inspection.person_explanation import NamedAs
    from rpdp.statements.batch import PageStyle, Recipient


def statement(
    ledger: LedgerFile,
    person: Annotated[
        str | None, typer.Argument(help="A person: the id of the subject, or of one of the records.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write; by default a name that tells nobody who it is about."),
    ] = None,
    people: Annotated[
        Path | None,
        typer.Option(
            "--people",
            help="Instead of PERSON: a CSV file with the column person and, if pages are to be "
            "sealed for each, passphrase.",
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="With --people: a directory, which only you may enter.")
    ] = None,
    file_format: Annotated[str, typer.Option("--format", help="html, or pdf where Chromium is at hand.")] = "html",
    language: Annotated[
        str, typer.Option("--language", help="en, de, or a message catalogue of your own (NAME.toml).")
    ] = "en",
    hospital: Annotated[str, typer.Option("--hospital", help="Who keeps the data, as people know it.")] = "",
    contact: Annotated[str, typer.Option("--contact", help="How to reach those who change budgets.")] = "",
    passphrase_file: Annotated[
        Path | None,
        typer.Option("--passphrase-file", help="Seal pages: they open offline in a browser, with this passphrase."),
    ] = None,
    named_as: Annotated[
        str | None, typer.Option("--as", help="subject or record, if an id could be either.", show_default=False)
    ] = None,
    key: KeyFile = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write a page for a person: who used the data and for what, what that can reveal at most, what is left.

    One self-contained page, which prints as it is. With --json: its facts, and no page unless --output is given.

    Example: `rpdp ledger statement ledger.db patient-0017 --language de --hospital "Hospital A"`
    """
    from rpdp.statements.batch import FORMATS, PageStyle, Recipient, read_passphrase, read_recipients
    from rpdp.statements.statement_words import load_words

    if (person is None) == (people is None):
        raise InputError("name one PERSON, or many with --people LIST --into DIRECTORY")
    if (people is None) != (into is None):
        raise InputError("--people and --into go together")
    if people is not None and output is not None:
        raise InputError("--output is for one PERSON; pages of --people go --into a directory")
    require_choice("--format", file_format, FORMATS)
    if named_as is not None:
        require_choice("--as", named_as, ("subject", "record"))
    meant = cast("NamedAs | None", named_as)  # checked above
    style = PageStyle(load_words(language), hospital, contact, file_format)
    passphrase = None if passphrase_file is None else read_passphrase(passphrase_file)
    if people is not None and into is not None:
        recipients = read_recipients(people)
        if passphrase is not None:
            recipients = [Recipient(one.person, one.passphrase or passphrase) for one in recipients]
        _write_many(ledger, key, recipients, into, style, meant, force=force, as_json=as_json)
    elif person is not None:
        recipient = Recipient(person, passphrase)
        _write_one(ledger, key, recipient, output, style, meant, force=force, as_json=as_json)


def _write_one(
    ledger: Path,
    key: Path | None,
    recipient: Recipient,
    output: Path | None,
    style: PageStyle,
    named_as: NamedAs | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    from rpdp.private_files import private_file
    from rpdp.statements.statement import facts_of, statement_of

    with opened_ledger(ledger, key) as opened:
        found = statement_of(opened, recipient.person, named_as)
    file = output or (None if as_json else Path(style.file_name(found)))
    refuse_overwriting([file], force=force)
    if file is not None:
        content = style.content(found, recipient.passphrase)
        with private_file(file, overwrite=force) as writer:
            writer.write(content)
    if as_json:
        print_json({"file": None if file is None else str(file), **facts_of(found)})
        return
    say_line(f"{file}")
    shown = "It is sealed." if recipient.passphrase else "Only you can read the file; it names the person."
    say(f"{style.words('guess', odds=found.odds.text(style.words))} {shown}")


def _write_many(
    ledger: Path,
    key: Path | None,
    recipients: list[Recipient],
    into: Path,
    style: PageStyle,
    named_as: NamedAs | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    from rpdp.statements.batch import write_statements

    with opened_ledger(ledger, key) as opened, work_progress() as progress:
        written = write_statements(
            opened, recipients, into, style, named_as=named_as, overwrite=force, progress=progress
        )
    if as_json:
        print_json({"directory": str(into), "statements": written})
        return
    say(f"{into}: {len(written):,} statements. Only you can enter it; with --json, the file of each person is listed.")
