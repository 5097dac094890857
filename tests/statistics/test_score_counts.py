"""Running counts: a record's part has norm at most 1, and decoding gives the histogram back with less noise."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp.errors import InputError
from rpdp.statistics.score_counts import NoisyCounts, contribution, decoding


def _cells(places: list[int], bins: int) -> np.ndarray:
    cells = np.zeros(bins)
    for place in places:
        cells[place:] += contribution(bins)[: bins - place]
    return cells


@pytest.mark.parametrize("bins", [2, 64, 256, 1024])
def test_no_record_contributes_more_than_norm_one(bins: int) -> None:
    norms = [np.linalg.norm(contribution(bins)[: bins - place]) for place in range(bins)]
    assert max(norms) <= 1.0
    assert norms[0] == pytest.approx(1.0, abs=1e-11)


def test_the_contribution_is_the_square_root_of_adding_up() -> None:
    rows = np.stack([_cells([place], 8) for place in range(8)])
    half = rows / rows[0, 0]
    np.testing.assert_allclose(half @ half, np.triu(np.ones((8, 8))))


def test_decoding_gives_back_the_histogram() -> None:
    counts = NoisyCounts.running(_cells([0, 3, 3, 255], 256), 1.0)
    wanted = np.bincount([0, 3, 3, 255], minlength=256)
    np.testing.assert_allclose(counts.values, wanted, atol=1e-9)


def test_falling_counts_are_those_of_the_last_bin_first() -> None:
    counts = NoisyCounts.running(_cells([0, 1, 1], 4), 1.0, falling=True)
    np.testing.assert_allclose(counts.values, [0, 0, 2, 1], atol=1e-12)


def test_the_noise_of_all_records_hardly_grows_with_the_bins() -> None:
    noise = {bins: NoisyCounts.running(np.zeros(bins), 1.0) for bins in (16, 256)}
    found = {bins: counts.covariance(np.ones(bins), np.ones(bins)) ** 0.5 for bins, counts in noise.items()}
    assert found == pytest.approx({16: 1.94, 256: 2.83}, abs=0.01)


def test_the_stated_covariance_is_that_of_decoded_noise() -> None:
    draws = np.random.default_rng(1).standard_normal((20_000, 16)) @ decoding(16).T * 3.0
    weights = np.arange(16.0)
    stated = NoisyCounts.running(np.zeros(16), 3.0).covariance(weights, weights)
    assert (draws @ weights).var() == pytest.approx(stated, rel=0.05)
    assert (draws @ weights).var() != pytest.approx(stated * 4 / 9, rel=0.05)  # that of 2/3 of the noise


def test_likely_counts_are_not_negative_and_keep_what_is_not_noise() -> None:
    exact = NoisyCounts.plain(np.array([3.0, 0.0, 5.0]), 1.0)
    np.testing.assert_allclose(exact.likely, exact.values)
    assert (NoisyCounts.plain(np.array([-3.0, 4.0, -1.0]), 1.0).likely >= 0.0).all()


def test_weighted_sums_keep_their_covariance() -> None:
    counts = NoisyCounts.running(np.arange(8.0), 2.0)
    rows = np.random.default_rng(0).standard_normal((3, 8))
    changed = counts.changed(rows)
    np.testing.assert_allclose(changed.root @ changed.root.T, rows @ counts.root @ counts.root.T @ rows.T)


def test_the_spread_of_weights_adds_to_the_variance() -> None:
    counts = NoisyCounts.plain(np.array([10.0, 30.0]), 1.0, spread=1.0)
    assert counts.covariance(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == pytest.approx(1.0 + 10.0)


def test_noise_of_another_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"do not fit noise"):
        NoisyCounts(np.zeros(3), np.eye(2))
