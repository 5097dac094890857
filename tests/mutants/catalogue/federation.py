"""Bugs of the silo, local training, the server and what is written about a run."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SILO = "tests/federation/test_silo.py::"
_ADMISSION = "tests/federation/test_admission.py::"
_DEVICES = "tests/federation/test_devices.py::"
_TRAINING = "tests/federation/test_training_process.py::"
_PARTICIPATION = "tests/federation/test_participation.py::"
_SIMULATION = "tests/federation/test_simulation.py::"
_ANNOUNCEMENTS = "tests/ledger/test_announcements.py::"
_RULES = "tests/federation/test_privacy_rules.py::"
_RUNS = "tests/studies/test_privacy_rules.py::"
_REPORT = "tests/report/test_report.py::"

_SETTINGS = (f"{_RULES}test_local_steps_release_by_the_public_settings",)
_OFFERED = (f"{_SILO}test_only_a_charged_and_joined_round_is_trained_once_on_its_own_model",)
_PUBLIC_PART = (f"{_RUNS}test_the_public_part_does_not_depend_on_anything_sensitive",)

FEDERATION = (
    # Admission
    Mutant(
        "policy-not-checked",
        "rule 12",
        "federation/silo.py",
        "        self.policy.require(public, len(runs - {run}))\n",
        "",
        (f"{_ADMISSION}test_a_plan_beyond_the_policy_is_refused_and_nothing_reserved",),
    ),
    Mutant(
        "policy-without-a-least-noise",
        "rule 6",
        "federation/policy.py",
        'if (value > limit if side == "at most" else value < limit)',
        'if (value > limit if side == "at most" else value <= 0.0)',
        ("tests/federation/test_policy.py::test_every_limit_is_kept_and_named",),
    ),
    Mutant(
        "number-of-runs-not-limited",
        "rule 11",
        "federation/silo.py",
        "        self.policy.require(public, len(runs - {run}))\n",
        "        self.policy.require(public, 0)\n",
        (f"{_ADMISSION}test_runs_count_against_the_policy",),
    ),
    Mutant(
        "seeded-randomness-with-a-production-ledger",
        "rule 7",
        "federation/admission_checks.py",
        "    if randomness.is_simulation != silo.account.is_simulation:\n",
        "    if silo.account.is_simulation and not randomness.is_simulation:\n",
        (f"{_ADMISSION}test_seeds_and_production_never_meet",),
    ),
    Mutant(
        "fingerprint-of-the-model-not-checked",
        "rule 12",
        "federation/admission_checks.py",
        "    if public.model_fingerprint not in (None, own):\n",
        '    if public.model_fingerprint == "":\n',
        (f"{_ADMISSION}test_the_plans_model_must_be_the_model_at_hand",),
    ),
    Mutant(
        "planned-from-the-whole-budget",
        "rule 11",
        "federation/silo.py",
        "        allowed = self.account.left(self.budgets,",
        "        allowed = MemoryAccount(len(self.budgets), account=self.account.account).left(self.budgets,",
        (f"{_ADMISSION}test_a_second_run_is_planned_from_what_is_left",),
    ),
    Mutant(
        "planner-trusted",
        "rule 8",
        "planning/assignment.py",
        "        if not curve.after(rounds).covers(plan.q[here], plan.cost[here]).all():\n",
        "        if not curve.after(rounds).covers(plan.q[here], plan.cost[here]).any():\n",
        (f"{_RULES}test_one_record_below_its_price_is_enough_to_refuse_a_plan",),
    ),
    Mutant(
        "record-order-not-stable",
        "rule 12",
        "federation/admission_checks.py",
        "        return budgets.arranged(ids)\n",
        "        return budgets\n",
        (f"{_ADMISSION}test_budgets_in_another_order_are_matched_by_id",),
    ),
    Mutant(
        "changed-plan-goes-on-as-the-same-run",
        "rule 10",
        "federation/silo.py",
        "        if plan.public.fingerprint != public.fingerprint:\n            raise PrivacyRefusal(\n"
        '                f"silo {self.name}: run {run!r} was admitted with plan',
        "        if plan.public.delta != public.delta:\n            raise PrivacyRefusal(\n"
        '                f"silo {self.name}: run {run!r} was admitted with plan',
        ("tests/federation/test_production.py::test_a_changed_plan_needs_a_new_name",),
    ),
    Mutant(
        "unfit-model-admitted",
        "rule 5",
        "training/kernel_choice.py",
        "    require_private(model.module)\n",
        "",
        (f"{_ADMISSION}test_a_model_that_is_not_fit_for_private_training_is_refused_before_anything_is_reserved",),
    ),
    # Coins
    Mutant(
        "coin-redrawn",
        "rule 9",
        "federation/silo.py",
        "        payload = self.account.stored(run.name, number)\n",
        "        payload = self.account.stored(run.name, number)\n"
        "        if payload is None and number not in run.in_training and coin.coin(probability or 0.0):\n"
        "            run.untrained[number] = announcement.digest()\n"
        "            return True\n",
        (f"{_RULES}test_a_round_sat_out_is_never_trained_however_often_it_is_announced",),
    ),
    Mutant(
        "always-joined",
        "section 4",
        "federation/silo.py",
        "lambda: coin.coin(probability or 0.0)",
        "lambda: coin.coin(1.0)",
        (f"{_PARTICIPATION}test_the_rate_of_the_coin",),
    ),
    Mutant(
        "the-first-rounds-are-joined",
        "section 4",
        "federation/silo.py",
        "        other = place + int(randomness.integers(rounds - place, 1)[0])\n",
        "        other = place\n",
        (f"{_PARTICIPATION}test_exactly_k_rounds_are_drawn_uniformly",),
    ),
    Mutant(
        "empty-round-announced-again",
        "section 4",
        "federation/server.py",
        "            self.values = self.backbone.step(self.values, changes)\n",
        "            self.values = self.backbone.step(self.values, changes)\n"
        "        else:\n            self.round -= 1\n            return rejected\n",
        (f"{_RULES}test_a_round_without_updates_is_over",),
    ),
    # Charge, train, store, release
    Mutant(
        "round-not-charged",
        "rule 1",
        "federation/silo.py",
        "            run.accountant.charge(number)\n            if charge.joined:\n",
        "            if charge.joined:\n                run.accountant.charge(number)\n",
        (f"{_PARTICIPATION}test_a_silo_that_only_sat_out_is_charged_like_one_that_joined",),
    ),
    Mutant(
        "charge-after-training",
        "rule 9",
        "federation/silo.py",
        "        stored = self.begin(announcement)\n        if isinstance(stored, Update):\n            return stored\n"
        "        return self.finish(self.train(announcement)) if stored else None\n",
        "        trained = self.compute(announcement)\n"
        "        stored = self.begin(announcement)\n        if isinstance(stored, Update):\n            return stored\n"
        "        if stored:\n            self.claim(announcement)\n"
        "        return self.finish(trained) if stored else None\n",
        (f"{_SILO}test_the_charge_is_booked_before_the_first_record_is_touched",),
    ),
    Mutant(
        "outbox-skipped",
        "rule 9",
        "federation/silo.py",
        "        self.account.store(run.name, update.round, update.to_bytes())\n",
        "",
        (f"{_SILO}test_an_update_is_stored_before_it_is_released",),
    ),
    Mutant(
        "released-though-it-could-not-be-stored",
        "rule 9",
        "federation/silo.py",
        "        self.account.store(run.name, update.round, update.to_bytes())\n        return update\n",
        "        try:\n"
        "            self.account.store(run.name, update.round, update.to_bytes())\n"
        "        except OSError:\n            return update\n        return update\n",
        (f"{_SILO}test_an_update_is_stored_before_it_is_released",),
    ),
    Mutant(
        "interrupted-round-trained-again",
        "rule 9",
        "federation/silo.py",
        "        payload = self.account.stored(run.name, number)\n",
        "        payload = self.account.stored(run.name, number)\n"
        "        if payload is None and charge.joined:\n"
        "            run.untrained[number] = announcement.digest()\n"
        "            return True\n",
        (f"{_SILO}test_a_round_that_breaks_is_charged_and_never_trained_again",),
    ),
    Mutant(
        "round-trained-twice",
        "rule 9",
        "federation/silo.py",
        "        del run.untrained[announcement.round]\n",
        "",
        _OFFERED,
    ),
    Mutant(
        "noise-of-a-round-on-another-model",
        "rule 9",
        "federation/messages.py",
        "        for tensor in (self.values, self.correction):\n",
        "        for tensor in (self.correction,):\n",
        _OFFERED,
    ),
    Mutant(
        "another-silos-update-released",
        "rule 9",
        "federation/silo.py",
        "        if update.silo != self.name or update.round not in run.in_training:\n",
        "        if update.round not in run.in_training:\n",
        (f"{_SILO}test_only_the_update_of_this_silo_and_round_is_stored",),
    ),
    Mutant(
        "announced-plan-not-compared",
        "rule 12",
        "federation/silo.py",
        "        if announcement.plan != plan:\n",
        "        if not announcement.plan:\n",
        (f"{_SILO}test_anything_but_the_admitted_plan_is_refused",),
    ),
    Mutant(
        "model-that-is-not-finite-trained",
        "rule 12",
        "federation/silo.py",
        "        if not bool(given.isfinite().all()):\n",
        "        if bool(given.isnan().all()):\n",
        (f"{_SILO}test_anything_but_the_admitted_plan_is_refused",),
    ),
    # The recipe
    Mutant(
        "learning-rate-without-a-lower-limit",
        "rule 16",
        "federation/policy.py",
        '"at least", self.min_learning_rate),',
        '"at least", 0.0),',
        ("tests/federation/test_policy.py::test_every_limit_is_kept_and_named",),
    ),
    Mutant(
        "proximal-term-without-a-limit",
        "rule 16",
        "federation/policy.py",
        '"at most", self.max_proximal),',
        '"at most", 1e300),',
        ("tests/federation/test_policy.py::test_every_limit_is_kept_and_named",),
    ),
    # Local steps
    Mutant(
        "normaliser-from-the-sum-of-q",
        "rule 2",
        "federation/local_training.py",
        "public.clip_norm, public.noise_multiplier, public.normaliser, public.recipe.micro_batch\n",
        "public.clip_norm, public.noise_multiplier, max(plan.q.sum(), 1.0), public.recipe.micro_batch\n",
        _SETTINGS,
    ),
    Mutant(
        "noise-divided-among-local-steps",
        "section 1",
        "federation/local_training.py",
        "public.clip_norm, public.noise_multiplier, public.normaliser, public.recipe.micro_batch\n",
        "public.clip_norm,\n            public.noise_multiplier / public.schedule.local_steps**0.5,\n"
        "            public.normaliser,\n            public.recipe.micro_batch,\n",
        _SETTINGS,
    ),
    Mutant(
        "empty-batch-skipped",
        "rule 3",
        "federation/local_training.py",
        "        step.release(records, drawn)\n",
        "        if len(drawn):\n            step.release(records, drawn)\n        else:\n"
        "            values = self._kernel.model.values\n            values.grad = torch.zeros_like(values)\n",
        (f"{_ADMISSION}test_a_silo_in_which_nobody_may_be_drawn_still_releases_noise",),
    ),
    Mutant(
        "noise-reused-between-steps",
        "rule 7",
        "federation/local_training.py",
        'self._randomness.child("step", self._taken, "noise")',
        'self._randomness.child("step", 0, "noise")',
        _SETTINGS,
    ),
    Mutant(
        "draw-reused-between-steps",
        "rule 4",
        "federation/local_training.py",
        'self._randomness.child("step", self._taken, "draw")',
        'self._randomness.child("step", 0, "draw")',
        (f"{_SILO}test_steps_and_rounds_and_silos_draw_independently",),
    ),
    Mutant(
        "one-stream-for-all-rounds",
        "rule 7",
        "federation/silo.py",
        'run.randomness.child("round", announcement.round)\n',
        'run.randomness.child("round", 1)\n',
        (f"{_SILO}test_steps_and_rounds_and_silos_draw_independently",),
    ),
    Mutant(
        "records-drawn-after-their-last-round",
        "section 6",
        "federation/local_training.py",
        "np.where(plan.active_rounds >= number, plan.q, 0.0)",
        "np.where(plan.active_rounds >= number - 1, plan.q, 0.0)",
        (f"{_SILO}test_records_are_not_drawn_after_their_last_round",),
    ),
    Mutant(
        "withdrawals-heard-once-a-round",
        "rule 12",
        "federation/local_training.py",
        "        self._sampler.switch_off(self._switched_off())\n",
        "        if self._taken == 0:\n            self._sampler.switch_off(self._switched_off())\n",
        (f"{_SILO}test_withdrawn_records_are_not_drawn_from_the_next_step_on",),
    ),
    Mutant(
        "training-process-asks-once-a-round",
        "rule 12",
        "federation/training_process.py",
        "        switched_off = ask if inbox is None else DirectoryWatch(inbox, ask).latest\n",
        "        once = ask()\n        switched_off = ask if inbox is None else (lambda: once)\n",
        (f"{_TRAINING}test_what_arrives_between_two_steps_is_in_force_at_the_next",),
    ),
    Mutant(
        "account-in-memory-asked-once-a-round",
        "rule 12",
        "federation/training_process.py",
        "        switched_off = ask if inbox is None else DirectoryWatch(inbox, ask).latest\n",
        "        once = ask()\n        switched_off = DirectoryWatch(inbox, ask).latest if inbox else (lambda: once)\n",
        (f"{_TRAINING}test_an_account_in_memory_is_asked_at_every_step",),
    ),
    Mutant(
        "withdrawals-do-not-reach-workers",
        "rule 12",
        "federation/in_process.py",
        "withdrawn = {name: self._silos[name].account.switched_off(announcements[name].run) for name in joining}",
        "withdrawn = {name: np.zeros(0, dtype=np.int64) for name in joining}",
        (f"{_SIMULATION}test_withdrawals_reach_the_workers",),
    ),
    # What leaves
    Mutant(
        "update-weighted-by-the-realised-draws",
        "rule 2",
        "federation/silo.py",
        "        return TrainedRound(run.name, Update(self.name, announcement.round, change), draws)\n",
        "        share = float(draws.sum()) / max(run.plan.expected_batch, 1.0)\n"
        "        return TrainedRound(run.name, Update(self.name, announcement.round, change * share), draws)\n",
        (f"{_SILO}test_the_change_is_that_of_a_run_from_the_announced_model",),
    ),
    Mutant(
        "update-as-long-as-it-compresses",
        "rule 14",
        "federation/messages.py",
        "        return _HEADER.pack(_MAGIC, self.round, itemsize) + numbers.tobytes()\n",
        '        return _HEADER.pack(_MAGIC, self.round, itemsize) + numbers.tobytes().rstrip(b"\\0")\n',
        ("tests/federation/test_messages.py::test_the_size_depends_on_the_model_only",),
    ),
    Mutant(
        "times-of-a-real-run-made-public",
        "rule 14",
        "studies/run_directory.py",
        "write_rounds(directory, result.rounds, with_time=result.is_simulation)",
        "write_rounds(directory, result.rounds, with_time=True)",
        _PUBLIC_PART,
    ),
    Mutant(
        "expected-batch-made-public",
        "rule 6",
        "studies/run_directory.py",
        '        "silos": sorted(result.silos),\n',
        '        "silos": sorted(result.silos),\n'
        '        "expected_batch": {name: view.plan.expected_batch for name, view in result.silos.items()},\n',
        _PUBLIC_PART,
    ),
    Mutant(
        "report-to-share-with-the-silos-views",
        "rule 6",
        "report/report_runs.py",
        "replace(run, silos={}, groups=())",
        "replace(run, groups=())",
        (f"{_REPORT}test_the_edition_to_share_does_not_depend_on_anything_sensitive",),
    ),
    Mutant(
        "metrics-by-budget-kept-for-the-edition-to-share",
        "rule 6",
        "report/report_runs.py",
        "replace(run, silos={}, groups=())",
        "replace(run, silos={})",
        (f"{_REPORT}TestSeveralMetrics::test_groups_are_for_the_silo_alone",),
    ),
    Mutant(
        "real-run-measured-on-the-silos-test-records",
        "rule 13",
        "studies/building.py",
        "tests = {} if ledgers is not None else",
        "tests = {} if False else",
        ("tests/studies/test_production.py::test_a_real_run_is_booked_and_reported_as_one",),
    ),
    # Devices
    Mutant(
        "real-run-on-a-gpu",
        "rule 12",
        "federation/admission_checks.py",
        '    if silo.device.type != "cpu" and not silo.account.is_simulation:\n',
        '    if silo.device.type != "cpu" and silo.account.is_simulation:\n',
        (f"{_DEVICES}test_a_real_run_stays_on_the_cpu",),
    ),
    Mutant(
        "device-with-an-unwatched-generator",
        "rule 7",
        "federation/devices.py",
        'DEVICES = ("cpu", "cuda")\n',
        'DEVICES = ("cpu", "cuda", "mps")\n',
        (f"{_DEVICES}test_devices_whose_generators_are_not_watched_are_refused",),
    ),
)
