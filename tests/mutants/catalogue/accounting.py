"""Bugs of the prices: Rényi moments, privacy-loss distributions, participation, the certificate."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RENYI = "tests/accounting/test_renyi.py::"
_PLD = "tests/accounting/test_pld.py::"
_COUNT = "tests/accounting/test_participation.py::"
_CURVE = "tests/accounting/test_curve.py::"
_RULES = "tests/accounting/test_privacy_rules.py::"
_PURITY = "tests/accounting/test_purity.py::"

_NUMBERS = (f"{_CURVE}test_numbers_at_the_mnist_setting",)
_CERTIFIED = (f"{_RULES}test_what_is_bought_is_within_the_budget",)

ACCOUNTING = (
    # Moments
    Mutant(
        "moments-of-twice-the-variance",
        "section 2",
        "accounting/renyi.py",
        "    y = (x - 0.5) / noise_multiplier**2\n    log_f",
        "    y = (x - 0.5) / (2.0 * noise_multiplier**2)\n    log_f",
        (f"{_RENYI}test_whole_orders_match_the_binomial_sum",),
    ),
    Mutant(
        "moments-cut-off-at-three-deviations",
        "section 2",
        "accounting/renyi.py",
        "_REACH = 10.0\n",
        "_REACH = 3.0\n",
        (f"{_RENYI}test_whole_orders_match_the_binomial_sum",),
    ),
    Mutant(
        "conversion-divided-by-the-order",
        "section 2",
        "accounting/renyi.py",
        "(np.log(delta) + np.log(orders)) / theta",
        "(np.log(delta) + np.log(orders)) / orders",
        (f"{_RENYI}test_conversion_equals_dp_accounting",),
    ),
    Mutant(
        "free-below-delta-instead-of-its-square",
        "section 2",
        "accounting/renyi.py",
        "within_delta = delta**2 + np.expm1(-divergence) > 0.0",
        "within_delta = delta + np.expm1(-divergence) > 0.0",
        (f"{_RENYI}test_conversion_equals_dp_accounting",),
    ),
    Mutant(
        "moments-and-conversion-at-different-orders",
        "section 2",
        "accounting/renyi.py",
        "        return tight_epsilon(moment, orders, delta)\n",
        "        return tight_epsilon(moment, 2.0 * orders - 1.0, delta)\n",
        _NUMBERS,
    ),
    # Participation
    Mutant(
        "type-1-bound-used",
        "section 4",
        "accounting/participation.py",
        "return self.rounds * self._log_round(np.asarray(log_mass, dtype=np.float64))",
        "return self.rounds * self.probability * np.asarray(log_mass, dtype=np.float64)",
        (f"{_COUNT}test_log_moment_and_tilted_mean_equal_the_sums",),
    ),
    Mutant(
        "mixture-weight-wrong",
        "section 4",
        "accounting/participation.py",
        "integer_power(1.0 - self._tilted_rate(log_mass)[:, None] * (1.0 - spectrum), self.rounds)",
        "integer_power(1.0 - 0.9 * self._tilted_rate(log_mass)[:, None] * (1.0 - spectrum), self.rounds)",
        (f"{_COUNT}test_mixing_equals_the_polynomial",),
    ),
    Mutant(
        "one-round-too-few",
        "rule 1",
        "accounting/schedule.py",
        "            return BinomialCount(rounds, self.participation)\n",
        "            return BinomialCount(max(1, rounds - 1), self.participation)\n",
        (f"{_COUNT}test_counts_match_their_definition",),
    ),
    Mutant(
        "only-the-expected-rounds-are-priced",
        "rule 1",
        "accounting/schedule.py",
        "            return BinomialCount(rounds, self.participation)\n",
        "            return ExplicitCount.exactly(round(rounds * self.participation))\n",
        (f"{_COUNT}test_counts_match_their_definition",),
    ),
    Mutant(
        "cap-priced-without-its-own-rounds",
        "section 4",
        "accounting/schedule.py",
        "probabilities[cap] = law.sf(cap - 1)",
        "probabilities[cap] = law.sf(cap)",
        (f"{_COUNT}test_counts_match_their_definition",),
    ),
    Mutant(
        "long-lists-of-counts-rounded-down",
        "section 4",
        "accounting/participation.py",
        "        above, below = np.searchsorted(up, every), ",
        '        above, below = np.maximum(np.searchsorted(up, every, side="right") - 1, 0), ',
        (f"{_COUNT}test_compressing_a_long_list_rounds_counts_up",),
    ),
    Mutant(
        "cost-of-the-first-rounds-is-one-behind",
        "section 6",
        "accounting/curve.py",
        "self._with_count(self.schedule.count(announced))",
        "self._with_count(self.schedule.count(max(0, announced - 1)))",
        (f"{_CURVE}test_cost_of_the_first_rounds_grows_to_the_whole",),
    ),
    # Privacy-loss distributions
    Mutant(
        "the-better-direction-counts",
        "section 3",
        "accounting/pld.py",
        "return np.where(removing[0] >= adding[0], removing, adding)",
        "return np.where(removing[0] <= adding[0], removing, adding)",
        (f"{_PLD}test_the_worse_direction_counts",),
    ),
    Mutant(
        "wrong-direction-of-the-loss",
        "section 3",
        "accounting/step_loss.py",
        "        mass, loss, lower = cells.with_record, cells.loss, cells.cell\n",
        "        mass, loss, lower = cells.without_record, cells.loss, cells.cell\n",
        (f"{_PLD}test_within_half_a_percent_of_dp_accounting",),
    ),
    Mutant(
        "optimistic-grid",
        "section 3",
        "accounting/step_loss.py",
        "    upper = mass * upper_share\n",
        "    upper = 0.0 * mass\n",
        (f"{_PLD}test_equals_the_gaussian_mechanism_at_q_one",),
    ),
    Mutant(
        "coarser-grid-rounds-down",
        "section 3",
        "accounting/composition.py",
        "    share = np.clip(share, 0.0, 1.0)\n",
        "    share = np.clip(share - 0.5, 0.0, 1.0)\n",
        ("tests/accounting/test_composition.py::test_coarsening_keeps_both_measures",),
    ),
    Mutant(
        "delta-of-the-tail-not-added",
        "rule 15",
        "accounting/pld.py",
        "lambda loss: _smallest_epsilon(loss, delta - grid.lost * run.steps)",
        "lambda loss: _smallest_epsilon(loss, delta)",
        (f"{_RULES}test_what_a_grid_cuts_off_is_paid_from_delta",),
    ),
    Mutant(
        "delta-of-the-tail-not-added-to-the-profile",
        "rule 15",
        "accounting/pld.py",
        "return np.asarray(worse + grid.lost * run.steps)",
        "return np.asarray(worse)",
        (f"{_RULES}test_what_a_grid_cuts_off_is_paid_from_delta",),
    ),
    Mutant(
        "numerical-error-not-added",
        "rule 15",
        "accounting/pld.py",
        "    return delta + _error_at(loss, losses - loss.spacing[:, None]), slope\n",
        "    return delta, slope\n",
        (f"{_PLD}test_a_row_with_too_large_an_error_gets_another_tilt",),
    ),
    Mutant(
        "one-local-step-too-few",
        "section 3",
        "accounting/pld.py",
        "ExplicitCount.exactly(run.local_steps), grid.outside",
        "ExplicitCount.exactly(run.local_steps - 1), grid.outside",
        _NUMBERS,
    ),
    Mutant(
        "priced-with-more-noise-than-there-is",
        "rule 8",
        "accounting/curve.py",
        "return Run(self.noise_multiplier, self.schedule.local_steps, self._count)",
        "return Run(1.1 * self.noise_multiplier, self.schedule.local_steps, self._count)",
        _NUMBERS,
    ),
    # Curve and certificate
    Mutant(
        "interpolated-certificate",
        "rule 8",
        "accounting/certificate.py",
        "    return np.where(fits, nodes[chosen], 0.0), np.where(fits, costs[chosen], 0.0)\n",
        "    between = np.minimum(np.interp(budgets, costs, nodes), 1.0)\n"
        "    return np.where(fits, between, 0.0), np.where(fits, costs[chosen], 0.0)\n",
        _CERTIFIED,
    ),
    Mutant(
        "q-not-rounded-down",
        "rule 8",
        "accounting/certificate.py",
        'chosen = np.searchsorted(costs, budgets, side="right") - 1',
        'chosen = np.minimum(np.searchsorted(costs, budgets, side="right"), costs.size - 1)',
        _CERTIFIED,
    ),
    Mutant(
        "running-maximum-dropped",
        "section 3",
        "accounting/certificate.py",
        "        costs = np.maximum.accumulate(prices)\n",
        "        costs = prices\n",
        (f"{_RULES}test_a_price_that_dips_buys_nothing_over_budget",),
    ),
    Mutant(
        "tables-state-less-than-the-price",
        "section 7",
        "accounting/certificate.py",
        "        costs = np.maximum.accumulate(prices)\n",
        "        costs = np.minimum.accumulate(prices[::-1])[::-1]\n",
        (f"{_RULES}test_no_table_states_less_than_the_price_of_a_probability",),
    ),
    # Purity
    Mutant(
        "moments-near-zero-lost",
        "section 4",
        "accounting/participation.py",
        "        direct = (exponents[..., -1] > -0.5) & (exponents[..., -1] < _LARGEST_EXPONENT)\n",
        "        direct = np.zeros(mass.shape, dtype=bool)\n",
        (f"{_COUNT}test_moments_near_zero_keep_their_digits",),
    ),
    Mutant(
        "a-batch-shares-the-longest-transform",
        "section 7",
        "accounting/composition.py",
        "    longest = int(lengths.max())\n",
        "    longest = int(lengths.max())\n    lengths[:] = longest\n",
        (f"{_PURITY}test_a_probability_has_one_price_whoever_asks",),
    ),
    Mutant(
        "a-batch-shares-the-longest-axis-of-moments",
        "section 7",
        "accounting/renyi.py",
        "    ends = public_sizes(points)",
        "    ends = np.full(points.shape, public_sizes(points).max())",
        (f"{_PURITY}test_a_probability_has_one_price_whoever_asks",),
    ),
    Mutant(
        "a-price-half-a-percent-low-counts-as-covered",
        "rule 8",
        "accounting/curve.py",
        "covered[rest] = costs[rest] >= price(asked[rest])\n",
        "covered[rest] = costs[rest] >= price(asked[rest]) * (1.0 - 5e-3)\n",
        ("tests/federation/test_privacy_rules.py::test_a_planner_cannot_understate_by_a_little",),
    ),
    Mutant(
        "many-probabilities-rounded-down",
        "rule 8",
        "accounting/curve.py",
        "        steps = np.floor(-np.log2(q) * _LATTICE_PER_OCTAVE)\n"
        "    return np.where(q > 0.0, np.maximum(np.exp2(-steps / _LATTICE_PER_OCTAVE), q), 0.0)\n",
        "        steps = np.ceil(-np.log2(q) * _LATTICE_PER_OCTAVE)\n"
        "    return np.where(q > 0.0, np.exp2(-steps / _LATTICE_PER_OCTAVE), 0.0)\n",
        (f"{_CURVE}test_many_different_q_are_rounded_up_a_little",),
    ),
    Mutant(
        "calibrated-on-the-unsafe-side",
        "rule 8",
        "accounting/calibration.py",
        "            too_small = middle\n    return enough\n",
        "            too_small = middle\n    return too_small\n",
        ("tests/accounting/test_calibration.py::test_smallest_noise_on_the_safe_side",),
    ),
    Mutant(
        "odds-without-delta",
        "section 9",
        "accounting/odds.py",
        "    share = 1.0 - (1.0 - delta) * math.exp(-_softplus(epsilon))\n",
        "    share = 1.0 - math.exp(-_softplus(epsilon))\n",
        ("tests/accounting/test_odds.py::test_a_pair_is_never_understated_and_tight",),
    ),
    Mutant(
        "odds-of-half-the-divergence",
        "section 9",
        "accounting/odds.py",
        "_least_divergence(order, u) >= divergence, most)\n",
        "_least_divergence(order, u) >= divergence / 2.0, most)\n",
        ("tests/accounting/test_odds.py::test_a_divergence_is_never_understated_and_tight",),
    ),
)
