"""Bugs of successors of lost ledgers: what they carry over, what they say, and who accepts them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RECOVERY = "tests/ledger/test_recovery.py::"
_SUCCESSIONS = "tests/federation/test_successions.py::"

RECOVERY = (
    Mutant(
        "runs-after-the-last-export-are-forgotten",
        "rule 9",
        "ledger/recovery.py",
        "np.where(is_whole, room, np.minimum(room, later))",
        "np.where(is_whole, room, 0)",
        (f"{_RECOVERY}test_a_run_that_was_only_held_may_have_made_room_for_another",),
    ),
    Mutant(
        "records-that-no-export-knows-begin-anew",
        "rule 9",
        "ledger/recovery.py",
        "np.where(is_whole, room, np.minimum(room, later))",
        "np.where(is_new, 0, np.minimum(room, later))",
        (f"{_RECOVERY}test_orders_withdrawals_and_unknown_records",),
    ),
    Mutant(
        "a-run-that-was-held-takes-a-place-for-good",
        "rule 10",
        "ledger/last_export.py",
        'if event.kind == "charge"',
        'if event.kind == "admit"',
        (f"{_RECOVERY}test_a_run_that_was_only_held_may_have_made_room_for_another",),
    ),
    Mutant(
        "spending-bounded-by-the-smaller-budget",
        "rule 9",
        "ledger/recovery.py",
        "most[column][known] = np.maximum(most[column][known], here)",
        "most[column][known] = np.minimum(most[column][known], here)",
        (f"{_RECOVERY}test_the_smaller_budget_is_in_force_and_the_larger_one_may_have_been_spent",),
    ),
    Mutant(
        "a-budget-file-raises-budgets-of-a-successor",
        "rule 12",
        "ledger/recovery.py",
        "least[column][known] = np.minimum(least[column][known], here)",
        "least[column][known] = here",
        (f"{_RECOVERY}test_the_smaller_budget_is_in_force_and_the_larger_one_may_have_been_spent",),
    ),
    Mutant(
        "withdrawals-lost-with-the-ledger",
        "rule 12",
        "ledger/store/creation.py",
        "hashes = new.hashes[inherited.withdrawn]",
        "hashes = new.hashes[:0]",
        (f"{_RECOVERY}test_orders_withdrawals_and_unknown_records",),
    ),
    Mutant(
        "orders-chosen-anew-in-a-successor",
        "section 7",
        "ledger/recovery.py",
        "order = np.append(last.order, last.terms.orders(allowed)[fresh])",
        "order = np.append(last.terms.orders(type(allowed)(*least)), last.terms.orders(allowed)[fresh])",
        (f"{_RECOVERY}test_orders_withdrawals_and_unknown_records",),
    ),
    Mutant(
        "a-successor-that-does-not-say-so-in-public",
        "rule 17",
        "ledger/store/chain.py",
        '        fields |= {"predecessor": facts["predecessor"]}\n',
        "        fields |= {}\n",
        (f"{_RECOVERY}test_the_chain_says_whom_it_succeeds",),
    ),
    Mutant(
        "verify-takes-any-inheritance",
        "rule 17",
        "ledger/inspection/verification.py",
        'same = ledger.records.carried_digest(event.seq) == facts["carried"]',
        "same = True",
        (f"{_RECOVERY}test_verify_finds_a_changed_inheritance",),
    ),
    Mutant(
        "a-run-of-the-lost-ledger-goes-on",
        "rule 9",
        "ledger/store/run_book.py",
        'if any(run in event.facts["runs"] for event in self._chain.events(SUCCEED)):',
        'if any(run in event.facts["runs"][:0] for event in self._chain.events(SUCCEED)):',
        (f"{_RECOVERY}test_what_is_left_pays_for_runs_and_never_for_more",),
    ),
    Mutant(
        "a-server-accepts-a-successor-made-from-an-older-head",
        "rule 17",
        "federation/successions.py",
        "        _require_latest(known[silo], succession.predecessor, silo)\n",
        "",
        (f"{_SUCCESSIONS}test_what_a_server_does_not_accept",),
    ),
    Mutant(
        "a-head-of-another-ledger-replaces-the-known-one",
        "rule 17",
        "federation/heads.py",
        "before is None or (before.ledger == head.ledger and head.count >= before.count)",
        "before is None or before.ledger != head.ledger or head.count >= before.count",
        (f"{_SUCCESSIONS}test_a_run_that_goes_on_meanwhile_does_not_bring_the_lost_ledger_back",),
    ),
    Mutant(
        "a-successor-runs-where-nobody-accepted-it",
        "rule 17",
        "federation/heads.py",
        "if silo not in known and ledger.predecessor is not None:",
        "if False:",
        (f"{_SUCCESSIONS}test_a_successor_runs_after_it_was_accepted_and_not_before",),
    ),
    Mutant(
        "an-agent-serves-a-successor-that-nobody-accepted",
        "rule 17",
        "deployment/agent/agent.py",
        "        if lost is not None:\n",
        "        if False:\n",
        (f"{_SUCCESSIONS}test_an_agent_with_a_successor_refuses_a_server_that_does_not_know_it",),
    ),
    Mutant(
        "sums-that-became-filters-are-forgotten",
        "section 7",
        "ledger/recovery.py",
        "_may_be_renyi_by_now(last) & (since != 0)",
        "np.zeros(len(last), dtype=bool)",
        (f"{_RECOVERY}test_sum_accounts_may_be_renyi_accounts_by_now",),
    ),
    Mutant(
        "a-hold-before-the-loss-stays-a-booking",
        "section 7",
        "ledger/recovery.py",
        "np.full(len(last), last.holds > 0) | ",
        "",
        (f"{_RECOVERY}test_a_hold_of_the_export_may_have_been_returned_and_its_records_enrolled",),
    ),
)
