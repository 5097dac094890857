"""The masses of one step, far out in the tails, against forty-digit arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from rpdp.accounting.certificate import SMALLEST_PROBABILITY
from rpdp.accounting.step_loss import reach_for, relative_error, step_cells


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
