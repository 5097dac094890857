"""Numerical errors of composition: what is claimed covers what extended precision shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import fft

from rpdp.accounting.composition import (
    Groups,
    TiltedLoss,
    _extra_tilts,
    _window,
    coarsen,
    compose,
    rounding_error,
    tilt,
)
from rpdp.accounting.participation import BinomialCount, ExplicitCount, ParticipationCount, integer_power
from rpdp.accounting.step_loss import LossMasses

needs_extended_precision = pytest.mark.skipif(
    bool(np.finfo(np.longdouble).eps > 1e-18), reason="no extended precision on this machine"
)


def largest_interval_sum(errors: np.ndarray) -> float:
    """The largest |e_i + … + e_j|."""
    sums = np.concatenate([[0.0], np.cumsum(errors)])
    return float(sums.max() - sums.min())


def shapes(length: int, copies: int) -> dict[str, np.ndarray]:
    """Laws whose sums of so many copies fill a window in different ways."""
    position = np.arange(length)
    position = np.where(position > length // 2, position - length, position)
    far = np.where(position > 0, np.exp(-position / (length / 10)), 0.0)
    laws = {
        "spike": np.exp(-2.0 * position**2),
        "bell": np.exp(-0.5 * (position / (length / 16 / np.sqrt(copies) + 0.3)) ** 2),
        "rare and far": (position == 0) + 1e-3 * far / far.sum(),
    }
    return {name: law / law.sum() for name, law in laws.items()}


@needs_extended_precision
@pytest.mark.parametrize("length", [48, 1000, 15552, 101_250])
@pytest.mark.parametrize("copies", [1, 3, 50, 30_000])
def test_rounding_is_at_most_a_quarter_of_what_is_claimed(length: int, copies: int) -> None:
    claimed = rounding_error(length, ExplicitCount.exactly(copies))
    for name, law in shapes(length, copies).items():
        plain, extended = (
            fft.irfft(integer_power(fft.rfft(values), copies), n=length) for values in (law, law.astype(np.longdouble))
        )
        seen = largest_interval_sum(plain - extended)
        assert seen < claimed / 4, name
        assert seen > claimed / 1e5, name  # the comparison sees rounding at all


@needs_extended_precision
def test_rounding_of_a_mixture_is_covered_too() -> None:
    count = ExplicitCount.from_probabilities(BinomialCount(100, 0.3).probabilities())
    for name, law in shapes(15552, 30).items():
        plain, extended = (
            fft.irfft(count.mix(fft.rfft(values)[None, :], np.zeros(1)), n=law.size, axis=1)[0]
            for values in (law, law.astype(np.longdouble))
        )
        assert largest_interval_sum(plain - extended) < rounding_error(law.size, count) / 4, name


def tilted_law(theta: float, spacing: float, points: int = 2000) -> TiltedLoss:
    losses = (np.arange(points) - 200) * spacing
    masses = np.exp(-0.5 * ((losses - losses[points // 3]) / (losses[-1] / 8)) ** 2)
    return TiltedLoss(
        masses=masses[None, :] / masses.sum(),
        first=np.array([-200]),
        spacing=np.array([spacing]),
        tilt=np.array([theta]),
        log_mass=np.array([0.3]),
        error=np.array([1e-9]),
        relative=np.zeros(1),
    )


def alone(groups: Groups) -> TiltedLoss:
    """The single row of the result."""
    ((_, loss),) = groups
    return loss


@pytest.mark.parametrize("theta", [0.0, 0.5, 6.0, 80.0])
def test_coarsening_covers_the_error_that_it_is_given(theta: float) -> None:
    """Errors that move up by most of a cell grow by nearly e^{θ·spacing}: the claim grows as much."""
    fine = 0.05 / (theta + 1.0)
    law = tilted_law(theta, fine)
    spacing = np.array([10.0 * fine])
    exact = alone(coarsen(law, spacing))
    generator = np.random.default_rng(5)
    trials = [np.zeros(law.masses.shape[1]) for _ in range(60)]
    for trial, column in zip(trials, generator.integers(300, 900, len(trials)), strict=True):
        width = int(generator.integers(1, 300))
        trial[column : column + width] = 1.0 / width
        if width > 1 and generator.random() < 0.5:  # noise of both signs, with small sums
            trial[column : column + width] = generator.normal(size=width)
    growth = 0.0
    for trial in trials:
        shifted = replace(law, masses=law.masses + 1e-9 * trial / largest_interval_sum(trial))
        wrong = alone(coarsen(shifted, spacing))
        scale = np.exp(wrong.log_mass - exact.log_mass)[0]
        seen = largest_interval_sum(wrong.masses[0] * scale - exact.masses[0])
        assert seen <= exact.error[0] * (1 + 1e-6)
        growth = max(growth, seen / 1e-9)
    total = np.exp(exact.log_mass - law.log_mass)[0]
    assert exact.error[0] >= law.error[0] * np.exp(theta * spacing[0]) / total * (1 - 1e-12)
    assert growth > 0.9 / total  # the trials do move errors


def test_coarsening_keeps_both_measures() -> None:
    """Connect-the-dots: mass and E[e^(−loss)] stay, so the law dominates and the rounding is a fair one."""
    law = tilted_law(2.0, 0.01)
    coarse = alone(coarsen(law, np.array([0.07])))
    for weight in (0.0, -1.0):
        before, after = (
            float((each.masses * np.exp(each.log_mass[0] + (weight - 2.0) * each.losses)).sum())
            for each in (law, coarse)
        )
        assert after == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("count", [ExplicitCount.exactly(40), BinomialCount(60, 0.4)], ids=["exact", "poisson"])
@pytest.mark.parametrize("outside", [1e-4, 1e-8, 1e-12])
def test_what_a_window_leaves_out_is_within_the_error(count: ParticipationCount, outside: float) -> None:
    """A narrow window wraps mass around: compared with a wide one, sums are off, but by less than is claimed."""
    law = replace(tilted_law(1.0, 0.01, points=300), error=np.zeros(1))
    narrow, wide = (alone(compose(law, count, np.array([mass]))) for mass in (outside, 1e-15))
    assert narrow.masses.shape[1] <= wide.masses.shape[1]
    assert narrow.masses.shape[1] < wide.masses.shape[1] or outside < 1e-8
    offset = int(narrow.first[0] - wide.first[0])
    padded = np.zeros(wide.masses.shape[1] + narrow.masses.shape[1])
    padded[: wide.masses.shape[1]] = wide.masses[0]
    start = max(offset, 0)
    padded[start : start + narrow.masses.shape[1] - (start - offset)] -= narrow.masses[0, start - offset :]
    assert largest_interval_sum(padded) <= narrow.error[0] + wide.error[0]


@pytest.mark.parametrize("log_mass", [-800.0, -3.0, 0.0, 3.0, 800.0])
def test_the_rounding_of_a_large_total_is_in_the_relative_error(log_mass: float) -> None:
    """A logarithm L is known to about its last digit, so e^L only to that fraction, however exact the masses are."""
    law = replace(tilted_law(1.0, 0.01, points=300), log_mass=np.array([log_mass]), relative=np.array([1e-13]))
    composed = alone(compose(law, ExplicitCount.exactly(40), np.array([1e-12])))
    assert composed.log_mass[0] == pytest.approx(40.0 * log_mass, rel=1e-15)
    assert composed.relative[0] >= 40.0 * 1e-13 + np.spacing(abs(composed.log_mass[0]))
    assert composed.relative[0] <= 40.0 * 1e-13 + 8.0 * np.spacing(1.0 + abs(composed.log_mass[0]))


@pytest.mark.parametrize("theta", [0.0, 3.0, 1e4])
def test_the_rounding_of_a_tilt_is_in_the_relative_error(theta: float) -> None:
    step = LossMasses(np.array([[0.5, 0.3, 0.2]]), np.array([400]), np.array([0.1]))
    tilted = tilt(step, np.array([theta]), 1e-14)
    exponents = np.log(step.masses[0]) + theta * tilted.losses[0]
    assert tilted.log_mass[0] == pytest.approx(np.logaddexp.reduce(exponents), rel=1e-15)
    assert tilted.relative[0] >= 1e-14 + np.spacing(max(1.0, np.abs(exponents).max()))
    assert tilted.relative[0] <= 1e-14 + 16.0 * np.spacing(1.0 + np.abs(exponents).max())
    assert tilted.error[0] == 0.0


@pytest.mark.parametrize("theta", [0.0, 3.0, 100.0])
def test_the_rounding_of_a_coarser_grid_is_in_the_relative_error(theta: float) -> None:
    """New masses are products with e^{θ · distance}, at most e^{θ · spacing}, and sums of them."""
    law = replace(tilted_law(theta, 0.01), relative=np.array([1e-13]))
    spacing = 0.07
    coarse = alone(coarsen(law, np.array([spacing])))
    assert coarse.relative[0] >= 1e-13 + np.spacing(max(1.0, theta * spacing))
    assert coarse.relative[0] <= 1e-13 + 8.0 * np.spacing(1.0 + theta * spacing)


def test_a_row_gets_the_same_extra_tilts_in_any_company() -> None:
    """Otherwise its window, and so its price in the last digits, would depend on other records."""
    count = BinomialCount(60, 0.4)
    narrow, wide = tilted_law(1.0, 0.01, points=400), tilted_law(1.0, 0.01, points=400)
    rare = np.zeros((1, 400))
    rare[0, [200, 399]] = 1.0 - 1e-9, 1e-9
    wide = replace(wide, masses=rare)
    both = TiltedLoss(**{name: np.concatenate([one, vars(wide)[name]]) for name, one in vars(narrow).items()})
    outside = np.full(2, 1e-12)
    deviation, largest = np.array([0.3, 1e-3]), np.array([2.0, 2.0])
    together = _extra_tilts(deviation, largest, both, count)
    for row in range(2):
        own = both.take(np.array([row]))
        single = _extra_tilts(deviation[row : row + 1], largest[row : row + 1], own, count)
        assert np.unique(together[row]).tolist() == np.unique(single).tolist()
        assert single.max() >= 2.0 * single.min()
        for ends, ends_of_both in zip(_window(own, count, outside[:1]), _window(both, count, outside), strict=True):
            assert ends[0] == ends_of_both[row]
    assert np.unique(together[0]).size != np.unique(together[1]).size


def test_one_round_for_certain_is_the_law_itself_and_perhaps_one_round_is_a_mixture() -> None:
    """If "at most one" were taken for "one", a lower bound could lie above the truth."""
    law = replace(tilted_law(0.0, 0.01, points=300), log_mass=np.zeros(1), error=np.zeros(1))
    assert alone(compose(law, ExplicitCount.exactly(1), np.array([1e-12]))) is law
    perhaps = alone(compose(law, ExplicitCount.from_probabilities(np.array([0.25, 0.75])), np.array([1e-12])))
    losses = perhaps.losses[0]
    assert perhaps.masses[0, np.abs(losses) < 1e-9].sum() == pytest.approx(0.25 + 0.75 * law.masses[0, 200], abs=1e-9)
    assert (perhaps.masses[0] * losses).sum() == pytest.approx(0.75 * (law.masses[0] * law.losses[0]).sum(), abs=1e-9)
