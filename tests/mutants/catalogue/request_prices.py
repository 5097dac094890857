"""Seeded bugs in what requests cost: the price of a Gaussian, weights, their verification, their noise."""

from tests.mutants.mutant import Mutant

_GAUSSIAN = "tests/accounting/test_gaussian_profile.py::"
_WEIGHTS = "tests/accounting/test_gaussian_curve.py::"
_PLANS = "tests/planning/test_request_plans.py::"
_LEDGER = "tests/ledger/test_requests.py::"
_NOISE = "tests/planning/test_request_noise.py::"

REQUEST_PRICES = (
    # The price of a Gaussian
    Mutant(
        "midpoint-in-place-of-the-trapezoid",
        "section 9",
        "accounting/gaussian_profile.py",
        "    integral = 0.5 * mu * (_decline(t, here, 1.0) + _decline(t + mu, there, 1.0))\n",
        "    integral = mu * _decline(t + 0.5 * mu, _mills(t + 0.5 * mu), 1.0)\n",
        (f"{_GAUSSIAN}test_prices_are_exact_and_rounded_up_whatever_the_shift",),
    ),
    Mutant(
        "step-of-newton-taken-unchecked",
        "section 9",
        "accounting/gaussian_profile.py",
        "            is_better = (found <= goal) & (further < t)\n",
        "            is_better = further < t\n",
        (f"{_GAUSSIAN}test_a_step_onto_the_wrong_side_is_never_taken",),
    ),
    Mutant(
        "tail-beyond-the-shift-counted-twice",
        "section 9",
        "accounting/gaussian_profile.py",
        "    difference = here - there + _MILLS_ERROR * (here + there)\n",
        "    difference = here - 2.0 * there + _MILLS_ERROR * (here + there)\n",
        (f"{_GAUSSIAN}test_prices_are_exact_and_rounded_up_whatever_the_shift",),
    ),
    Mutant(
        "gaussian-profile-half-a-shift-too-far",
        "section 9",
        "accounting/gaussian_profile.py",
        "    t = ratio - mu[some] / 2.0 - _ROUNDING * (ratio + mu[some])\n",
        "    t = ratio - _ROUNDING * (ratio + mu[some])\n",
        (f"{_GAUSSIAN}test_a_profile_is_an_upper_bound_and_close",),
    ),
    Mutant(
        "lower-bound-above-the-upper-one",
        "section 9",
        "accounting/gaussian_profile.py",
        "    below -= _LOWER_STEP * (1.0 + np.abs(below))\n",
        "    below += _LOWER_STEP * (1.0 + np.abs(below))\n",
        (f"{_GAUSSIAN}test_lower_bounds_are_below_and_close",),
    ),
    # The price of a weight
    Mutant(
        "weight-priced-as-its-square",
        "section 9",
        "accounting/gaussian_curve.py",
        "    return np.asarray(weights * np.sqrt(float(rounds)) / noise_multiplier * (1.0 + _ROUNDING))\n",
        "    return np.asarray(weights**2 * np.sqrt(float(rounds)) / noise_multiplier * (1.0 + _ROUNDING))\n",
        (f"{_WEIGHTS}test_a_weight_costs_what_a_gaussian_of_multiplier_s_over_w_costs",),
    ),
    Mutant(
        "rounds-of-a-request-free-but-one",
        "rule 1",
        "accounting/gaussian_curve.py",
        "    return np.asarray(weights * np.sqrt(float(rounds)) / noise_multiplier * (1.0 + _ROUNDING))\n",
        "    return np.asarray(weights / noise_multiplier * (1.0 + _ROUNDING))\n",
        (f"{_WEIGHTS}test_a_weight_costs_what_a_gaussian_of_multiplier_s_over_w_costs",),
    ),
    Mutant(
        "divergence-of-a-weight-halved",
        "section 9",
        "accounting/gaussian_curve.py",
        "        return np.asarray(0.5 * self.order * shift**2 * (1.0 + _ROUNDING))\n",
        "        return np.asarray(0.25 * self.order * shift**2 * (1.0 + _ROUNDING))\n",
        (f"{_WEIGHTS}test_divergences_are_those_of_two_gaussians",),
    ),
    Mutant(
        "weight-of-one-silo-covers-several",
        "section 7",
        "accounting/gaussian_curve.py",
        "        return np.asarray(cost >= times * self.divergence(q))\n",
        "        return np.asarray(cost >= self.divergence(q))\n",
        (f"{_WEIGHTS}test_divergences_are_those_of_two_gaussians",),
    ),
    Mutant(
        "weight-at-an-own-delta-priced-at-a-larger-one",
        "section 7",
        "accounting/gaussian_curve.py",
        "        return self._curve(delta).certify(epsilon)\n",
        "        return self._curve(min(4.0 * delta, 0.5)).certify(epsilon)\n",
        (f"{_WEIGHTS}test_an_own_delta_has_the_exact_price_too",),
    ),
    Mutant(
        "floor-rounded-down",
        "rule 8",
        "accounting/gaussian_curve.py",
        "        return largest_within(self.weights, self._costs, not_negative(epsilon))\n",
        "        return largest_within(self.weights, np.floor(100.0 * self._costs) / 100.0, not_negative(epsilon))\n",
        (f"{_WEIGHTS}test_all_or_nothing_is_decided_by_the_price_of_one",),
    ),
    Mutant(
        "any-cost-covers-a-weight",
        "rule 8",
        "accounting/gaussian_curve.py",
        "        return np.asarray(np.asarray(cost) >= self.epsilon_above(q))\n",
        "        return np.asarray(np.asarray(cost) >= 0.0 * self.epsilon_above(q))\n",
        (f"{_PLANS}test_a_planner_that_states_less_than_a_weight_costs_is_caught",),
    ),
    Mutant(
        "request-of-some-rounds-only-priced-as-whole",
        "rule 1",
        "accounting/gaussian_curve.py",
        "    if schedule.local_steps != 1 or schedule.count() != BinomialCount(schedule.rounds, 1.0):\n",
        "    if schedule.local_steps != 1:\n",
        (f"{_WEIGHTS}test_a_schedule_with_coins_or_steps_is_refused",),
    ),
    # Plans of weights
    Mutant(
        "everyone-with-personal-weights",
        "section 9",
        "planning/request.py",
        '        return ALL_OR_NOTHING if self.estimator == "everyone" else PERSONAL_WEIGHTS\n',
        "        return PERSONAL_WEIGHTS\n",
        (f"{_PLANS}test_no_record_pays_more_than_it_may_and_all_pay_their_price",),
    ),
    Mutant(
        "weights-in-between-pass-for-everyone",
        "section 9",
        "planning/silo_plan.py",
        'request.estimator == "everyone" and ((self.q > 0.0) & (self.q < 1.0)).any():\n',
        'request.estimator == "everyone" and (self.q > 1.0).any():\n',
        (f"{_PLANS}test_weights_between_nothing_and_one_are_none_of_everyone",),
    ),
    Mutant(
        "request-priced-as-if-it-sampled",
        "section 9",
        "planning/public_plan.py",
        "return GaussianCurve(self.schedule, noise_multiplier=sigma, delta=delta, weights=self.request.weights)\n",
        'return PrivacyCurve(self.schedule, noise_multiplier=sigma, delta=delta, accountant="pld")\n',
        (f"{_PLANS}test_no_record_pays_more_than_it_may_and_all_pay_their_price",),
    ),
    Mutant(
        "request-planned-by-the-curve-fit",
        "rule 8",
        "planning/assignment.py",
        '    if public.request is not None and estimator != "certified":\n',
        '    if public.request is not None and estimator == "none":\n',
        (f"{_PLANS}test_estimators_of_probabilities_refuse_a_request",),
    ),
    # Prices again, from raw events
    Mutant(
        "attacker-of-one-release",
        "section 9",
        "ledger/inspection/attacker.py",
        "    moved = np.maximum(q * releases, np.finfo(np.float64).tiny)\n",
        "    moved = np.maximum(q, np.finfo(np.float64).tiny)\n",
        (f"{_LEDGER}test_second_opinions_prove_the_whole_price_and_no_more",),
    ),
    Mutant(
        "attacker-sees-no-weights",
        "section 9",
        "ledger/inspection/attacker.py",
        "        return _advantage_of_weight(q, epsilon, active, public.noise_multiplier)\n",
        "        return np.zeros(len(q))\n",
        (f"{_LEDGER}test_second_opinions_prove_the_whole_price_and_no_more",),
    ),
    Mutant(
        "second-opinion-on-one-release",
        "section 9",
        "ledger/inspection/second_moments.py",
        "        return np.asarray(public.schedule.rounds * order * q * q / (2.0 * public.noise_multiplier**2))\n",
        "        return np.asarray(order * q * q / (2.0 * public.noise_multiplier**2))\n",
        (f"{_LEDGER}test_second_opinions_prove_the_whole_price_and_no_more",),
    ),
    Mutant(
        "weights-verified-as-probabilities",
        "section 9",
        "ledger/inspection/repricing.py",
        "    if public.request is not None:\n        return public.curve_at(delta)\n",
        "",
        (f"{_LEDGER}test_runs_of_all_purposes_verify_and_every_reader_understands_them",),
    ),
    # Expected error and noise
    Mutant(
        "squares-of-weights-forgotten",
        "section 9",
        "planning/request_noise.py",
        "            spread = silos * records * max(self.mean_square - self.mean**2, 0.0) * values.variance\n",
        "            spread = silos * records * max(self.mean - self.mean**2, 0.0) * values.variance\n",
        (f"{_NOISE}test_the_expected_error_is_that_of_simulated_releases",),
    ),
    Mutant(
        "silos-share-one-noise",
        "section 9",
        "planning/request_noise.py",
        "        noise = silos * (self.noise_multiplier * self.request.norm) ** 2 * (1.0 + values.mean**2)\n",
        "        noise = (self.noise_multiplier * self.request.norm) ** 2 * (1.0 + values.mean**2)\n",
        (f"{_NOISE}test_the_expected_error_is_that_of_simulated_releases",),
    ),
    Mutant(
        "noise-for-one-round",
        "rule 1",
        "planning/request_noise.py",
        "            result = np.sqrt(rounds) / gaussian_shift(allowed.amount, delta)\n",
        "            result = 1.0 / gaussian_shift(allowed.amount, delta)\n",
        (f"{_NOISE}test_weight_1_is_paid_for_from_that_noise_on_and_not_before",),
    ),
)
