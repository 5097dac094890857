"""Bugs of runs that belong together: trials of tuning, and the private scale of features before training."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TUNING = "tests/studies/test_private_tuning.py::"
_SCALE = "tests/studies/test_private_scale.py::"

TUNING = (
    Mutant(
        "every-trial-asks-for-the-whole-share",
        "section 9",
        "studies/tuning_plan.py",
        "    part = (spec.privacy.share or 1.0) / len(spec.tuning.candidates)\n",
        "    part = spec.privacy.share or 1.0\n",
        (f"{_TUNING}test_every_trial_is_booked_and_all_of_them_stay_within_the_share",),
    ),
    Mutant(
        "trials-with-accounts-of-their-own",
        "rule 11",
        "studies/training_run.py",
        "    accounts: dict[str, MemoryAccount] = {} if trial is None else trial.accounts\n",
        "    accounts: dict[str, MemoryAccount] = {}\n",
        (f"{_TUNING}test_a_simulation_has_one_account_for_all_trials",),
    ),
    Mutant(
        "candidate-chosen-by-exact-results",
        "rule 13",
        "studies/private_tuning.py",
        '    place = next(i for i, each in enumerate(outlook.trials) if each.trial.name == evaluation["chosen"])\n',
        '    place = max(range(len(results)), key=lambda i: results[i].score.values["accuracy"])\n',
        (f"{_TUNING}TestTheChoice::test_depends_on_what_was_released_alone",),
    ),
    Mutant(
        "finished-trials-not-booked-after-an-interruption",
        "rule 11",
        "studies/private_tuning.py",
        "            _book_again(trained.result, accounts)\n",
        "            pass\n",
        (f"{_TUNING}TestInterruptions::test_a_simulation_ends_as_if_it_had_not_been_interrupted",),
    ),
    Mutant(
        "one-noise-for-all-trials",
        "rule 7",
        "studies/execution.py",
        "    if not trial:\n",
        "    if True:\n",
        (f"{_TUNING}TestTheChoice::test_trials_have_noise_of_their_own",),
    ),
    Mutant(
        "scale-with-an-account-of-its-own",
        "rule 11",
        "studies/statistics_run.py",
        "        return made if self.accounts is None else self.accounts.setdefault(silo, made)\n",
        "        return made\n",
        (f"{_SCALE}test_scale_and_training_draw_on_one_account",),
    ),
    Mutant(
        "scale-that-plans-do-not-carry",
        "rule 12",
        "studies/private_scale.py",
        "schema = replace(table.schema, columns=columns)\n",
        "schema = table.schema\n",
        (f"{_SCALE}test_training_is_on_what_private_statistics_found",),
    ),
    Mutant(
        "scale-from-ranges-read-from-data",
        "rule 13",
        "studies/private_scale.py",
        "    if schema.from_data:\n",
        "    if False:\n",
        (f"{_SCALE}TestRefusals::test_in_words",),
    ),
)
