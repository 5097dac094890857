"""Bugs of what is said before a run: how many runs fit, who can take part, and what must not depend on it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RUNS = "tests/planning/test_fitting_runs.py::"
_OUTLOOK = "tests/ledger/test_outlook.py::"
_STUDY = "tests/studies/test_run_outlook.py::"
_AGENT = "tests/deployment/agent/test_agent_outlook.py::"

OUTLOOK = (
    Mutant(
        "one-run-more-than-fits",
        "section 7",
        "planning/fitting_runs.py",
        "    times = np.floor(np.minimum(ratio * margin, MOST_RUNS)).astype(np.int64)\n",
        "    times = np.ceil(np.minimum(ratio * margin, MOST_RUNS)).astype(np.int64)\n",
        (f"{_RUNS}test_the_count_is_what_an_account_admits",),
    ),
    Mutant(
        "runs-counted-by-epsilon-alone",
        "section 7",
        "planning/fitting_runs.py",
        "np.where(full.q > 0.0, np.minimum(by_amount, by_delta), 0)",
        "np.where(full.q > 0.0, by_amount, 0)",
        (f"{_RUNS}test_the_count_is_what_an_account_admits",),
    ),
    Mutant(
        "what-is-reserved-counts-for-every-run",
        "section 7",
        "ledger/unused_accounts.py",
        "left=unused.left(budgets, lifetime_delta, replace(allowance, share=1.0)),",
        "left=unused.left(budgets, lifetime_delta),",
        (f"{_RUNS}test_never_more_than_fit",),
    ),
    Mutant(
        "a-hold-that-is-looked-past-is-freed",
        "rule 17",
        "ledger/store/run_book.py",
        "copy.booked, copy.booked_delta = balances.booked.copy(), balances.booked_delta.copy()",
        "copy.booked, copy.booked_delta = balances.booked, balances.booked_delta",
        (f"{_OUTLOOK}test_looking_past_a_hold_does_not_free_it",),
    ),
    Mutant(
        "earlier-runs-forgotten-in-the-outlook",
        "section 7",
        "ledger/inspection/outlook.py",
        "one_run, left = of(now, allowance), of(now, replace(allowance, share=1.0))",
        "one_run, left = of(now.unused(), allowance), of(now, replace(allowance, share=1.0))",
        (f"{_OUTLOOK}test_a_fresh_a_half_used_and_a_used_up_ledger",),
    ),
    Mutant(
        "a-hold-of-a-reserved-share-counts-as-free",
        "section 7",
        "ledger/store/run_book.py",
        "if admission.public.purpose == purpose and admission.run not in without:",
        "if admission.public.purpose == purpose:",
        (f"{_OUTLOOK}test_a_hold_for_a_purpose_with_a_reserve_frees_nothing_for_others",),
    ),
    Mutant(
        "a-run-of-noise-begins",
        "section 7",
        "studies/shortfalls.py",
        "    if signal < floor:\n",
        "    if signal < 0.0:\n",
        (f"{_STUDY}test_a_used_up_ledger_is_refused_until_it_is_asked_for_by_name",),
    ),
    Mutant(
        "an-outlook-that-fails-is-answered",
        "rule 16",
        "deployment/agent/agent.py",
        'could not be found", run)\n            return\n',
        'could not be found", run)\n            raise\n',
        (f"{_AGENT}test_the_answer_does_not_wait_for_the_outlook_nor_depend_on_it",),
    ),
    Mutant(
        "an-agent-refuses-a-run-of-noise",
        "rule 16",
        "deployment/agent/agent.py",
        "        for line in [] if outlook is None else outlook.lines():\n",
        '        if outlook is not None and outlook.is_noise:\n            raise PrivacyRefusal("noise")\n'
        "        for line in [] if outlook is None else outlook.lines():\n",
        (f"{_AGENT}test_a_server_is_answered_alike_by_a_fresh_and_a_used_up_ledger",),
    ),
    Mutant(
        "planning-time-not-demanded",
        "rule 14",
        "deployment/agent/checked_outlook.py",
        "    if after is not None and needed > after:\n",
        "    if after is not None and needed > 10.0 * after:\n",
        (
            "tests/deployment/agent/test_slowest_rounds.py::"
            "test_planning_for_these_records_must_fit_into_the_public_time",
        ),
    ),
    Mutant(
        "outlook-in-the-shared-report",
        "rule 6",
        "report/report_runs.py",
        "            facts = replace(facts, outlook=(), held_out_groups=(), lifetimes={})\n",
        "            facts = replace(facts, held_out_groups=(), lifetimes={})\n",
        (f"{_STUDY}test_the_silos_report_says_what_the_ledgers_had_left",),
    ),
)
