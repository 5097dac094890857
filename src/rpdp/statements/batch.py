"""Statements for many people: one private file for each, in a private directory, under a name that tells nobody whose.

A list is a CSV file with the column `person` (a subject, or any record of the person) and, if pages are to be sealed
with a passphrase for each person, the column `passphrase`.
"""

from __future__ import annotations

import csv
import io
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.store.roster import ABSENT, Roster
from rpdp.private_files import private_file, read_regular
from rpdp.statements.pdf import pdf_of
from rpdp.statements.statement import statement_of
from rpdp.statements.statement_page import page_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rpdp.ledger.inspection.person_explanation import NamedAs
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.statements.statement import Statement
    from rpdp.statements.statement_words import Catalogue

FORMATS = ("html", "pdf")
_COLUMNS = (["person"], ["person", "passphrase"])


@dataclass(frozen=True)
class Recipient:
    """A person who gets a statement, and the passphrase of the page, if it is sealed."""

    person: str
    passphrase: str | None = None

    __repr__ = counts_repr


@dataclass(frozen=True)
class PageStyle:
    """How pages are written: the words, who keeps the data, how to reach them, "html" or "pdf"."""

    words: Catalogue
    hospital: str = ""
    contact: str = ""
    format: str = "html"

    def content(self, statement: Statement, passphrase: str | None) -> bytes:
        """The file of a statement, sealed if there is a passphrase."""
        page = page_of(statement, self.words, hospital=self.hospital, contact=self.contact)
        if self.format == "pdf":
            if passphrase is not None:
                raise InputError("a PDF is not sealed; write sealed HTML, or a PDF without a passphrase")
            return pdf_of(page)
        if passphrase is not None:
            from rpdp.statements.sealed_page import sealed_page

            page = sealed_page(page, passphrase, self.words)
        return page.encode()

    def file_name(self, statement: Statement) -> str:
        """A keyed name."""
        return f"statement-{statement.name}.{self.format}"


def read_recipients(path: Path) -> list[Recipient]:
    """Read a list of people; every problem names its line."""
    try:
        rows = list(csv.reader(io.StringIO(read_regular(path).decode("utf-8-sig"), newline=""), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a list of people: {error}") from None
    if not rows or rows[0] not in _COLUMNS:
        raise InputError(f"{path}: the first line must be `person`, or `person,passphrase`")
    if len(rows[0]) == 2:
        _require_private(path)
    found: dict[str, Recipient] = {}
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if len(row) != len(rows[0]) or not all(row):
            raise InputError(f"{path}, line {number}: needs {' and '.join(rows[0])}")
        if row[0] in found:
            raise InputError(f"{path}, line {number}: person {row[0]!r} is there twice")
        found[row[0]] = Recipient(*row)
    if not found:
        raise InputError(f"{path} names nobody")
    return list(found.values())


def read_passphrase(path: Path) -> str:
    """The first line of a file that only its owner may read."""
    try:
        passphrase = read_regular(path).decode().splitlines()[0]
    except (OSError, UnicodeDecodeError, IndexError) as error:
        raise InputError(f"{path}: no passphrase can be read from it ({error})") from None
    _require_private(path)
    return passphrase


def _require_private(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        raise PrivacyRefusal(f"{path} holds passphrases and can be read by others; run chmod 600 on it")


def write_statements(
    ledger: LedgerBase,
    recipients: Sequence[Recipient],
    directory: Path,
    style: PageStyle,
    *,
    named_as: NamedAs | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> dict[str, str]:
    """Write a page for each of these people and return their file names. Nothing is written if one is unknown.

    Stopped in between, the pages so far are complete; `overwrite` writes them again.
    """
    with ledger.reading():
        _require_known(ledger, [one.person for one in recipients])
    _private_directory(directory)
    written = {}
    for number, one in enumerate(recipients):
        statement = statement_of(ledger, one.person, named_as)
        content = style.content(statement, one.passphrase)
        written[one.person] = style.file_name(statement)
        with private_file(directory / written[one.person], overwrite=overwrite) as file:
            file.write(content)
        progress("writing statements", number + 1, len(recipients))
    return written


def _require_known(ledger: LedgerBase, names: Sequence[str]) -> None:
    """Refuse names that are neither a subject nor a record, in one pass over the ledger."""
    ids = pa.chunked_array([pa.array(names, pa.string())])
    records, subjects = Roster(ledger.key.records(ids)), Roster(ledger.key.subjects(ids))
    known = np.zeros(len(names), dtype=bool)
    for chunk in ledger.records.chunks:
        for roster, hashes in ((records, ledger.records.hashes(chunk)), (subjects, ledger.records.subjects(chunk))):
            if hashes is not None:
                found = roster.find(hashes)
                known[found[found != ABSENT]] = True
    missing = np.flatnonzero(~known)
    if missing.size:
        raise InputError(
            f"{missing.size:,} of {len(names):,} people are not in {ledger.files.database}, first "
            f"{names[missing[0]]!r}; nothing was written"
        )


def _private_directory(directory: Path) -> None:
    """Make a directory that only its owner may enter; one that is there already must be like that."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise InputError(f"{directory} is not a directory; choose another name") from None
        if status.st_mode & 0o077:
            raise PrivacyRefusal(
                f"{directory} can be entered by others, who would see how many people there are; run chmod 700 on it"
            ) from None
    except OSError as error:
        raise InputError(f"{directory}: cannot be made: {error.strerror or error}") from None
