"""Bugs of imports of consent: what was revoked stays, what was not agreed to is allowed, half of it is done."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FHIR = "tests/consent/test_fhir.py::"
_IMPORT = "tests/consent/test_import.py::"
_CHANGES = "ledger/stewardship/wanted_budgets.py"

CONSENT = (
    Mutant(
        "a-consent-entered-in-error-counts",
        "section 8",
        "consent/fhir_consent.py",
        '    "R4B": frozenset({"rejected", "inactive", "entered-in-error"}),\n',
        '    "R4B": frozenset({"rejected", "inactive"}),\n',
        (f"{_FHIR}test_every_status",),
    ),
    Mutant(
        "an-expired-consent-counts",
        "section 8",
        "consent/fhir_consent.py",
        'if period.get("end") is not None and Span.parse(period["end"], self._map.time_zone).end <= self._now:\n',
        'if period.get("end") is None and Span.parse(period["end"], self._map.time_zone).end <= self._now:\n',
        (f"{_FHIR}TestPeriods::test_a_provision_holds_in_its_period",),
    ),
    Mutant(
        "the-first-statement-counts",
        "section 8",
        "consent/consent_statements.py",
        "    newest, latest = dated[-1]\n",
        "    newest, latest = dated[0]\n",
        (f"{_FHIR}TestSeveralOfOnePerson::test_the_latest_counts",),
    ),
    Mutant(
        "a-tie-is-settled-by-chance",
        "rule 12",
        "consent/consent_statements.py",
        "        if written.end > newest.start:\n",
        "        if written.start > newest.start:\n",
        (f"{_FHIR}TestSeveralOfOnePerson::test_ties_are_an_error",),
    ),
    Mutant(
        "a-consent-for-some-users-is-for-all",
        "rule 12",
        "consent/fhir_consent.py",
        "_require_plain(place, provision, *(set(provision) - _PLAIN - ",
        "_require_plain(place, provision, *(set(provision) - set(provision) - ",
        (f"{_FHIR}test_what_is_wrong_is_named_with_the_resource",),
    ),
    Mutant(
        "a-denied-code-is-allowed",
        "section 8",
        "consent/fhir_consent.py",
        "for code, choice in self._permitted.items() if code not in self._denied}\n",
        "for code, choice in self._permitted.items()}\n",
        (f"{_FHIR}TestProvisions::test_what_is_denied_anywhere_is_denied",),
    ),
    Mutant(
        "withdrawals-are-submitted-before-the-signature-is-checked",
        "rule 12",
        _CHANGES,
        "            for action in signed:\n                action.require_signature(self.steward)\n",
        "",
        (f"{_IMPORT}TestNothingIsChangedIfAnythingIsWrong::test_a_raise_without_the_right_signature",),
    ),
    Mutant(
        "one-record-of-a-person-withdraws",
        "section 7",
        _CHANGES,
        '        actions = acts.named("withdraw", persons.members[withdraw[persons.of_member]])\n',
        '        actions = acts.named("withdraw", persons.members[withdraw[persons.of_member]][:1])\n',
        (f"{_IMPORT}test_withdrawn_before_the_next_step_of_a_run",),
    ),
    Mutant(
        "budgets-are-never-lowered",
        "section 8",
        _CHANGES,
        "        lower, higher = less | less_delta, more | more_delta\n",
        "        lower, higher = less_delta, more | more_delta\n",
        (f"{_IMPORT}test_every_kind_of_change",),
    ),
)
