"""Edges of schedules and of counts of joined rounds that a random sample of code changes found untested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

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
