"""The masses of one step, far out in the tails, against forty-digit arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import stats

from rpdp.accounting.certificate import SMALLEST_PROBABILITY
from rpdp.accounting.step_loss import log_ratio, pessimistic, reach_for, relative_error, rounded, step_cells


def gaussian_mass(low: float, high: float, centre: float, sigma: float) -> float:
    """The mass between two points, without cancellation on either side."""
    with mpmath.workdps(60):
        a, b = ((mpmath.mpf(x) - centre) / (mpmath.mpf(sigma) * mpmath.sqrt(2)) for x in (low, high))
        if a < 0:
            a, b = -b, -a
        return float((mpmath.erfc(a) - mpmath.erfc(b)) / 2)


@pytest.mark.parametrize("sigma", [0.1, 0.58, 1.0, 10.748])
@pytest.mark.parametrize("lost", [1e-12, 1e-17, 1e-40])
def test_masses_are_accurate_as_far_as_they_reach(sigma: float, lost: float) -> None:
    """At q = 1 the loss is (x − ½) / σ², so cells of spacing 1/σ are σ wide: as wide as panels or wider."""
    spacing = 1.0 / sigma
    cells = step_cells(np.array([1.0]), sigma, np.array([spacing]), lost, centred=False)
    reach = reach_for(lost) * sigma
    index = cells.cell[0] - cells.cell[0].min()
    claimed = relative_error(sigma, lost)
    for centre, masses in ((0.0, cells.without_record[0]), (1.0, cells.with_record[0])):
        sums = np.bincount(index, weights=masses)
        ends = np.clip(sigma**2 * spacing * (cells.cell[0].min() + np.arange(sums.size + 1)) + 0.5, -reach, 1.0 + reach)
        exact = np.array([gaussian_mass(ends[i], ends[i + 1], centre, sigma) for i in range(1, sums.size - 1)])
        assert sums[1:-1] == pytest.approx(exact, rel=3 * claimed, abs=0)
    assert sums.size > 12  # the outermost two are cut by the ends of the axis


def test_the_claim_is_fourteen_digits_where_plans_live() -> None:
    assert relative_error(1.0, 1e-11) == 1e-14
    assert relative_error(1.0, 1e-100) > 5e-14


@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.5, 1.0, 30.0])
@pytest.mark.parametrize("lost", [1e-9, 1e-60, 1e-200])
def test_the_claim_covers_the_rounding_of_the_exponent_at_the_far_end(sigma: float, lost: float) -> None:
    """The axis ends `reach` beyond the farther centre, which is 1/σ standard deviations away from the other one."""
    farthest = 0.5 * (reach_for(lost) + 1.0 / sigma) ** 2
    assert relative_error(sigma, lost) >= max(1e-14, 0.5 * float(np.spacing(farthest)))


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("q", [SMALLEST_PROBABILITY, 1e-6, 0.3, 1.0])
def test_no_point_leaves_its_cell_even_where_q_is_tiny(q: float, centred: bool) -> None:
    """Connect-the-dots clips the share of a point outside its cell, and then dominates nothing.

    The cells are a thousandth of q wide: to invert the loss there takes all digits.
    """
    spacing = q / 1000.0
    cells = step_cells(np.array([q]), 10.0, np.array([spacing]), 1e-9, centred=centred)
    inside = cells.loss / spacing - cells.cell + (0.5 if centred else 0.0)
    assert inside.min() > -1e-9
    assert inside.max() < 1.0 + 1e-9


@pytest.mark.parametrize("removing", [True, False])
def test_the_rounded_loss_has_the_mass_of_the_points_that_round_to_it(removing: bool) -> None:
    """Rows of different q, computed together, against differences of distribution functions."""
    q, sigma, spacing = np.array([0.3, 0.35, 0.9]), 1.0, np.array([0.05, 0.05, 0.08])
    own, other = rounded(step_cells(q, sigma, spacing, 1e-9, centred=True), removing=removing)
    x = np.linspace(-8.0, 9.0, 400_001)
    densities = [stats.norm.pdf(x) * (x[1] - x[0]), stats.norm.pdf(x, 1.0) * (x[1] - x[0])]
    for row in range(q.size):
        loss = log_ratio(q[row : row + 1], x - 0.5)
        measures = [(1.0 - q[row]) * densities[0] + q[row] * densities[1], densities[0]]
        for law, masses in zip((own, other), measures if removing else measures[::-1], strict=True):
            grid = np.rint((loss if removing else -loss) / spacing[row]).astype(np.int64)
            column = np.clip(grid - law.first[row], 0, law.masses.shape[1] - 1)
            expected = np.bincount(column, weights=masses, minlength=law.masses.shape[1])
            np.testing.assert_allclose(law.masses[row], expected, atol=2e-5)
            assert law.masses[row].sum() == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("removing", [True, False])
def test_a_pessimistic_grid_keeps_both_measures_of_every_row(removing: bool) -> None:
    """Connect-the-dots: the mass and E[e^(−loss)], which is the mass under the other measure, stay."""
    q, spacing = np.array([0.3, 0.35, 0.9]), np.array([0.05, 0.05, 0.08])
    cells = step_cells(q, 1.0, spacing, 1e-9, centred=False)
    law = pessimistic(cells, removing=removing)
    own, other = cells.with_record, cells.without_record
    if not removing:
        own, other = other, own
    losses = (law.first[:, None] + np.arange(law.masses.shape[1])) * spacing[:, None]
    np.testing.assert_allclose(law.masses.sum(axis=1), own.sum(axis=1), rtol=1e-13)
    np.testing.assert_allclose((law.masses * np.exp(-losses)).sum(axis=1), other.sum(axis=1), rtol=1e-13)
