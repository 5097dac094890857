"""A statement as one page: it loads nothing, has no script, and prints as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.statements.page_templates import render_page
from rpdp.statements.statement import statement_of
from rpdp.statements.statement_words import load_words

if TYPE_CHECKING:
    from rpdp.ledger.inspection.person_explanation import NamedAs
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.statements.statement import Statement
    from rpdp.statements.statement_words import Catalogue


def statement_page(
    ledger: LedgerBase,
    person: str,
    *,
    language: str = "en",
    hospital: str = "",
    contact: str = "",
    named_as: NamedAs | None = None,
) -> str:
    """Return the statement of a person as an HTML page.

    Args:
        ledger: The ledger, open for reading or writing.
        person: The id of the person (a subject), or of one of the person's records.
        language: "en", "de", or the path of a message catalogue that ends in .toml.
        hospital: Who keeps the data; left empty, the page says "your hospital".
        contact: How to reach those who change budgets.
        named_as: Whether `person` is a subject or a record, if it could be either.
    """
    return page_of(statement_of(ledger, person, named_as), load_words(language), hospital=hospital, contact=contact)


def page_of(statement: Statement, words: Catalogue, *, hospital: str = "", contact: str = "") -> str:
    """Return a statement as an HTML page."""
    return render_page(
        "statement.html.j2",
        words,
        statement=statement,
        odds=statement.odds,
        so_far=statement.odds_so_far,
        hospital=hospital or words("hospital"),
        contact=contact,
    )
