"""Bugs of what people are told: odds that are too small, uses that are left out, texts that act."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BOUND = "tests/statements/test_lifetime_bound.py::"
_STATEMENT = "tests/statements/test_statement.py::"

STATEMENTS = (
    Mutant(
        "what-was-booked-before-a-lowering-is-not-told",
        "section 9",
        "ledger/inspection/lifetime_bound.py",
        "    epsilon, delta = np.maximum(in_force[0], used), np.maximum(delta, booked_delta)\n",
        "    epsilon, delta = in_force\n",
        (f"{_BOUND}test_what_was_booked_before_a_budget_was_lowered_counts",),
    ),
    Mutant(
        "a-statement-about-one-record-of-several",
        "section 9",
        "ledger/inspection/person_explanation.py",
        "Persons.of(ledger.records, record[None], [name]).members if known",
        "record[None] if known",
        (f"{_STATEMENT}test_any_id_of_a_person_gives_the_whole_person",),
    ),
    Mutant(
        "odds-of-the-largest-record-alone",
        "section 9",
        "ledger/inspection/lifetime_bound.py",
        "parts * math.fsum(epsilon)",
        "parts * float(epsilon.max())",
        (f"{_STATEMENT}test_two_records_three_runs_a_withdrawal",),
    ),
    Mutant(
        "part-of-a-filter-is-told",
        "section 7",
        "ledger/inspection/lifetime_bound.py",
        "((held.order > 0) & (held.booked > 0)).any()",
        "((held.order > 0) & (held.booked < 0)).any()",
        (f"{_STATEMENT}test_a_renyi_account_gives_no_number_for_a_part",),
    ),
    Mutant(
        "one-silo-told-for-all",
        "section 9",
        "ledger/inspection/lifetime_bound.py",
        "ledger.terms.parts)\n",
        "1)\n",
        (f"{_BOUND}test_silos_that_are_used_up_reveal_more_than_one_of_them",),
    ),
    Mutant(
        "odds-rounded-down",
        "section 9",
        "statements/odds_words.py",
        "math.ceil(self.guesses * scale)",
        "math.floor(self.guesses * scale)",
        ("tests/statements/test_words.py::test_odds_are_rounded_up",),
    ),
    Mutant(
        "reasons-act-on-a-statement",
        "section 9",
        "statements/page_templates.py",
        "        autoescape=True,\n",
        "        autoescape=False,\n",
        (f"{_STATEMENT}test_a_page_is_text_whatever_it_holds",),
    ),
    Mutant(
        "statements-in-a-directory-of-others",
        "rule 6",
        "statements/batch.py",
        "        if status.st_mode & 0o077:\n",
        "        if status.st_mode & 0o000:\n",
        ("tests/statements/test_batch.py::test_nothing_is_written_for_a_list_with_an_unknown_person",),
    ),
)
