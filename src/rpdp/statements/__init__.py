"""Pages for the people whose budgets these are: a statement for every person, budgets as odds, a consent form."""

from __future__ import annotations

from rpdp.statements.odds_words import explain_budget
from rpdp.statements.statement import Statement, statement_of
from rpdp.statements.statement_page import statement_page

__all__ = ["Statement", "explain_budget", "statement_of", "statement_page"]
