"""Bugs between budgets and probabilities: tables, estimators, plans, study files."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ESTIMATORS = "tests/planning/test_estimators.py::"
_PLANS = "tests/planning/test_plans.py::"
_SUBJECTS = "tests/budgets/test_subjects.py::"
_BUILDING = "tests/studies/test_building.py::"
_RUNS = "tests/studies/test_privacy_rules.py::"

_NOBODY = (f"{_ESTIMATORS}test_nobody_is_overdrawn",)
_PUBLIC = (f"{_RUNS}test_public_settings_do_not_depend_on_the_budgets_in_the_data",)

PLANNING = (
    # Budgets
    Mutant(
        "subjects-budget-not-split",
        "section 1",
        "budgets/table.py",
        "        share = self.epsilon / sizes\n",
        "        share = self.epsilon / np.sqrt(sizes)\n",
        (f"{_SUBJECTS}test_group_composition_gives_the_subjects_budget_back",),
    ),
    Mutant(
        "subjects-delta-split-evenly",
        "section 1",
        "budgets/table.py",
        "delta = delta * delta_share(self.epsilon, sizes)",
        "delta = delta / sizes",
        (f"{_SUBJECTS}test_group_composition_gives_the_subjects_budget_back",),
    ),
    Mutant(
        "budgets-in-the-order-of-the-table",
        "rule 12",
        "budgets/table.py",
        "return BudgetTable(self.ids.take(order), self.epsilon[positions], delta=delta, subjects=subjects)",
        "return BudgetTable(self.ids.take(order), self.epsilon, delta=delta, subjects=subjects)",
        ("tests/budgets/test_arranged.py::test_many_records_in_random_order",),
    ),
    Mutant(
        "missing-budgets-allowed",
        "rule 12",
        "federation/admission_checks.py",
        "        if len(budgets) != len(records):\n",
        "        if len(budgets) > len(records):\n",
        ("tests/federation/test_admission.py::test_without_ids_there_must_be_as_many_budgets_as_records",),
    ),
    Mutant(
        "notebooks-show-the-limits-of-groups",
        "rule 6",
        "planning/silo_plan.py",
        "        counts = counts_by_band(self.epsilon), counts_by_band(self.epsilon[self.q == 0.0])\n",
        "        counts = [f'{g.low:.4g}' for g in self.groups()] + ['0'] * (8 - len(self.groups())), ['0'] * 8\n",
        ("tests/test_display.py::test_budgets_are_counted_by_fixed_bands",),
    ),
    # Estimators
    Mutant(
        "fitted-records-never-drop-out",
        "section 6",
        "planning/estimators.py",
        "return Estimate(np.where(active > 0, q, 0.0), cost, active, facts)",
        "return Estimate(np.where(active > 0, q, 0.0), cost, _all_rounds(curve, budgets), facts)",
        _NOBODY,
    ),
    Mutant(
        "fitted-records-stay-a-round-longer",
        "section 6",
        "planning/estimators.py",
        "enough[rows[fits]], cost[rows[fits]] = announced, prices[fits]",
        "enough[rows[fits]], cost[rows[fits]] = announced + 1, prices[fits]",
        _NOBODY,
    ),
    Mutant(
        "search-ends-on-the-unsafe-side",
        "rule 8",
        "planning/estimators.py",
        "    return low, low_cost\n",
        "    return high, low_cost\n",
        _NOBODY,
    ),
    Mutant(
        "certified-q-a-hundredth-too-large",
        "rule 8",
        "planning/estimators.py",
        "    q, cost = curve.certify(budgets)\n    return Estimate(q, cost, _all_rounds(curve, budgets))\n",
        "    q, cost = curve.certify(budgets)\n"
        "    return Estimate(np.minimum(1.01 * q, 1.0), cost, _all_rounds(curve, budgets))\n",
        _NOBODY,
    ),
    # Plans
    Mutant(
        "cost-above-the-budget-accepted",
        "rule 8",
        "planning/silo_plan.py",
        "        over = int((~(self.cost <= self.budget)).sum())\n",
        "        over = int((self.cost > 1.1 * self.budget).sum())\n",
        (f"{_PLANS}test_an_estimator_that_overspends_is_refused",),
    ),
    Mutant(
        "lifetime-delta-ignored",
        "rule 11",
        "planning/assignment.py",
        "    is_common = allowed.delta >= common * (1.0 - DELTA_TOLERANCE)\n",
        "    is_common = allowed.delta > 0.0\n",
        ("tests/planning/test_allowances.py::test_a_smaller_own_delta_is_priced_at_its_own",),
    ),
    Mutant(
        "subjects-without-delta-promised-too-much",
        "section 1",
        "planning/assignment.py",
        "        return public.delta\n    return lifetime_delta\n",
        "        return None\n    return lifetime_delta\n",
        (f"{_PLANS}test_subjects_without_a_delta_are_not_promised_more_than_holds",),
    ),
    Mutant(
        "fingerprint-not-checked",
        "rule 12",
        "planning/public_plan.py",
        "        if plan.fingerprint != claimed:\n",
        "        if not claimed:\n",
        (f"{_PLANS}test_every_setting_is_in_the_fingerprint_and_altering_it_is_refused",),
    ),
    Mutant(
        "fingerprint-without-the-noise",
        "rule 12",
        "planning/public_plan.py",
        "hashlib.sha256(_canonical(self._settings()).encode()).hexdigest()",
        'hashlib.sha256(_canonical({**self._settings(), "noise_multiplier": 1}).encode()).hexdigest()',
        (f"{_PLANS}test_every_setting_is_in_the_fingerprint_and_altering_it_is_refused",),
    ),
    Mutant(
        "fingerprint-of-a-silo-plan-not-checked",
        "rule 12",
        "planning/silo_plan.py",
        '        if plan.fingerprint != meta["fingerprint"]:\n',
        '        if not meta["fingerprint"]:\n',
        (f"{_PLANS}test_an_altered_silo_plan_is_refused",),
    ),
    # What is public
    Mutant(
        "budget-ceiling-from-the-data",
        "rule 6",
        "studies/building.py",
        "    known, remark = declared(spec, source.silos, ceiling)\n",
        "    ceiling = float(max(table.epsilon.max() for table in budgets.values()))\n"
        "    sigma = noise_for(spec.public_schedule, ceiling, spec.delta, spec.privacy.accountant)\n"
        "    base = replace(base, noise_multiplier=sigma)\n"
        "    known, remark = declared(spec, source.silos, ceiling)\n",
        _PUBLIC,
    ),
    Mutant(
        "normaliser-from-the-real-budgets",
        "rule 6",
        "studies/building.py",
        "    known, remark = declared(spec, source.silos, ceiling)\n",
        "    known, remark = declared(spec, source.silos, ceiling)\n"
        "    known = replace(known, epsilon=np.concatenate([table.epsilon for table in budgets.values()]))\n",
        _PUBLIC,
    ),
    Mutant(
        "weights-by-exact-counts",
        "rule 2",
        "studies/building.py",
        "    known, remark = declared(spec, source.silos, ceiling)\n",
        "    known, remark = declared(spec, source.silos, ceiling)\n"
        "    base = replace(base, weights={name: float(len(held.train)) for name, held in source.silos.items()})\n",
        (f"{_BUILDING}test_weights",),
    ),
    Mutant(
        "normaliser-from-record-counts-without-a-word",
        "rule 13",
        "studies/study_budgets.py",
        "    return Declared(sample, records, ceiling), note\n",
        "    return Declared(sample, records, ceiling), None\n",
        (f"{_BUILDING}test_notes_of_the_plan",),
    ),
    Mutant(
        "tuning-on-private-accuracy-without-a-word",
        "rule 13",
        "studies/building.py",
        "notes=(*notes, *([TUNED] if settings.tuned else []), ",
        "notes=(*notes, ",
        (f"{_BUILDING}test_notes_of_the_plan",),
    ),
    Mutant(
        "plan-tuned-on-budgets-without-a-word",
        "rule 13",
        "cli/plan_command.py",
        "notes=(TUNED_ON_BUDGETS,) if tuned else (),",
        "notes=(),",
        ("tests/cli/test_plan.py::test_at_knee",),
    ),
    Mutant(
        "scf-prices-few-and-many-by-different-rules",
        "section 7",
        "planning/estimators.py",
        "    whole_run = curve.epsilon_above(q)\n",
        "    whole_run = curve.epsilon(q) if np.unique(q).size <= 1024 else curve.epsilon_above(q)\n",
        ("tests/accounting/test_purity.py::test_one_more_budget_does_not_end_others_elsewhere",),
    ),
)
