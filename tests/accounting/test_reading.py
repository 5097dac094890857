"""δ, ε and proven bounds read off a loss distribution of a few points, against sums over these points."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp.accounting import pld
from rpdp.accounting.composition import TiltedLoss

SPACING = 0.5
FIRST = 1
MASSES = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
LOSSES = SPACING * (FIRST + np.arange(MASSES.size))
TILTS = [0.0, 0.7]


def tilted(tilt: float, *, error: float = 0.0, relative: float = 0.0, masses: np.ndarray = MASSES) -> TiltedLoss:
    raised = masses * np.exp(tilt * LOSSES)
    one = np.ones(1)
    return TiltedLoss(
        masses=raised[None, :] / raised.sum(),
        first=np.array([FIRST]),
        spacing=SPACING * one,
        tilt=tilt * one,
        log_mass=np.log(raised.sum()) * one,
        error=error * one,
        relative=relative * one,
    )


def delta(epsilon: float, masses: np.ndarray = MASSES) -> float:
    return float((masses * np.maximum(-np.expm1(epsilon - LOSSES), 0.0)).sum())


@pytest.mark.parametrize("tilt", TILTS)
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 0.5, 0.7, 1.0, 1.9, 2.3, 2.49])
def test_delta_is_the_sum_at_points_and_between_them(tilt: float, epsilon: float) -> None:
    assert pld._delta_at(tilted(tilt), epsilon)[0, 0] == pytest.approx(delta(epsilon), rel=1e-12)


@pytest.mark.parametrize("tilt", TILTS)
def test_delta_is_one_left_of_the_window_and_the_error_right_of_it(tilt: float) -> None:
    loss = tilted(tilt, error=1e-3)
    assert pld._delta_at(loss, 0.0)[0, 0] == 1.0
    for epsilon in (2.6, 4.0):
        expected = 1e-3 * float(np.exp(loss.log_mass[0] - tilt * epsilon))
        assert pld._delta_at(loss, epsilon)[0, 0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("tilt", TILTS)
@pytest.mark.parametrize("epsilon", [0.6, 1.0, 1.7, 2.5])
def test_errors_are_added_to_delta(tilt: float, epsilon: float) -> None:
    """An absolute error as large as it is there, or up to two points further left, and a relative one."""
    loss = tilted(tilt, error=1e-3, relative=0.01)
    known = pld._delta_at(loss, epsilon)[0, 0] - np.exp(0.01) * delta(epsilon)
    here = 1e-3 * float(np.exp(loss.log_mass[0] - tilt * epsilon))
    assert here * (1.0 - 1e-9) <= known <= here * np.exp(tilt * 2.0 * SPACING) * (1.0 + 1e-9)


@pytest.mark.parametrize("tilt", TILTS)
@pytest.mark.parametrize("epsilon", [0.55, 0.8, 1.0, 1.5, 2.2, 2.49])
def test_epsilon_is_where_delta_is_met(tilt: float, epsilon: float) -> None:
    found, steepness, error, share = pld._smallest_epsilon(tilted(tilt, error=1e-13), delta(epsilon))[:, 0]
    assert found == pytest.approx(epsilon, abs=1e-9)
    assert found >= epsilon - 1e-12
    assert steepness >= pld._LEAST_STEEPNESS
    assert error == 1e-13
    at = float(np.exp(tilted(tilt).log_mass[0] - tilt * (found - SPACING)))
    assert share == pytest.approx(1e-13 * at / delta(epsilon), rel=1e-6)


@pytest.mark.parametrize("tilt", TILTS)
@pytest.mark.parametrize(("epsilon", "point"), [(0.55, 1), (0.8, 1), (1.2, 2), (1.8, 3), (2.2, 4)])
def test_steepness_is_how_fast_the_slope_falls_from_there_to_the_next_point(
    tilt: float, epsilon: float, point: int
) -> None:
    """The slope left of a point is Σ p_j e^{ℓ_i − ℓ_j} over the points from there on; after the last one it stays."""
    slopes = [(MASSES[i:] * np.exp(LOSSES[i] - LOSSES[i:])).sum() for i in range(MASSES.size)]
    fall = np.log(slopes[point] / slopes[min(point + 1, MASSES.size - 1)]) / SPACING
    found = pld._smallest_epsilon(tilted(tilt), delta(epsilon))[1, 0]
    assert found == pytest.approx(max(fall, pld._LEAST_STEEPNESS), rel=1e-9)


def test_no_epsilon_is_known_left_of_the_window_or_below_the_error() -> None:
    """Left of the first point it is that point; below the error none without a tilt, with one where the error falls."""
    assert pld._smallest_epsilon(tilted(0.0), 0.999)[0, 0] == LOSSES[0]
    assert pld._smallest_epsilon(tilted(0.0, error=1e-3), 1e-4)[0, 0] == np.inf
    loss = tilted(0.7, error=1e-3)
    found = pld._smallest_epsilon(loss, 1e-6)[0, 0]
    assert 1e-3 * np.exp(loss.log_mass[0] - 0.7 * found) == pytest.approx(1e-6, rel=1e-9)


def test_an_epsilon_is_never_negative() -> None:
    loss = tilted(0.0)
    negative = TiltedLoss(**{**vars(loss), "first": np.array([-20])})
    assert pld._smallest_epsilon(negative, 0.1)[0, 0] == 0.0
    unresolved = TiltedLoss(**{**vars(tilted(0.7, error=0.11)), "first": np.array([-20]), "log_mass": np.zeros(1)})
    assert pld._beyond_the_window(unresolved, 0.1)[0] == pytest.approx(np.log(1.1) / 0.7)
    assert pld._beyond_the_window(unresolved, 0.2)[0] == 0.0  # the error is less than δ at ε = 0 already


@pytest.mark.parametrize("tilt", TILTS)
def test_what_is_proven_is_the_best_threshold(tilt: float) -> None:
    """log((Pr[S ≥ t] − δ) / Pr'[S ≥ t]); errors and what was lost count against the attacker."""
    other = MASSES * np.exp(-LOSSES)
    tails, other_tails = (np.cumsum(masses[::-1])[::-1] for masses in (MASSES, other))
    best = np.log((tails - 0.1)[tails > 0.1] / other_tails[tails > 0.1]).max()
    own, against = tilted(tilt), tilted(tilt, masses=other)
    assert pld._proven(own, against, 0.1, 0.0) == pytest.approx(best, rel=1e-12)
    assert pld._proven(own, against, 0.1, 0.01) < best
    assert pld._proven(own, tilted(tilt, masses=other, error=0.01), 0.1, 0.0) < best - 1e-4
    assert pld._proven(own, tilted(tilt, masses=other, relative=0.01), 0.1, 0.0) == pytest.approx(best - 0.01)
    assert pld._proven(tilted(tilt, error=0.01), against, 0.1, 0.0) < best - 1e-4
    assert pld._proven(tilted(tilt, relative=0.01), against, 0.1, 0.0) < best - 0.01
    assert pld._proven(own, against, 1.0, 0.0) == 0.0
