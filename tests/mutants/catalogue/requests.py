"""Bugs of statistics and evaluation: who takes part, with what weight, what is added up, and with what noise."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_EXACT = "tests/federation/test_exact_sums.py::"
_SUMS = "tests/federation/test_sums.py::"
_WRONG = f"{_EXACT}test_a_record_with_anything_wrong_adds_nothing"

REQUESTS = (
    Mutant(
        "weights-not-applied",
        "section 9",
        "federation/exact_sums.py",
        "np.trunc(values * weights[rows] / UNIT)",
        "np.trunc(values * (weights[rows] > 0.0) / UNIT)",
        (f"{_SUMS}TestWeights::test_contributions_are_multiplied_by_the_weight",),
    ),
    Mutant(
        "noise-of-s-in-place-of-s-times-l",
        "section 9",
        "federation/exact_sums.py",
        "std = noise_multiplier * norm * _ENLARGED",
        "std = noise_multiplier * _ENLARGED",
        (f"{_EXACT}TestRelease::test_noise_conforms_to_s_times_l",),
    ),
    Mutant(
        "records-beyond-the-norm-added",
        "rule 5",
        "federation/exact_sums.py",
        "        sound[norm_rows[~(squares <= _LONGEST_PART**2)]] = False",
        "        sound[norm_rows[~np.isfinite(squares)]] = False",
        (_WRONG,),
    ),
    Mutant(
        "norm-of-entries-in-place-of-cells",
        "rule 5",
        "federation/exact_sums.py",
        "        rows, places, values = _added_up(rows, places, values)\n",
        "",
        (_WRONG,),
    ),
    Mutant(
        "record-that-is-not-finite-added",
        "rule 12",
        "federation/exact_sums.py",
        "np.where(sound[rows], units, 0.0)",
        "np.where(np.isfinite(units), units, 0.0)",
        (_WRONG,),
    ),
    Mutant(
        "cells-outside-the-vector-moved-into-it",
        "rule 5",
        "federation/exact_sums.py",
        "        sound = (~used | ((cells.index >= 0) & (cells.index < len(self._total)))).all(axis=1)\n",
        "        sound = np.ones(count, dtype=np.bool_)\n        used &= cells.index < len(self._total)\n",
        (_WRONG,),
    ),
    Mutant(
        "sums-rounded-up-beyond-the-weight",
        "rule 15",
        "federation/exact_sums.py",
        "units = np.trunc(values * weights[rows] / UNIT)",
        "units = np.ceil(values * weights[rows] * 2.0**20) / (UNIT * 2.0**20)",
        (f"{_EXACT}test_a_record_moves_the_sum_by_at_most_its_weight_times_the_norm",),
    ),
    Mutant(
        "released-off-the-grid",
        "rule 15",
        "federation/exact_sums.py",
        "np.rint(noisy * (UNIT / grid)) * grid + 0.0",
        "noisy * UNIT + 0.0",
        (f"{_EXACT}TestRelease::test_released_numbers_lie_on_the_public_grid",),
    ),
    Mutant(
        "held-out-records-trained-on",
        "section 9",
        "federation/purposes.py",
        '        return self._held_out if purpose == "evaluation" else ~self._held_out\n',
        '        return self._held_out if purpose == "evaluation" else np.ones_like(self._held_out)\n',
        (f"{_SUMS}TestPurposes::test_held_out_records_are_not_trained_on_and_reserve_nothing",),
    ),
    Mutant(
        "evaluated-on-records-that-were-trained-on",
        "section 9",
        "federation/purposes.py",
        'if self._held_out is None or purpose == "statistics":',
        'if self._held_out is None or purpose != "training":',
        (f"{_SUMS}TestPurposes::test_only_held_out_records_are_evaluated",),
    ),
    Mutant(
        "request-not-shown-to-the-silos-own-code",
        "rule 12",
        "federation/purposes.py",
        "            self.source(public.purpose).require(public.request)\n",
        "",
        (f"{_SUMS}TestRefusals::test_a_request_that_its_code_refuses",),
    ),
    Mutant(
        "cells-not-limited-by-policy",
        "rule 12",
        "federation/policy.py",
        '            asked["cells"] = (public.request.size, "at most", self.max_cells)\n',
        '            asked["cells"] = (public.request.size, "at least", 0)\n',
        (f"{_SUMS}TestRefusals::test_a_request_that_is_too_large_for_the_policy",),
    ),
    Mutant(
        "withdrawn-records-added",
        "rule 11",
        "federation/sums.py",
        "        for rows in pieces_by_position(self.rows):\n            weights[switched_off()] = 0.0\n",
        "        for rows in pieces_by_position(self.rows):\n            switched_off()\n",
        (f"{_SUMS}TestWeights::test_who_withdraws_is_left_out_from_the_next_piece_on",),
    ),
    Mutant(
        "piece-of-a-failing-record-left-out",
        "rule 16",
        "federation/sums.py",
        "        elif len(rows) == 1:\n",
        "        elif len(rows) >= 1:\n",
        (f"{_SUMS}TestFailures::test_a_record_that_makes_the_code_raise_adds_nothing_and_the_others_all",),
    ),
    Mutant(
        "who-takes-part-shows-in-the-pieces",
        "rule 16",
        "federation/sums.py",
        "        borders = np.arange(PIECE, int(rows[-1]) + 1, PIECE)\n",
        "        borders = rows[PIECE::PIECE]\n",
        (f"{_SUMS}test_pieces_follow_positions_and_not_how_many_there_are",),
    ),
    Mutant(
        "records-counted-after-their-last-round",
        "section 6",
        "federation/sums.py",
        "        weights = np.where(plan.active_rounds >= announcement.round, plan.q, 0.0)\n",
        "        weights = plan.q.copy()\n",
        (f"{_SUMS}TestWeights::test_a_record_counts_in_its_active_rounds_only",),
    ),
    Mutant(
        "one-noise-for-all-requests",
        "rule 7",
        "federation/sums.py",
        'randomness.child("sums", announcement.plan, "noise")',
        'randomness.child("sums", "noise")',
        (
            "tests/federation/test_released_sums.py::TestSimulation::test_every_round_and_every_request_has_noise_of_its_own",
        ),
    ),
    Mutant(
        "correction-taken-where-nothing-is-trained",
        "rule 12",
        "federation/silo.py",
        "        if not run.work.takes_correction:\n",
        "        if False:\n",
        (f"{_SUMS}TestRefusals::test_only_the_announcement_of_the_plan_is_answered",),
    ),
)
