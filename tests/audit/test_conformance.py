"""Conformance tests: uniform p-values when the law holds, tiny ones when it does not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rpdp import Schedule
from rpdp.audit.canaries import Canaries
from rpdp.audit.canary_law import CanaryLaw
from rpdp.audit.conformance import FALSE_ALARM, Test, combined, conformance
from rpdp.audit.tally import BINS, Tally
from rpdp.errors import InputError
from rpdp.sampling import Seeded
from tests.audit.test_law import distribution_of

LAWS = (CanaryLaw(0.1, 2.0), CanaryLaw(0.6, 2.0))
SCHEDULE = Schedule(10, 1, participation=0.5)
OBSERVATIONS = 5


def tallied(seed: int, real: tuple[CanaryLaw, ...] = LAWS, *, per_group: int = 300, repeat: bool = False) -> Tally:
    """Observations of some real laws, tallied by an auditor who expects `LAWS`."""
    canaries = Canaries.flip((1.0, 5.0), per_group, Seeded(seed).child("coins"))
    tally = Tally(canaries, LAWS)
    for number in range(OBSERVATIONS):
        stream = Seeded(seed).child("observation", 0 if repeat else number)
        parts = []
        for group, law in enumerate(real):
            taken = canaries.taken[canaries.rows(group)]
            parts.append(np.where(taken, *(law.sample(per_group, stream, taken=is_in) for is_in in (True, False))))
        tally.add(np.concatenate(parts))
    return tally


def p_values(tally: Tally, joined: int = OBSERVATIONS) -> dict[str, float]:
    return {test.name: test.p_value for test in conformance(tally, SCHEDULE, [joined])}


def test_p_values_are_uniform_when_the_law_holds() -> None:
    """60 runs of seeds 0 …, six tests each; false alarm about 1e-4 for each name."""
    found = [p_values(tallied(seed)) for seed in range(60)]
    names = [name for name in found[0] if name != "participation"]
    assert names == ["noise", "releases ε = 1", "releases ε = 5", "sums", "sums ε = 1", "sums ε = 5"]
    for name in names:
        assert stats.ks_1samp([each[name] for each in found], stats.uniform.cdf).pvalue > 1e-4, name


@pytest.mark.parametrize(
    ("real", "repeat", "caught_by"),
    [
        ((CanaryLaw(0.1, 1.8), CanaryLaw(0.6, 1.8)), False, "noise"),
        ((CanaryLaw(0.1, 2.0), CanaryLaw(1.0, 2.0)), False, "releases ε = 5"),
        ((CanaryLaw(0.6, 2.0), CanaryLaw(0.6, 2.0)), False, "sums ε = 1"),
        (LAWS, True, "sums"),
    ],
    ids=["σ × 0.9", "q too large", "q of another group", "the same noise in every step"],
)
def test_another_law_is_seen(real: tuple[CanaryLaw, ...], repeat: bool, caught_by: str) -> None:
    """Seed 1, 3,000 canaries of each group."""
    found = p_values(tallied(1, real, per_group=3_000, repeat=repeat))
    assert found[caught_by] < 1e-7
    assert p_values(tallied(1, per_group=3_000))[caught_by] > 1e-4


def test_cells_lose_next_to_nothing() -> None:
    """The histogram's statistic is that of the values themselves, up to less than a cell's probability."""
    tally = tallied(1)
    values = np.array([tally.edges[0] - 1.0, tally.edges[-1] + 1.0])
    law, out = LAWS[0], ~tally.canaries.taken
    single = Tally(tally.canaries, LAWS)
    sample = law.sample(len(tally.canaries), Seeded(3), taken=False)
    single.add(sample)
    found = next(test for test in conformance(single, SCHEDULE, [5]) if test.name == "noise")
    exact = stats.ks_1samp(sample[out], distribution_of(law, taken=False))
    assert exact.statistic - 1e-4 < found.statistic <= exact.statistic
    extremes = Tally(tally.canaries, LAWS)
    extremes.add(np.resize(values, len(tally.canaries)))  # beyond all cells: counted in the first and the last
    assert extremes.histograms[:, 0].sum() + extremes.histograms[:, BINS - 1].sum() == len(tally.canaries)


@pytest.mark.parametrize(
    ("schedule", "joined", "low", "high"),
    [
        (Schedule(100, 1, participation=0.1), 10, 0.5, 1.0),
        (Schedule(100, 1, participation=0.1), 40, 0.0, 1e-10),
        (Schedule(10, 1, participations=4), 4, 1.0, 1.0),
        (Schedule(10, 1, participations=4), 5, 0.0, 0.0),
        (Schedule(10, 1, participation=0.5, max_participations=6), 7, 0.0, 0.0),
    ],
    ids=str,
)
def test_participation(schedule: Schedule, joined: int, low: float, high: float) -> None:
    found = {test.name: test.p_value for test in conformance(tallied(1), schedule, [joined])}["participation"]
    assert low <= found <= high


def test_draws() -> None:
    """Counted draws are compared with q exactly; without counts there is no such test."""
    tally = tallied(1)
    assert not any(name.startswith("draws") for name in p_values(tally))
    members = [tally.canaries.members[tally.canaries.group_of(tally.canaries.members) == group] for group in range(2)]
    expected = [round(len(who) * OBSERVATIONS * law.probability) for who, law in zip(members, LAWS, strict=True)]
    tally.add_draws(np.concatenate([np.resize(members[0], expected[0]), np.resize(members[1], 2 * expected[1])]))
    found = p_values(tally)
    assert found["draws ε = 1"] > 0.9
    assert found["draws ε = 5"] < 1e-20


def test_combining_multiplies_by_the_number_of_tests() -> None:
    assert combined([Test("a", 1, 0.0, 0.01), Test("b", 1, 0.0, 0.5)]) == 0.02
    assert combined([Test("a", 1, 0.0, 0.7), Test("b", 1, 0.0, 0.9)]) == 1.0
    assert FALSE_ALARM == 1e-6


def test_wrong_observations_are_refused() -> None:
    tally = tallied(1)
    with pytest.raises(InputError, match="shape"):
        tally.add(np.zeros(3))
    with pytest.raises(InputError, match="NaN or infinite"):
        tally.add(np.full(len(tally.canaries), np.nan))
    with pytest.raises(InputError, match="1 laws for 2 groups"):
        Tally(tally.canaries, LAWS[:1])
