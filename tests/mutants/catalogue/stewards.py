"""Bugs of steward actions: who acted, consent that is given again, records of persons who are known already."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ACTORS = "tests/ledger/test_actors.py::"
_ENROLMENT = "tests/ledger/test_enrolment.py::"
_SHARING = "tests/ledger/test_sharing.py::"

STEWARDS = (
    Mutant(
        "consent-given-again-rejoins-the-run",
        "section 8",
        "ledger/balances.py",
        "            self._of_run = known = (run, off, pending, np.union1d(off, since))\n",
        "            self._of_run = known = (run, off, pending, np.union1d(off, since[:0]))\n",
        (f"{_ACTORS}test_consent_given_again_holds_from_the_next_run_on",),
    ),
    Mutant(
        "a-resumed-run-forgets-who-withdrew",
        "section 8",
        "ledger/cached_balances.py",
        "                balances.follow(admission.run, self.booked_actions(after=admission.seq))\n",
        "                balances.follow(admission.run, ())\n",
        (f"{_ACTORS}test_a_run_that_is_resumed_stays_without_the_record",),
    ),
    Mutant(
        "a-withdrawal-ended-without-a-signature",
        "rule 12",
        "ledger/stewardship/actions.py",
        'SIGNED: tuple[ActionKind, ...] = ("raise", "reconsent")\n',
        'SIGNED: tuple[ActionKind, ...] = ("raise",)\n',
        (f"{_ACTORS}test_only_the_steward_ends_a_withdrawal",),
    ),
    Mutant(
        "the-server-learns-which-steward-acted",
        "rule 14",
        "ledger/store/chain.py",
        '        fields |= {"by": facts["by"], "reason": facts["reason"]}\n',
        '        fields |= {"by": facts["by"], "reason": facts["reason"], "actor": facts.get("actor")}\n',
        (f"{_ACTORS}test_the_actor_of_a_cancellation_is_not_public",),
    ),
    Mutant(
        "an-export-without-ids-names-who-acted",
        "rule 6",
        "ledger/inspection/export.py",
        '    "action",\n    "actor",\n',
        '    "action",\n',
        (f"{_ACTORS}test_an_export_names_actors_unless_it_is_without_ids",),
    ),
    # New records of known persons
    Mutant(
        "what-a-person-has-booked-is-forgotten",
        "section 7",
        "ledger/stewardship/sharing.py",
        "    epsilon = np.where(is_sum, left_of(held.epsilon, held.booked, EPSILON_SHIFT), held.epsilon)\n",
        "    epsilon = held.epsilon\n",
        (f"{_SHARING}test_what_is_left_is_shared_and_nothing_booked_is_forgotten",),
    ),
    Mutant(
        "old-records-keep-what-new-ones-share",
        "section 7",
        "ledger/stewardship/sharing.py",
        "    old_parts = left * (before / after)[known.of_member] * _CAREFUL\n",
        "    old_parts = left * _CAREFUL\n",
        (f"{_SHARING}test_of_a_person_of_whom_nothing_is_booked_all_parts_are_even",),
    ),
    Mutant(
        "a-divided-filter",
        "section 7",
        "ledger/stewardship/sharing.py",
        "np.bincount(known.of_member, (held.order > 0) & (held.booked > 0), known.persons) > 0\n",
        "np.bincount(known.of_member, (held.order > 0) & (held.booked < 0), known.persons) > 0\n",
        (f"{_SHARING}test_what_is_left_of_a_renyi_account_is_not_shared",),
    ),
    Mutant(
        "what-a-run-holds-is-shared",
        "section 8",
        "ledger/stewardship/sharing.py",
        "    _require_nothing_held(runs, store, held)\n",
        "",
        (f"{_SHARING}test_what_a_run_holds_is_not_shared",),
    ),
    Mutant(
        "an-action-comes-between",
        "rule 17",
        "ledger/stewardship/bookings.py",
        "                self._action_book.book(booked)\n                sharing =",
        "                booked.clear()\n                sharing =",
        (f"{_SHARING}test_no_action_comes_between",),
    ),
    Mutant(
        "uneven-parts-raised-to-even-ones",
        "section 7",
        "ledger/stewardship/persons.py",
        "        return epsilon, np.where",
        "        return np.full(len(more), new.max() / 2), np.where",
        (f"{_SHARING}test_raising_and_lowering_uneven_parts",),
    ),
    Mutant(
        "delta-of-a-person-in-any-order",
        "section 7",
        "budgets/person_split.py",
        "    order = np.lexsort((-rate, person))\n",
        "    order = np.lexsort((rate, person))\n",
        ("tests/budgets/test_person_split.py::test_the_smallest_of_all_orders",),
    ),
    Mutant(
        "verify-ignores-what-persons-share",
        "section 7",
        "ledger/inspection/sharing_replay.py",
        "    if (share > most * (1.0 + _ROUNDING)).any():\n",
        "    if (share > 2.0 * most).any():\n",
        (f"{_SHARING}test_verify_finds_parts_that_are_too_large",),
    ),
    Mutant(
        "verify-accepts-records-that-share-nothing",
        "section 7",
        "ledger/inspection/sharing_replay.py",
        '        if stated is None or stated["lower"] != event.seq - 1:\n',
        '        if stated is None:\n            continue\n        if stated["lower"] != event.seq - 1:\n',
        (f"{_SHARING}test_verify_finds_records_that_share_nothing",),
    ),
    # Enrolling anew
    Mutant(
        "an-account-with-bookings-changes-its-kind",
        "section 7",
        "ledger/stewardship/enrolment.py",
        "    taken: NDArray[np.bool_] = (booked != 0) | (booked_delta != 0) | (store.orders(chunk) > 0)\n",
        "    taken: NDArray[np.bool_] = (booked < 0) | (booked_delta < 0) | (store.orders(chunk) > 0)\n",
        (f"{_ENROLMENT}test_what_is_booked_or_held_stays",),
    ),
    Mutant(
        "a-person-with-two-kinds-of-accounts",
        "section 7",
        "ledger/stewardship/enrolment.py",
        "            is_free &= persons.find(subjects) == ABSENT\n",
        "            pass\n",
        (f"{_ENROLMENT}test_all_of_whose_person_nothing_is_booked",),
    ),
    Mutant(
        "sums-of-several-silos-become-filters",
        "section 7",
        "ledger/stewardship/enrolment.py",
        "    if terms.silos_per_person > 1:\n",
        "    if terms.silos_per_person > 2:\n",
        (f"{_ENROLMENT}test_silos_of_a_person_keep_one_kind",),
    ),
    Mutant(
        "a-raised-delta-is-forgotten-when-enrolled",
        "section 7",
        "ledger/stewardship/enrolment.py",
        "        raised |= delta > before\n",
        "        pass\n",
        (f"{_ENROLMENT}test_a_raised_delta_keeps_its_kind_of_account",),
    ),
    Mutant(
        "a-raise-gives-others-what-one-has-used",
        "section 7",
        "ledger/stewardship/persons.py",
        "        missing = np.bincount(self.of_member, uncovered)[self.of_member]\n",
        "        missing = np.zeros(len(old))\n",
        (f"{_SHARING}test_a_raise_covers_first_what_was_booked_before_a_lowering",),
    ),
)
