"""Bugs of randomness, Gaussian noise and the Poisson sampler."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SAMPLER = "tests/sampling/test_poisson_sampler.py::"
_SKIPPING = "tests/sampling/test_skipping.py::"
_RANDOMNESS = "tests/sampling/test_randomness.py::"
_GAUSSIAN = "tests/sampling/test_gaussian.py::"
_BLOCKS = "tests/sampling/test_blocks.py::"
_RULES = "tests/sampling/test_privacy_rules.py::"

_BATCHES = (f"{_SAMPLER}TestDistribution::test_every_batch_of_four_records_has_its_probability",)

SAMPLING = (
    # Who is drawn
    Mutant(
        "shuffle-instead-of-poisson",
        "rule 4",
        "sampling/poisson_sampler.py",
        "        drawn = self._comparison.draw(source)\n",
        "        expected = float((self._comparison._last_word / 2.0**64).sum())\n"
        "        drawn = np.sort(np.argsort(source.words(self._size))[: round(expected)])\n",
        _BATCHES,
    ),
    Mutant(
        "empty-batch-drawn-again",
        "rule 3",
        "sampling/poisson_sampler.py",
        "        drawn = self._comparison.draw(source)\n",
        "        drawn = self._comparison.draw(source)\n"
        "        for _ in range(100):\n"
        "            drawn = drawn if drawn.size else self._comparison.draw(source)\n",
        _BATCHES,
    ),
    Mutant(
        "large-batch-capped",
        "rule 4",
        "sampling/poisson_sampler.py",
        "        if self._switched_off is not None:\n            drawn",
        "        drawn = drawn[: max(1, self._size // 2)]\n"
        "        if self._switched_off is not None:\n            drawn",
        _BATCHES,
    ),
    Mutant(
        "one-word-for-all-records",
        "rule 4",
        "sampling/bernoulli_draws.py",
        "randomness.words(self._records.size) <= self._last_word",
        "randomness.words(1) <= self._last_word",
        _BATCHES,
    ),
    Mutant(
        "withdrawn-record-still-sampled",
        "rule 12",
        "sampling/poisson_sampler.py",
        "            drawn = drawn[~self._switched_off[drawn]]\n",
        "            drawn = drawn[~self._switched_off[drawn] | (drawn == drawn[-1:])]\n",
        (f"{_SAMPLER}TestEdges::test_switched_off_records_stay_away_and_nothing_else_changes",),
    ),
    Mutant(
        "threshold-off-by-one",
        "rule 4",
        "sampling/bernoulli_draws.py",
        "self._last_word = words[possible] - np.uint64(1)",
        "self._last_word = words[possible]",
        (f"{_RULES}test_the_border_of_a_draw_is_exact",),
    ),
    Mutant(
        "q-rounded-up-by-the-sampler",
        "rule 8",
        "sampling/bernoulli_draws.py",
        "return (np.minimum(fraction, 1.0 - 2.0**-53) * 2.0**64).astype(np.uint64)",
        "return np.ceil(np.minimum(fraction, 1.0 - 2.0**-53) * 2.0**64).astype(np.uint64)",
        (f"{_RULES}test_what_words_cannot_resolve_is_rounded_down",),
    ),
    Mutant(
        "candidates-never-thinned",
        "rule 4",
        "sampling/geometric_skips.py",
        "        kept = randomness.words(len(rows)) < rows[:, 1]\n",
        "        kept = randomness.words(len(rows)) < 2**64 - 1\n",
        (f"{_SKIPPING}TestLargeScale::test_blocks_are_drawn_at_their_rate",),
    ),
    Mutant(
        "skipping-slack-dropped",
        "rule 8",
        "sampling/geometric_skips.py",
        "words_below(q[part] / bucket.probability * (1.0 - bucket.slack - _ROUNDING))",
        "words_below(q[part] / bucket.probability)",
        (f"{_SKIPPING}TestExactness::test_what_is_realised_is_never_above_q",),
    ),
    Mutant(
        "gaps-a-tenth-too-short",
        "rule 4",
        "sampling/geometric_skips.py",
        "    gaps *= mean_gap\n",
        "    gaps *= 0.9 * mean_gap\n",
        (f"{_SKIPPING}TestLargeScale::test_blocks_are_drawn_at_their_rate",),
    ),
    # Where bits come from
    Mutant(
        "seeded-generator-in-production",
        "rule 7",
        "sampling/randomness.py",
        "        return os.urandom(KEY_BYTES)\n",
        '        return hashlib.sha256(b"rpdp").digest()\n',
        (f"{_RANDOMNESS}TestSecure::test_two_sources_and_two_draws_have_nothing_in_common",),
    ),
    Mutant(
        "generator-copied-into-workers",
        "rule 7",
        "sampling/randomness.py",
        "        if self._process != forks.process():\n            with forks.restart:",
        "        if self._process is None:\n            with forks.restart:",
        (f"{_RANDOMNESS}test_after_a_fork_every_process_has_its_own_secure_stream",),
    ),
    Mutant(
        "generator-can-be-copied",
        "rule 7",
        "sampling/randomness.py",
        '    def __deepcopy__(self, memo: object) -> NoReturn:\n        self._refuse_copy("copied")',
        "    def __deepcopy__(self, memo: object) -> object:\n        return self",
        (f"{_RANDOMNESS}TestSecure::test_streams_cannot_be_duplicated",),
    ),
    Mutant(
        "values-handed-out-twice",
        "rule 7",
        "sampling/keystream.py",
        "        self._next += count\n        return self._values[self._next - count : self._next]",
        "        self._next += (count + 1) // 2\n        return self._values[self._next - (count + 1) // 2 :][:count]",
        (f"{_RULES}test_no_word_comes_twice",),
    ),
    Mutant(
        "noise-of-all-blocks-the-same",
        "rule 7",
        "sampling/noise_blocks.py",
        "Keystream(self._key, number)",
        "Keystream(self._key, 0)",
        (f"{_BLOCKS}test_no_value_comes_twice",),
    ),
    Mutant(
        "a-block-of-noise-used-twice",
        "rule 7",
        "sampling/noise_blocks.py",
        "            self._used.add(number)\n",
        "",
        (f"{_BLOCKS}test_a_block_is_handed_out_once",),
    ),
    Mutant(
        "blocks-of-noise-survive-a-fork",
        "rule 7",
        "sampling/noise_blocks.py",
        "        if self._process != forks.process():\n",
        "        if self._process is None:\n",
        (f"{_BLOCKS}test_blocks_do_not_survive_a_fork",),
    ),
    Mutant(
        "key-of-the-blocks-known",
        "rule 7",
        "sampling/randomness.py",
        "return GaussianBlocks(self.words(KEY_BYTES // 8).tobytes())",
        "return GaussianBlocks(bytes(KEY_BYTES))",
        (f"{_RULES}test_blocks_of_two_releases_have_nothing_in_common",),
    ),
    Mutant(
        "children-with-the-same-stream",
        "rule 7",
        "sampling/randomness.py",
        '            encoded += b"i%d;" % operator.index(name)\n',
        '            encoded += b"i;"\n',
        (f"{_RANDOMNESS}TestSeeded::test_different_names_are_different_streams",),
    ),
    Mutant(
        "coin-of-32-bits",
        "section 4",
        "sampling/randomness.py",
        "return int(self.words(1)[0]) < int(probability * 2.0**64)",
        "return int(self.words(1)[0]) >> 32 <= int(probability * 2.0**32)",
        (f"{_RULES}test_the_border_of_a_coin_is_exact",),
    ),
    # Bits of the noise
    Mutant(
        "uniforms-of-32-bits",
        "rule 15",
        "sampling/randomness.py",
        "        values = (self.words(n) >> np.uint64(11)).astype(np.float64)\n        values *= 2.0**-53\n",
        "        values = (self.words(n) >> np.uint64(32)).astype(np.float64)\n        values *= 2.0**-32\n",
        (f"{_RANDOMNESS}TestValues::test_uniforms",),
    ),
    Mutant(
        "radius-of-32-bits",
        "rule 15",
        "sampling/gaussian.py",
        "    np.copyto(centred, word)\n",
        "    np.copyto(centred, word >> 32 << 32)\n",
        (f"{_GAUSSIAN}TestExactness::test_pairs_agree_with_arbitrary_precision",),
    ),
    Mutant(
        "tail-of-the-noise-cut-off",
        "rule 15",
        "sampling/gaussian.py",
        "_TAIL = 2.0**40\n",
        "_TAIL = 0.0\n",
        (f"{_GAUSSIAN}TestExactness::test_the_tail_keeps_its_resolution",),
    ),
    Mutant(
        "angles-in-half-a-circle",
        "rule 15",
        "sampling/gaussian.py",
        "    np.copysign(radius, centred, out=radius)\n",
        "",
        (f"{_GAUSSIAN}TestExactness::test_pairs_agree_with_arbitrary_precision",),
    ),
)
