"""The model-only attack on made-up losses: right numbers where the truth is known, and none where nothing leaks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rpdp.audit.membership_inference import MembershipGroup, MembershipResult
from rpdp.audit.offline_lira import Interval, Trials, advantages, areas, roc

RUNS, RECORDS = 30, 400


def made(shifts: tuple[float, ...]) -> Trials:
    """Losses of records with a level of their own, lower by a shift, by group, in runs that they are in. Seed 1."""
    generator = np.random.default_rng(1)
    taken = generator.random((RUNS, RECORDS)) < 0.5
    group = generator.integers(len(shifts), size=(RUNS, RECORDS))
    level, spread = generator.exponential(5.0, RECORDS), generator.uniform(0.5, 2.0, RECORDS)
    noise = generator.normal(size=(RUNS, RECORDS))
    return Trials(level + spread * (noise - np.array(shifts)[group] * taken), taken, group)


def test_areas_and_advantages_are_those_of_shifted_normals() -> None:
    """Two normals d apart have an area of Φ(d/√2) and an advantage of 2Φ(d/2) − 1; calibrating costs a little."""
    shifts = (0.0, 1.0, 2.0)
    trials = made(shifts)
    scores = trials.scores()
    for group, shift in enumerate(shifts):
        area, advantage = Interval.of(areas(scores, trials, group)), Interval.of(advantages(scores, trials, group))
        assert area.mean == pytest.approx(stats.norm.cdf(shift / np.sqrt(2.0)), abs=0.04)
        assert advantage.mean == pytest.approx(2.0 * stats.norm.cdf(shift / 2.0) - 1.0, abs=0.06)
        assert area.low < area.mean < area.high
    false, true = (np.array(rates) for rates in roc(scores, trials, 2))
    assert (false[0], true[0], false[-1], true[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert (np.diff(false) >= 0).all()
    assert (np.diff(true) >= 0).all()
    assert np.trapezoid(true, false) == pytest.approx(stats.norm.cdf(np.sqrt(2.0)), abs=0.04)


def test_thresholds_are_chosen_on_other_runs() -> None:
    """Nothing leaks: the mean advantage is about zero. Choosing on the run itself would always find one."""
    trials = made((0.0,))
    scores = trials.scores()
    assert abs(np.mean(advantages(scores, trials, 0))) < 0.04  # four deviations
    own = []
    for score, taken in zip(scores, trials.taken, strict=True):
        grid = np.quantile(score, np.linspace(0.02, 0.98, 97))
        own.append(max((score[taken] > limit).mean() - (score[~taken] > limit).mean() for limit in grid))
    assert np.mean(own) > 0.05


def test_a_record_is_compared_with_itself() -> None:
    """Levels between records are fifty times the effect: plain losses tell nothing, scores do."""
    trials = made((1.5,))
    plain = [
        stats.mannwhitneyu(-loss[taken], -loss[~taken]).statistic / (taken.sum() * (~taken).sum())
        for loss, taken in zip(trials.losses, trials.taken, strict=True)
    ]
    assert np.mean(plain) < 0.65
    assert np.mean(areas(trials.scores(), trials, 0)) > 0.8


def test_intervals_cover_as_often_as_they_say() -> None:
    """2,000 means of 12 normals at 95 %: between 1,860 and 1,940 cover, false alarm about 1e-4."""
    generator = np.random.default_rng(3)
    found = [Interval.of(generator.normal(3.0, 1.0, 12)) for _ in range(2_000)]
    assert 1_860 < sum(each.low < 3.0 < each.high for each in found) < 1_940
    assert str(Interval(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"


def result(areas_found: list[Interval], *, slope: Interval, advantage: Interval | None = None) -> MembershipResult:
    groups = tuple(
        MembershipGroup(epsilon, 0.1, 0.2, advantage or Interval(0.0, -0.1, 0.1), area, ((0.0, 1.0), (0.0, 1.0)))
        for epsilon, area in zip((1.0, 5.0), areas_found, strict=True)
    )
    return MembershipResult(groups, slope, 10, 100, 0.95, "plan")


def test_verdicts() -> None:
    nothing, some = Interval(0.5, 0.45, 0.55), Interval(0.7, 0.65, 0.75)
    clear, unclear = Interval(0.2, 0.1, 0.3), Interval(0.0, -0.1, 0.1)
    assert "Leakage follows the budgets" in result([nothing, some], slope=clear).verdict()[1]
    assert "no clear order" in result([some, some], slope=unclear).verdict()[1]
    assert "No leakage is visible" in result([nothing, nothing], slope=unclear).verdict()[1]
    above = result([nothing, some], slope=clear, advantage=Interval(0.5, 0.4, 0.6))
    assert not above.passed
    assert above.verdict()[-1].startswith("ABOVE THE BOUND: at ε = 5 the attack")
