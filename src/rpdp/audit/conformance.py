"""Does this build do what the plan says? Tests of the observations against the law that the plan implies.

A lower bound on ε cannot see a small error: noise that is 10 % too small still leaves ε_L below ε. The law of an
observation is known exactly, though, so a goodness-of-fit test sees it with a few thousand observations:

| test             | of what                                                 | finds                                |
|------------------|---------------------------------------------------------|--------------------------------------|
| `noise`          | every observation of canaries that are out              | σ, another shape of noise            |
| `releases ε`     | every observation of canaries that are in, by group     | clip norm, sampling probability      |
| `sums`, `sums ε` | the sum over the run, for each canary                   | noise or draws that are used twice   |
| `draws ε`        | how often members of a group were drawn (inside only)   | sampling probability                 |
| `participation`  | the number of rounds joined                             | a coin that is not λ, a cap not kept |

The first three are Kolmogorov–Smirnov tests: observations of canaries are independent (see `rpdp.audit.planting`),
steps are independent, so under the plan they are independent draws from one continuous law. The last two are exact
binomial tests and the like, doubled for both sides. Histograms compare the two distribution functions at the edges of
cells only, which can make a statistic smaller, never larger. The combined p-value is the smallest times the number of
tests (Bonferroni), so "does not conform" is said of an honest build with probability at most `FALSE_ALARM`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.accounting import Schedule
    from rpdp.audit.canary_law import CanaryLaw
    from rpdp.audit.tally import Tally

FALSE_ALARM = 1e-6
"""How often an honest build may fail."""


@dataclass(frozen=True)
class Test:
    """One test of one part of the plan.

    Attributes:
        name: As in the table above.
        count: Independent values that were looked at.
        statistic: The largest distance of distribution functions, or the count that was tested.
        p_value: The probability, under the plan, of something at least as far off.
    """

    __test__ = False  # not one of pytest's

    name: str
    count: int
    statistic: float
    p_value: float


def combined(tests: Sequence[Test]) -> float:
    """One p-value for all tests together."""
    return min(1.0, len(tests) * min(test.p_value for test in tests))


def conformance(tally: Tally, schedule: Schedule, joined: Sequence[int]) -> list[Test]:
    """Every test that the observations allow; `joined` are the rounds that each silo joined."""
    canaries, groups = tally.canaries, range(len(tally.laws))
    names = [f"ε = {epsilon:g}" for epsilon in canaries.groups]
    tests = [_histogram_test("noise", tally, -1, tally.laws[0], taken=False)]
    tests += [_histogram_test(f"releases {names[i]}", tally, i, tally.laws[i], taken=True) for i in groups]
    tests.append(_sums_test("sums", tally.sums[~canaries.taken], tally.laws[0].total(tally.observations), taken=False))
    for i in groups:
        rows = canaries.rows(i)
        members = tally.sums[rows][canaries.taken[rows]]
        tests.append(_sums_test(f"sums {names[i]}", members, tally.laws[i].total(tally.observations), taken=True))
    if tally.draws is not None:
        tests += [_draws_test(f"draws {names[i]}", tally, i) for i in groups]
    for number, rounds in enumerate(joined):
        tests.append(
            _participation_test("participation" if number == 0 else f"participation {number + 1}", schedule, rounds)
        )
    return tests


def _histogram_test(name: str, tally: Tally, row: int, law: CanaryLaw, *, taken: bool) -> Test:
    counts = tally.histograms[row]
    total = int(counts.sum())
    if total == 0:
        return Test(name, 0, 0.0, 1.0)
    distance = np.abs(np.cumsum(counts)[:-1] / total - law.below(tally.edges, taken=taken))
    return _test(name, total, float(distance.max()))


def _sums_test(name: str, sums: NDArray[np.float64], law: CanaryLaw, *, taken: bool) -> Test:
    total = len(sums)
    if total == 0:
        return Test(name, 0, 0.0, 1.0)
    expected = law.below(np.sort(sums), taken=taken)
    above = np.arange(1, total + 1) / total - expected
    return _test(name, total, float(max(above.max(), (1.0 / total - above).max())))


def _test(name: str, total: int, distance: float) -> Test:
    return Test(name, total, distance, float(stats.kstwo.sf(distance, total)))


def _draws_test(name: str, tally: Tally, group: int) -> Test:
    assert tally.draws is not None
    law, rows = tally.laws[group], tally.canaries.rows(group)
    chances = int(tally.canaries.taken[rows].sum()) * tally.observations * law.chances
    drawn = int(tally.draws[group])
    chance = stats.binom(chances, law.probability)
    return Test(name, chances, drawn, _both_sides(float(chance.cdf(drawn)), float(chance.sf(drawn - 1))))


def _participation_test(name: str, schedule: Schedule, joined: int) -> Test:
    chances = schedule.count().probabilities()
    return Test(
        name,
        schedule.rounds,
        joined,
        _both_sides(float(chances[: joined + 1].sum()), float(chances[joined:].sum())),
    )


def _both_sides(at_most: float, at_least: float) -> float:
    return min(1.0, 2.0 * min(at_most, at_least))
