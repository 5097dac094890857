"""Bugs of the noisy step, the kernels and the model checks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STEP = "tests/training/test_noisy_step.py::"
_KERNELS = "tests/training/test_kernels.py::"
_PIECES = "tests/training/test_step_pieces.py::"
_CHECKS = "tests/training/test_model_checks.py::"
_RULES = "tests/training/test_privacy_rules.py::"
_PENDING = "tests/training/test_pending_release.py::"

_RELEASE = (f"{_STEP}test_release_is_the_clipped_sum_plus_noise_over_the_normaliser",)
_SUM = (f"{_KERNELS}test_sum_is_that_of_one_record_at_a_time",)

TRAINING = (
    # Noise
    Mutant(
        "noise-a-tenth-too-small",
        "section 1",
        "training/noise_addition.py",
        "self._std = std\n",
        "self._std = 0.9 * std\n",
        _RELEASE,
    ),
    Mutant(
        "noise-a-tenth-too-small-by-settings",
        "section 1",
        "training/noisy_step.py",
        "return self.noise_multiplier * self.clip_norm",
        "return 0.9 * self.noise_multiplier * self.clip_norm",
        (f"{_RULES}test_the_noise_is_the_settings_noise",),
    ),
    Mutant(
        "noise-not-scaled-by-the-clip-norm",
        "section 1",
        "training/noisy_step.py",
        "return self.noise_multiplier * self.clip_norm",
        "return self.noise_multiplier",
        (f"{_RULES}test_the_noise_is_the_settings_noise",),
    ),
    Mutant(
        "noise-once-for-all-steps",
        "rule 7",
        "training/noise_addition.py",
        "            noise = np.empty(len(self._total))\n"
        "            self._randomness.fill_gaussian(noise, self._std)\n",
        '            kept = self._randomness.__dict__.setdefault("kept", np.empty(0))\n'
        "            if not kept.size:\n"
        '                kept = self._randomness.__dict__["kept"] = np.empty(len(self._total))\n'
        "                self._randomness.fill_gaussian(kept, self._std)\n"
        "            noise = kept.copy()\n",
        (f"{_STEP}test_noise_is_fresh_in_every_step_and_repeats_with_the_seed",),
    ),
    Mutant(
        "noise-shrinks-with-the-batch",
        "section 1",
        "training/noisy_step.py",
        "release_(total, settings.noise_std, settings.normaliser, self._randomness)\n        model.values.grad",
        "release_(total, settings.noise_std / len(drawn), settings.normaliser, self._randomness)\n"
        "        model.values.grad",
        (f"{_RULES}test_large_draws_get_the_same_noise",),
    ),
    Mutant(
        "noise-left-out-for-large-draws",
        "section 1",
        "training/noisy_step.py",
        "release_(total, settings.noise_std, settings.normaliser, self._randomness)\n        model.values.grad",
        "total.div_(settings.normaliser)\n        model.values.grad",
        (f"{_RULES}test_large_draws_get_the_same_noise",),
    ),
    Mutant(
        "noise-in-half-precision",
        "rule 15",
        "training/noise_addition.py",
        "            self._add(self._total, noise)\n",
        "            self._add(self._total, noise.astype(np.float16).astype(np.float64))\n",
        (f"{_RULES}test_noise_has_the_resolution_of_the_grid",),
    ),
    Mutant(
        "noise-from-another-generator",
        "rule 7",
        "training/noise_addition.py",
        "self._randomness.fill_gaussian(noise, self._std)",
        "noise[:] = np.random.default_rng().normal(0.0, self._std, len(noise))",
        ("tests/sampling/test_no_other_randomness.py::test_no_foreign_generator_on_the_release_path",),
    ),
    Mutant(
        "grid-rounding-dropped",
        "rule 15",
        "training/noise_addition.py",
        "            np.rint(noise, out=noise)\n",
        "",
        (f"{_STEP}test_the_noisy_sum_lies_on_a_public_power_of_two_grid",),
    ),
    Mutant(
        "grid-from-the-sum",
        "rule 15",
        "training/noise_addition.py",
        "self._scales = (1 / grid_spacing(std), grid_spacing(std) / normaliser)",
        "spacing = grid_spacing(std) * (1 + float(total.abs().max()))\n"
        "        self._scales = (1 / spacing, spacing / normaliser)",
        (f"{_STEP}test_the_noisy_sum_lies_on_a_public_power_of_two_grid",),
    ),
    Mutant(
        "noise-before-the-sum-is-final",
        "section 1",
        "training/noise_addition.py",
        "while not self._stopped and self._left and (self._left - 1) * BLOCK < self._final:",
        "while not self._stopped and self._left and False:",
        ("tests/training/test_pending_release.py::test_only_what_is_final_gets_noise_early",),
    ),
    # Sum and normaliser
    Mutant(
        "division-by-the-realised-batch",
        "rule 2",
        "training/noisy_step.py",
        "with PendingRelease(total, settings.noise_std, settings.normaliser, self._randomness) as pending:",
        "with PendingRelease(total, settings.noise_std, len(chosen) + 1, self._randomness) as pending:",
        _RELEASE,
    ),
    Mutant(
        "empty-batch-without-noise",
        "rule 3",
        "training/noisy_step.py",
        "        if len(drawn) <= settings.largest_piece:",
        "        if not len(drawn):\n"
        "            total, norms = self._total.zero_(), self._total.new_zeros(0)\n"
        "        elif len(drawn) <= settings.largest_piece:",
        _RELEASE,
    ),
    Mutant(
        "a-record-may-count-twice",
        "rule 5",
        "training/noisy_step.py",
        "        if not (drawn[1:] > drawn[:-1]).all():",
        "        if not (drawn[1:] >= drawn[:-1]).all():",
        (f"{_PIECES}test_a_record_counts_once",),
    ),
    Mutant(
        "non-finite-model-trained",
        "rule 12",
        "training/flat_model.py",
        "        if not math.isfinite(self.values.data.sum().item()):",
        "        if math.isnan(self.values.data.sum().item()):",
        (f"{_STEP}test_a_non_finite_model_releases_nothing",),
    ),
    Mutant(
        "normaliser-from-the-sum-of-q-when-centralised",
        "rule 2",
        "training/central.py",
        "settings = StepSettings(public.clip_norm, public.noise_multiplier, public.normaliser, micro_batch)",
        "settings = StepSettings(public.clip_norm, public.noise_multiplier, max(plan.q.sum(), 1e-3), micro_batch)",
        (f"{_RULES}test_centralised_steps_release_by_the_public_settings",),
    ),
    Mutant(
        "child-stream-of-the-noise-reused",
        "rule 7",
        "training/central.py",
        'randomness.child("step", number, "noise")',
        'randomness.child("noise")',
        (f"{_RULES}test_centralised_steps_release_by_the_public_settings",),
    ),
    Mutant(
        "records-drawn-after-their-last-step",
        "section 6",
        "training/central.py",
        "sampler.switch_off(np.flatnonzero(last_steps == number))",
        "sampler.switch_off(np.flatnonzero(last_steps == number - 1))",
        ("tests/training/test_central.py::test_a_record_whose_rounds_are_over_is_never_drawn_again",),
    ),
    Mutant(
        "centralised-plan-for-other-records",
        "rule 12",
        "training/central.py",
        "    different = np.flatnonzero(given != planned)\n",
        "    different = np.flatnonzero(np.sort(given) != np.sort(planned))\n",
        ("tests/training/test_central.py::test_records_that_the_plan_does_not_cover_are_refused",),
    ),
    # Clipping
    Mutant(
        "clip-norm-a-hundredth-too-large",
        "rule 5",
        "training/kernel.py",
        "return self._add(records, clip_norm * (1 - CLIP_SLACK), total, progress)",
        "return self._add(records, 1.01 * clip_norm * (1 - CLIP_SLACK), total, progress)",
        (f"{_KERNELS}test_adding_a_record_with_a_huge_gradient_moves_the_sum_by_at_most_the_clip_norm",),
    ),
    Mutant(
        "clipping-slack-dropped",
        "rule 15",
        "training/kernel.py",
        "CLIP_SLACK = 1e-4\n",
        "CLIP_SLACK = 0.0\n",
        (f"{_KERNELS}test_adding_a_record_with_a_huge_gradient_moves_the_sum_by_at_most_the_clip_norm",),
    ),
    Mutant(
        "clip-after-summing",
        "rule 5",
        "training/vmap_kernel.py",
        "        total.addmv_(flat.t(), factors)\n",
        "        whole = flat.sum(0)\n        total.add_(whole * (bound / whole.norm()).clamp(max=1.0))\n",
        _SUM,
    ),
    Mutant(
        "clip-per-micro-batch",
        "rule 5",
        "training/ghost/ghost_kernel.py",
        "        factors, bad = clip_factors(squared_norms, bound)\n",
        "        factors, bad = clip_factors(squared_norms.mean().expand_as(squared_norms), bound)\n",
        _SUM,
    ),
    Mutant(
        "clip-by-the-largest-coordinate",
        "rule 5",
        "training/affine_kernel.py",
        "(left * left).sum(1)",
        "(left * left).amax(1)",
        _SUM,
    ),
    Mutant(
        "bias-left-out-of-the-norm",
        "rule 5",
        "training/affine_kernel.py",
        "            squared_inputs += 1\n",
        "            squared_inputs += 0\n",
        _SUM,
    ),
    Mutant(
        "no-clipping-in-the-reference-kernel",
        "rule 5",
        "training/loop_kernel.py",
        "                total.add_(flat * factor)\n",
        "                total.add_(flat)\n",
        _SUM,
    ),
    Mutant(
        "nan-gradient-propagates",
        "rule 12",
        "training/kernel.py",
        "    return factors.masked_fill_(bad, 0.0), bad\n",
        "    return factors, None\n",
        (f"{_KERNELS}test_a_record_without_finite_gradient_contributes_exactly_zero",),
    ),
    Mutant(
        "nan-gradient-stops-the-run",
        "rule 12",
        "training/kernel.py",
        "    bad = ~torch.isfinite(squared_norms)\n",
        "    bad = ~torch.isfinite(squared_norms)\n"
        '    if bad.any():\n        raise InputError("a gradient is not finite")\n',
        (f"{_STEP}test_a_damaged_record_contributes_zero_and_nothing_else_changes",),
    ),
    Mutant(
        "failing-record-stops-the-run",
        "rule 12",
        "training/noisy_step.py",
        "    if no_memory or isinstance(error, RpdpError | MemoryError | torch.OutOfMemoryError):\n",
        "    if isinstance(error, Exception):\n",
        (f"{_STEP}test_a_record_that_makes_the_loss_fail_contributes_zero",),
    ),
    Mutant(
        "cancelled-norms-trusted",
        "rule 15",
        "training/ghost/cancellation.py",
        "    if bool(doubtful.any()):\n",
        "    if False:\n",
        ("tests/training/test_cancellation.py::test_squared_norms_are_true_where_positions_cancel",),
    ),
    Mutant(
        "floor-of-norms-dropped",
        "rule 15",
        "training/ghost/cancellation.py",
        "    return torch.maximum(squared, scale * (FLOOR_ROUNDINGS * roundoff))\n",
        "    return squared\n",
        ("tests/training/test_cancellation.py::test_no_record_adds_more_than_the_clip_norm",),
    ),
    Mutant(
        "squares-that-underflow-forgotten",
        "rule 15",
        "training/kernel.py",
        "    return terms * torch.finfo(values.dtype).tiny\n",
        "    return 0.0\n",
        ("tests/training/test_underflow.py::test_no_record_adds_more_than_the_clip_norm",),
    ),
    Mutant(
        "clip-norm-that-float32-cannot-tell-accepted",
        "rule 15",
        "training/kernel.py",
        "    if clip_norm < SMALLEST_CLIP_NORM:\n",
        "    if clip_norm < 0.0:\n",
        ("tests/training/test_underflow.py::test_smaller_clip_norms_are_refused",),
    ),
    Mutant(
        "weights-used-behind-the-layers-back",
        "rule 5",
        "training/ghost/ghost_kernel.py",
        "        self._require_all_recorded(edges, recorded)\n",
        "",
        (f"{_KERNELS}test_weights_used_behind_the_layers_back_are_noticed",),
    ),
    # Pieces
    Mutant(
        "pieces-that-one-record-shifts",
        "rule 15",
        "training/micro_batches.py",
        "    middle = int(np.searchsorted(drawn, upper))\n",
        "    middle = len(drawn) // 2\n",
        (f"{_PIECES}test_a_record_changes_the_piece_it_is_in_and_no_other",),
    ),
    Mutant(
        "pieces-too-large",
        "rule 15",
        "training/noisy_step.py",
        "        return min(self.micro_batch, LARGEST_PIECE)\n",
        "        return self.micro_batch\n",
        (f"{_PIECES}test_a_kernel_never_gets_more_than_a_piece",),
    ),
    # Models
    Mutant(
        "batch-statistics-allowed",
        "rule 5",
        "training/model_checks.py",
        '            "refuse",\n            name,\n            f"{kind} normalises',
        '            "note",\n            name,\n            f"{kind} normalises',
        (f"{_CHECKS}test_batchnorm_is_refused_and_its_conversion_accepted",),
    ),
    Mutant(
        "losses-across-records-allowed",
        "rule 5",
        "training/kernel_choice.py",
        "    require_independent_records(reference, pair)\n",
        "",
        (f"{_CHECKS}test_a_loss_that_mixes_records_is_refused",),
    ),
    Mutant(
        "changing-buffers-allowed",
        "rule 5",
        "training/model_probe.py",
        "    if changed:\n",
        "    if changed and drew:\n",
        (f"{_CHECKS}test_a_buffer_that_changes_is_refused",),
    ),
    Mutant(
        "dropout-by-another-generator-allowed",
        "rule 7",
        "training/model_probe.py",
        "    if drew:\n",
        "    if drew and changed:\n",
        (f"{_CHECKS}test_dropout_is_refused_also_where_no_module_shows_it",),
    ),
    Mutant(
        "real-release-on-a-gpu",
        "rule 15",
        "training/noise_addition.py",
        '        if total.device.type != "cpu" and not randomness.is_simulation:\n',
        '        if total.device.type == "cuda" and randomness.is_simulation:\n',
        (f"{_PENDING}test_a_real_release_is_not_made_on_another_device_than_the_cpu",),
    ),
    Mutant(
        "generator-of-a-gpu-not-watched",
        "rule 7",
        "training/model_probe.py",
        '    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]\n',
        "    return [torch.get_rng_state(), torch.get_rng_state()]\n",
        (f"{_CHECKS}test_the_generator_of_a_gpu_is_watched_too",),
    ),
    Mutant(
        "record-that-speaks-of-memory-stops-a-step",
        "rule 12",
        "training/noisy_step.py",
        "any(words in str(error) for words in _NO_MEMORY)\n",
        '"memory" in str(error)\n',
        (f"{_STEP}test_a_record_that_makes_the_loss_fail_contributes_zero",),
    ),
)
