"""Metrics from noisy counts: without noise those of scikit-learn, with noise intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sklearn

from rpdp.statistics import score_metrics
from rpdp.statistics.score_counts import NoisyCounts, contribution
from rpdp.statistics.score_metrics import ScoreCounts
from rpdp.statistics.score_precision import average_precision

BINS = 256
EDGES = np.linspace(-8.0, 8.0, BINS + 1)[1:-1]


def made_up(positives: int, negatives: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Truth and scores of a made-up test set."""
    random = np.random.default_rng(3)
    truth = np.repeat([1, 0], [positives, negatives])
    return truth, (random.standard_normal(truth.size) + truth - 0.5) * scale


def cells_of(truth: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The sums that would be released without noise, made in another way than by the silo's code."""
    cells = np.zeros((2, BINS))
    for label, score in zip(truth, scores, strict=True):
        place = int((score > EDGES).sum())
        place = place if label else BINS - 1 - place
        cells[label, place:] += contribution(BINS)[: BINS - place]
    return cells.ravel()


def test_without_noise_metrics_are_those_of_scikit_learn() -> None:
    truth, scores = made_up(80, 200)
    counts = ScoreCounts.of_cells(cells_of(truth, scores), 1e-9)
    table = counts.confusion(BINS // 2)
    predicted = scores > 0
    np.testing.assert_allclose(table.values, sklearn.confusion_matrix(truth, predicted).ravel(), atol=1e-6)
    pairs = {
        score_metrics.accuracy: sklearn.accuracy_score,
        score_metrics.balanced_accuracy: sklearn.balanced_accuracy_score,
        score_metrics.f1: sklearn.f1_score,
    }
    for ours, theirs in pairs.items():
        assert ours(table, 0.95).value == pytest.approx(theirs(truth, predicted), abs=1e-6)
    auc = score_metrics.auc(counts, 0.95)
    assert auc.low <= sklearn.roc_auc_score(truth, scores) <= auc.high
    assert auc.value == pytest.approx(sklearn.roc_auc_score(truth, scores), abs=2e-3)


def test_pairs_in_one_bin_are_between_the_ends() -> None:
    truth, scores = made_up(80, 200, scale=0.002)  # all scores in two bins
    auc = score_metrics.auc(ScoreCounts.of_cells(cells_of(truth, scores), 1e-9), 0.95)
    assert auc.low <= sklearn.roc_auc_score(truth, scores) <= auc.high
    assert auc.half_width > 0.1
    assert auc.value == pytest.approx((auc.low + auc.high) / 2)


@pytest.mark.parametrize(("positives", "negatives", "deviation"), [(200, 800, 5.0), (500, 1500, 40.0)])
def test_intervals_cover(positives: int, negatives: int, deviation: float) -> None:
    truth, scores = made_up(positives, negatives)
    cells, random = cells_of(truth, scores), np.random.default_rng(8)
    true = {
        "auc": sklearn.roc_auc_score(truth, scores),
        "accuracy": sklearn.accuracy_score(truth, scores > 0),
        "balanced": sklearn.balanced_accuracy_score(truth, scores > 0),
    }
    covered = dict.fromkeys(true, 0)
    for _ in range(200):
        counts = ScoreCounts.of_cells(cells + deviation * random.standard_normal(2 * BINS), deviation)
        table = counts.confusion(BINS // 2)
        found = {
            "auc": score_metrics.auc(counts, 0.95),
            "accuracy": score_metrics.accuracy(table, 0.95),
            "balanced": score_metrics.balanced_accuracy(table, 0.95),
        }
        for name, interval in found.items():
            covered[name] += interval.low <= true[name] <= interval.high
    assert min(covered.values()) >= 180  # below in one of 10,000 such tests, at a rate of 0.95


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_average_precision_is_within_its_bounds(scale: float) -> None:
    truth, scores = made_up(200, 800, scale)
    true, random = sklearn.average_precision_score(truth, scores), np.random.default_rng(9)
    cells = cells_of(truth, scores)
    for deviation in (0.001, 5.0, 5.0, 5.0, 20.0):
        counts = ScoreCounts.of_cells(cells + deviation * random.standard_normal(2 * BINS), deviation)
        found = average_precision(counts.negatives, counts.positives, 0.95)
        assert found.low <= true <= found.high
        if deviation < 1.0:
            assert found.value == pytest.approx(true, abs=0.01)
            assert found.half_width < 0.03


def test_average_precision_without_records_has_no_value() -> None:
    nothing = NoisyCounts.plain(np.zeros(8), 1.0)
    assert average_precision(nothing, nothing, 0.95) == (None, 0.0, 1.0)


def test_curves_have_points_with_intervals() -> None:
    truth, scores = made_up(200, 800)
    counts = ScoreCounts.of_cells(cells_of(truth, scores), 1e-9)
    false, true, _ = sklearn.roc_curve(truth, scores, drop_intermediate=False)
    for point in score_metrics.roc_curve(counts, EDGES, 0.95):
        assert np.hypot(false - point.x.value, true - point.y.value).min() < 0.01
    seen = score_metrics.calibration_curve(counts, EDGES, 0.95)
    assert len(seen) >= 8
    probability = 1.0 / (1.0 + np.exp(-scores))
    first = seen[0]
    inside = (probability >= first.x.low) & (probability <= first.x.high)
    assert truth[inside].mean() == pytest.approx(first.y.value, abs=0.02)


@pytest.mark.parametrize("deviation", [0.1, 5.0])
def test_mean_errors_cover(deviation: float) -> None:
    random = np.random.default_rng(4)
    errors = random.uniform(0.0, 0.6, 400)
    sums = np.array([400.0, errors.sum()])
    found = [
        score_metrics.mean_error(sums + deviation * random.standard_normal(2), deviation, 10.0, 0.95)
        for _ in range(400)
    ]
    assert np.mean([one.low <= 10.0 * errors.mean() <= one.high for one in found]) >= 0.915
