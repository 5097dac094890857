"""Bugs of accounts for a lifetime: the Rényi filter, allowances, own δ, several silos, and what `verify` replays."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FILTER = "tests/accounting/test_renyi_filter.py::"
_DIVERGENCE = "tests/accounting/test_divergence.py::"
_DELTAS = "tests/accounting/test_delta_table.py::"
_ALLOWANCES = "tests/planning/test_allowances.py::"
_ACCOUNTS = "tests/ledger/test_accounts.py::"
_PERSONS = "tests/audit/test_persons.py::"
_LIFETIMES = "tests/ledger/test_lifetimes.py::"
_ADMISSION = "tests/federation/test_admission.py::"

ACCOUNTS = (
    # The filter
    Mutant(
        "conversion-with-the-wrong-sign",
        "section 7",
        "accounting/renyi_filter.py",
        "-np.log1p(1.0 / theta) - (np.log(delta) + np.log(order)) / theta",
        "-np.log1p(1.0 / theta) - (np.log(delta) - np.log(order)) / theta",
        (f"{_FILTER}test_the_conversion_is_that_of_dp_accounting",),
    ),
    Mutant(
        "whole-epsilon-booked-as-divergence",
        "section 7",
        "accounting/renyi_filter.py",
        "np.where(epsilon > 0.0, epsilon - conversion(order, delta), 0.0)",
        "np.where(epsilon > 0.0, epsilon, 0.0)",
        (f"{_ACCOUNTS}test_the_budget_is_that_of_the_filter",),
    ),
    Mutant(
        "nothing-allowed-still-allows-delta",
        "section 7",
        "accounting/renyi_filter.py",
        "np.where(epsilon > 0.0, epsilon - conversion(order, delta), 0.0)",
        "epsilon - conversion(order, delta)",
        (f"{_FILTER}test_a_budget_of_nothing_allows_nothing",),
    ),
    Mutant(
        "envelope-over-larger-budgets-dropped",
        "section 7",
        "accounting/renyi_filter.py",
        "        budget = np.minimum(budget, _least_above(epsilon, joint_delta))\n",
        "        budget = np.minimum(budget, epsilon)\n",
        (f"{_FILTER}test_without_the_envelope_two_silos_exceed_the_largest_epsilon",),
    ),
    Mutant(
        "envelope-of-the-own-order-alone",
        "section 7",
        "accounting/renyi_filter.py",
        "np.minimum(epsilon - prices[piece], np.append(later, np.inf)[piece + 1])",
        "epsilon - prices[piece]",
        (f"{_FILTER}test_without_the_envelope_two_silos_exceed_the_largest_epsilon",),
    ),
    Mutant(
        "envelope-at-a-lowered-delta",
        "section 7",
        "ledger/record_accounts.py",
        "    joint_delta = None if terms is None else terms.joint_delta\n",
        "    joint_delta = None if terms is None or terms.joint_delta is None else float(delta.min())\n",
        (f"{_ACCOUNTS}test_a_lowered_delta_gives_nothing_to_a_person_in_several_silos",),
    ),
    Mutant(
        "order-computed-again-after-a-raise",
        "section 7",
        "ledger/balances.py",
        "        apply_actions(actions, self.roster.find, self.epsilon, self.delta, self.withdrawn, self.order)\n",
        "        apply_actions(actions, self.roster.find, self.epsilon, self.delta, self.withdrawn, self.order)\n"
        "        if self.order.any() and len(actions):\n"
        "            from rpdp.accounting.renyi_filter import order_numbers\n\n"
        "            self.order = order_numbers(self.epsilon, self.delta)\n",
        (f"{_ACCOUNTS}test_raising_adds_the_difference_at_the_same_order_and_lowering_ends_at_what_is_booked",),
    ),
    Mutant(
        "delta-of-a-renyi-account-raised",
        "section 7",
        "ledger/stewardship/actions.py",
        '    is_fixed = (order[rows] > 0) & (action.kind == "raise")\n',
        "    is_fixed = np.zeros(len(rows), dtype=bool)\n",
        (f"{_ACCOUNTS}test_the_delta_of_a_renyi_account_is_never_raised",),
    ),
    Mutant(
        "silos-of-a-person-with-different-deltas",
        "section 7",
        "ledger/ledger.py",
        '        if self.account == "renyi" and self.silos_per_person > 1 and lifetime_delta != self.lifetime_delta:\n',
        '        if self.account == "renyi" and self.silos_per_person > 1 and lifetime_delta > self.lifetime_delta:\n',
        (f"{_ACCOUNTS}test_the_silos_of_a_person_use_one_delta",),
    ),
    Mutant(
        "sum-accounts-not-split-among-silos",
        "section 7",
        "ledger/account_terms.py",
        '        return self.silos_per_person if self.account == "sums" else 1\n',
        "        return 1\n",
        (f"{_ACCOUNTS}test_a_sum_account_holds_a_part_for_each_silo",),
    ),
    # Prices
    Mutant(
        "divergence-divided-by-the-order",
        "section 7",
        "accounting/divergence.py",
        "        return np.asarray(moments * (1.0 + MOMENT_ERROR) / (self.order - 1.0))\n",
        "        return np.asarray(moments * (1.0 + MOMENT_ERROR) / self.order)\n",
        (f"{_DIVERGENCE}test_without_coins_it_is_the_divergence_of_dp_accounting",),
    ),
    Mutant(
        "divergence-of-one-silo-covers-several",
        "section 7",
        "accounting/divergence.py",
        "        covered[rest] = cost[rest] >= times * self.divergence(q[rest])\n",
        "        covered[rest] = cost[rest] >= self.divergence(q[rest])\n",
        (f"{_DIVERGENCE}test_several_silos_cost_several_times_as_much",),
    ),
    Mutant(
        "divergence-not-booked-for-every-silo",
        "section 7",
        "planning/assignment.py",
        "        cost = times * divergence\n",
        "        cost = divergence\n",
        (f"{_ALLOWANCES}test_several_silos_book_every_divergence_several_times",),
    ),
    Mutant(
        "own-delta-rounded-up",
        "section 7",
        "accounting/delta_table.py",
        "    return np.minimum(rounded, delta)  # rounding of the logarithm must not raise it\n",
        "    return rounded * 2.0 ** (1.0 / _DELTAS_PER_OCTAVE)\n",
        (f"{_DELTAS}test_the_lattice_rounds_down_by_less_than_a_fifth",),
    ),
    Mutant(
        "own-delta-priced-at-the-next-larger-probability",
        "section 7",
        "accounting/delta_table.py",
        '        chosen = np.searchsorted(costs, epsilon, side="right") - 1\n',
        '        chosen = np.minimum(np.searchsorted(costs, epsilon, side="right"), costs.size - 1)\n',
        (f"{_DELTAS}test_the_largest_probability_within_a_budget_is_certified",),
    ),
    Mutant(
        "booking-in-place-of-earlier-ones",
        "section 7",
        "ledger/store/run_book.py",
        "                self._store.write_totals(chunk, before + booked[here], delta_before + booked_delta[here])\n",
        "                self._store.write_totals(chunk, booked[here], booked_delta[here])\n",
        (f"{_LIFETIMES}test_a_thousand_lifetimes_of_adaptive_runs_stay_within_their_budget",),
    ),
    # The audit of persons
    Mutant(
        "law-of-one-record-of-a-person",
        "section 7",
        "audit/canary_law.py",
        "        return self.releases * self.records\n",
        "        return self.releases\n",
        (
            "tests/audit/test_law.py::test_samples_follow_the_law",
            "tests/audit/test_law.py::test_log_ratio_is_that_of_the_densities",
        ),
        caught_by="audit",
    ),
    Mutant(
        "canary-persons-priced-as-single-records",
        "section 7",
        "audit/canaries.py",
        "    return BudgetTable(ids, epsilon, subjects=persons)\n",
        "    return BudgetTable(ids, epsilon)\n",
        (f"{_PERSONS}test_persons_with_up_to_four_records_are_within_their_budget",),
        caught_by="audit",
    ),
    Mutant(
        "audit-of-more-silos-than-declared",
        "section 7",
        "audit/run_audit.py",
        'if asked is not None and require_count("silos_per_person", asked) > declared:',
        'if asked is not None and require_count("silos_per_person", asked) > 100:',
        ("tests/audit/test_cli.py::test_persons_that_cannot_be_audited",),
        caught_by="audit",
    ),
    # Allowances
    Mutant(
        "share-of-a-run-not-applied",
        "section 7",
        "ledger/record_accounts.py",
        "np.where(self.withdrawn, 0.0, np.minimum(amount, allowance.share * budget))",
        "np.where(self.withdrawn, 0.0, amount)",
        (f"{_ALLOWANCES}test_a_run_takes_at_most_its_share",),
    ),
    Mutant(
        "share-of-a-run-not-checked-in-the-transaction",
        "rule 17",
        "ledger/record_accounts.py",
        "self.booked) & (plan.cost <= allowed.amount))\n",
        "self.booked))\n",
        (f"{_ACCOUNTS}test_the_share_is_checked_again_in_the_transaction",),
    ),
    Mutant(
        "reserved-share-taken-by-another-purpose",
        "section 7",
        "ledger/record_accounts.py",
        "            amount = _without(amount, share * budget, booked, EPSILON_SHIFT)\n",
        "",
        (f"{_ALLOWANCES}test_a_share_that_is_reserved_is_left_to_its_purpose",),
    ),
    Mutant(
        "training-under-the-name-of-another-purpose",
        "section 7",
        "federation/silo.py",
        "        self._purposes.require(public)\n",
        "",
        (f"{_ADMISSION}test_training_cannot_take_what_is_reserved_for_another_purpose_by_its_name",),
    ),
    Mutant(
        "reserved-share-counted-twice",
        "section 7",
        "ledger/store/run_book.py",
        "                if admission.public.purpose == purpose and admission.run not in without:\n",
        "                if admission.public.purpose != purpose and admission.run not in without:\n",
        (f"{_ACCOUNTS}test_a_reserved_share_is_kept_for_its_purpose",),
    ),
    Mutant(
        "ceiling-of-one-run-ignored-in-renyi-accounts",
        "section 7",
        "planning/assignment.py",
        "            most = np.minimum(most, times * curve.divergence(highest)[0])\n",
        "            pass\n",
        (f"{_ALLOWANCES}test_a_run_alone_stays_below_the_ceiling",),
    ),
    Mutant(
        "prices-of-renyi-accounts-trusted",
        "rule 8",
        "planning/assignment.py",
        "if not is_whole or not curve.covers(plan.q[of_order], plan.cost[of_order], allowed.silos_per_person).all():\n",
        "if not is_whole:\n",
        (f"{_ALLOWANCES}test_a_plan_that_states_less_than_it_costs_is_seen",),
    ),
    Mutant(
        "another-order-booked",
        "section 7",
        "ledger/record_accounts.py",
        "        other = drawn & (plan.order != self.order)\n",
        "        other = drawn & (plan.order < self.order) & (plan.order > 0)\n",
        (f"{_ACCOUNTS}test_another_order_is_refused",),
    ),
    Mutant(
        "costs-below-zero-planned",
        "rule 8",
        "planning/silo_plan.py",
        "        if over or negative or outside or rounds:\n",
        "        if over or outside or rounds:\n",
        (f"{_ACCOUNTS}test_a_cost_below_zero_is_no_plan",),
    ),
    # Bookings, and what verify replays
    Mutant(
        "bookings-rounded-to-even-units",
        "section 7",
        "ledger/store/sampling_classes.py",
        "        return rounded_up(self.cost, EPSILON_SHIFT)\n",
        "        return rounded_up(self.cost, EPSILON_SHIFT) // 2 * 2\n",
        (f"{_ACCOUNTS}test_a_booking_covers_its_cost",),
    ),
    Mutant(
        "cancelling-keeps-the-divergence",
        "rule 10",
        "ledger/store/holds.py",
        "        epsilon = epsilon_before - booked[index]\n",
        "        epsilon = epsilon_before\n",
        (f"{_ACCOUNTS}test_a_cancelled_run_returns_exactly_what_it_held",),
    ),
    Mutant(
        "verify-ignores-the-order-of-a-booking",
        "section 7",
        "ledger/inspection/replay.py",
        "        if (takes_part & (classes.order[index] != replayed.order)).any():\n",
        "        if (takes_part & (classes.order[index] > replayed.order)).any():\n",
        (f"{_ACCOUNTS}test_verify_finds_another_order",),
    ),
    Mutant(
        "verify-takes-any-order-of-enrolment",
        "section 7",
        "ledger/inspection/replay.py",
        "if replayed.order.any() and not is_mapped_order(replayed.order, replayed.epsilon, replayed.delta).all():\n",
        "if replayed.order.any() and not is_mapped_order(replayed.order, replayed.epsilon, replayed.delta).any():\n",
        (f"{_ACCOUNTS}test_verify_finds_one_order_that_is_not_that_of_the_map",),
    ),
    Mutant(
        "verify-ignores-the-share",
        "section 7",
        "ledger/inspection/replay.py",
        "            fits &= cost <= entry.admission.share * budget\n",
        "            pass\n",
        (f"{_ACCOUNTS}test_verify_finds_a_booking_above_the_share",),
    ),
    Mutant(
        "verify-prices-one-silo-of-a-person",
        "section 7",
        "ledger/inspection/repricing.py",
        "    certified = times * public.divergence_curve(order).divergence(grid)[at]\n"
        "    proven = times * provable_divergence(public, grid, order)[at]\n",
        "    certified = public.divergence_curve(order).divergence(grid)[at]\n"
        "    proven = provable_divergence(public, grid, order)[at]\n",
        (f"{_ACCOUNTS}test_verify_finds_a_divergence_that_is_booked_once_for_two_silos",),
    ),
    Mutant(
        "verify-ignores-the-delta-of-renyi-bookings",
        "section 7",
        "ledger/inspection/repricing.py",
        " or (classes.delta[rows] != 0.0).any():\n",
        ":\n",
        (f"{_ACCOUNTS}test_verify_finds_a_renyi_account_that_books_a_delta",),
    ),
)
