"""Edges of schedules and of counts of joined rounds that a random sample of code changes found untested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from rpdp import Schedule
from rpdp.accounting.participation import ExplicitCount
from rpdp.errors import InputError


def test_the_cap_takes_all_of_the_tail() -> None:
    """Without it the mass beyond the cap would be shared out among cheaper counts."""
    capped = Schedule(20, 1, participation=0.4, max_participations=6).count().probabilities()
    law = stats.binom(20, 0.4)
    assert capped == pytest.approx([*law.pmf(np.arange(6)), law.sf(5)], rel=1e-12)


def test_a_long_list_of_counts_stays_fine_where_the_mass_is() -> None:
    """100,000 rounds: all mass lies within about 3,000 counts, so rounding up to 2,048 costs at most a round or two."""
    masses = stats.binom.pmf(np.arange(100_001), 100_000, 0.5)
    count = ExplicitCount.from_probabilities(masses)
    assert count.rounded_down is not None
    assert count.largest == 100_000
    likely = count.counts[(count.counts > 49_500) & (count.counts < 50_500)]
    assert likely.size > 400
    assert np.diff(likely).max() <= 2
    assert np.arange(100_001) @ count.probabilities() == pytest.approx(50_000, abs=2)


def test_a_long_list_with_all_of_its_mass_at_the_cap_is_rounded_both_ways() -> None:
    """Nothing lies beyond the cap, in neither direction of rounding."""
    count = Schedule(6000, 1, participation=0.9, max_participations=3000).count()
    assert isinstance(count, ExplicitCount)
    assert count.rounded_down is not None
    for each in (count, count.rounded_down):
        assert each.counts.shape == each.log_probabilities.shape
        assert each.largest == 3000
        assert each.probabilities()[3000] == pytest.approx(1.0)
        assert each.log_moment(np.array([0.1]))[0] == pytest.approx(300.0)


def test_participation_is_never_given_by_position() -> None:
    """A bare number could be a probability, a cap or a count."""
    make: Any = Schedule
    assert make(15, 50, participation=0.5).steps == 750
    for number in (0.5, 1, 8):
        with pytest.raises(TypeError, match="positional"):
            make(15, 50, number)
        with pytest.raises(TypeError, match="positional"):
            make(15, 50, number, participation=0.5)


def test_numbers_of_any_kind_make_the_same_schedule() -> None:
    make: Any = Schedule
    schedule = make(np.int64(15), np.int32(50), participation=np.float64(0.5))
    kinds = [type(value) for value in (schedule.rounds, schedule.local_steps, schedule.participation)]
    assert kinds == [int, int, float]
    assert repr(schedule) == repr(Schedule(15, 50, participation=0.5))


def test_the_largest_number_of_rounds() -> None:
    assert Schedule(1_000_000, 1, participations=1).rounds == 1_000_000
    with pytest.raises(InputError, match="rounds=1000001"):
        Schedule(1_000_001, 1, participations=1)


PADDED = [[0.25, 0.75, 0.0], [0.0, 0.25, 0.75], [0.0, 1.0, 0.0], [1e-30, 0.25, 0.75, 1e-30], [0.5, 0.0, 0.5]]


@pytest.mark.parametrize("probabilities", PADDED, ids=str)
def test_counts_that_carry_no_weight_leave_a_mixture_as_it_is(probabilities: list[float]) -> None:
    """Rows with different tilts, computed together: each is Σ p_k (m φ)^k, scaled to 1, however large m is."""
    count = ExplicitCount.from_probabilities(np.array(probabilities))
    spectrum = np.tile(0.9 * np.exp(1j * np.linspace(0.0, 3.0, 7)), (4, 1))
    k = np.flatnonzero(probabilities)
    log_weights = np.array([0.0, 0.3, -2.0, 600.0])[:, None] * k + np.log(np.array(probabilities)[k])
    weights = np.exp(log_weights - special.logsumexp(log_weights, axis=1, keepdims=True))
    expected = (weights[:, :, None] * spectrum[:, None, :] ** k[:, None]).sum(axis=1)
    mixed = count.mix(spectrum, np.array([0.0, 0.3, -2.0, 600.0]))
    np.testing.assert_allclose(mixed, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("log_mass", [-0.01, -1.0, -40.0])
def test_moments_of_a_shrinking_mass_keep_their_digits(log_mass: float) -> None:
    """E[e^{k m}] for m < 0 may be far below 1: as 1 + Σ p (e^{k m} − 1) it would be lost in the rounding of the 1."""
    count = ExplicitCount.from_probabilities(np.array([0.0, 0.0, 0.25, 0.25, 0.5]))
    expected = np.log(0.25 * np.exp(2 * log_mass) + 0.25 * np.exp(3 * log_mass) + 0.5 * np.exp(4 * log_mass))
    assert count.log_moment(np.array([log_mass]))[0] == pytest.approx(expected, rel=1e-14)


def test_a_number_of_rounds_that_is_certain_has_no_error() -> None:
    assert Schedule(12, 1, participations=5).count().relative_error == 0.0
    assert Schedule(12, 1, participation=0.3, max_participations=4).count().relative_error > 0.0


@pytest.mark.parametrize("announced", [-1, 16, 2.5])
@pytest.mark.parametrize("rule", [{"participation": 0.5}, {"participations": 8}], ids=str)
def test_no_more_rounds_can_be_announced_than_there_are(announced: Any, rule: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="announced="):
        Schedule(15, 50, **rule).count(announced)


def test_a_schedule_says_how_rounds_are_joined() -> None:
    assert Schedule(15, 50, participations=8).describe() == "15 rounds × 50 local steps, exactly 8 rounds joined"
    assert Schedule(1, 1, participation=0.5).describe() == "1 round × 1 local step, participation 0.5"
    capped = Schedule(2000, 1, participation=0.5, max_participations=8).describe()
    assert capped == "2,000 rounds × 1 local step, participation 0.5, at most 8 rounds joined"
