"""Recomputing what each run booked from the public settings of its plan, in three ways.

| price | a booking below it is | independent of |
|---|---|---|
| certified upper bound, by the plan's own accountant | not this machine's price | all of the ledger but q |
| lower bound, from rounded privacy losses | an overspent record | grid and rounding of the first |
| lower bound, by an attacker (`rpdp.ledger.inspection.attacker`) | an overspent record | all of `rpdp.accounting` |

Sum accounts are priced at the δ that each class booked. A Rényi account books a divergence at one order; its price is
exact to eleven digits, so every machine finds the same, and the second opinion is the binomial sum at whole orders.
In a run with a request q is a weight, and its price is that of a Gaussian: exact, so the three prices nearly meet.

On the machine that made the plan a q has one price, and the silo refuses a plan that states less. Another processor,
library or release may find another price: every price is an upper bound, close to the truth but not the truth. So a
booking below this machine's price is excused only down to the lower bound, which no honest price can be below, whoever
computed it. The tolerance is thus proven for each q: it is the distance of the two bounds. An attacker's bound uses no
code of the accountant, and finds a fault that makes prices a few per cent too low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting import PrivacyCurve
from rpdp.accounting.delta_table import delta_below
from rpdp.accounting.renyi_filter import ORDERS
from rpdp.ledger.inspection.attacker import provable_delta
from rpdp.ledger.inspection.second_moments import provable_divergence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rpdp.accounting import Accountant
    from rpdp.accounting.costs import CostCurve
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.store.fixed_point import FloatArray
    from rpdp.ledger.store.run_book import Admission
    from rpdp.ledger.store.sampling_classes import Classes
    from rpdp.planning import PublicPlan

    Rows = NDArray[np.int64]

_ACCURACY = 1e-4
"""The accuracy of lower bounds, finer than that of prices: bookings 0.1 % too low are found at ordinary settings."""

_BETWEEN_ORDERS = 1e-4
"""Relative: how far the Rényi bound at the best order searched may lie above that at the best order of all.

The last orders searched are 0.27 % apart in α − 1, and at its minimum the bound is flat: within a step it changes by a
few millionths. Nothing else in that price depends on the machine, to eleven digits."""

_ROUNDING = 1e-9
"""Relative: the last digits of δ that an attacker proves."""

MOST_PRICED, MOST_ATTACKED = 1024, 128
"""With more distinct q than this, only so many are priced. The others are checked against the next smaller one's price,
which is safe because the cost rises with q."""


def reprice(ledger: LedgerBase, progress: Progress) -> Iterator[str]:
    """Price all runs of a ledger again and report bookings that are too low. A cancelled run has booked nothing."""
    admissions = ledger.runs.booked()
    for number, admission in enumerate(admissions):
        yield from _reprice(admission, ledger.runs.members.of(admission), ledger.silos_per_person)
        progress("pricing runs again", number + 1, len(admissions))


def _reprice(admission: Admission, classes: Classes, silos_per_person: int) -> Iterator[str]:
    rows = 1 + np.arange(len(classes) - 1)
    for number in np.unique(classes.order[rows][classes.order[rows] > 0]):
        of_order = rows[classes.order[rows] == number]
        yield from _reprice_divergence(admission, classes, of_order, int(number), silos_per_person)
    sums = rows[classes.order[rows] == 0]
    for delta in np.unique(classes.delta[sums]):
        yield from _reprice_sums(admission, classes, sums[classes.delta[sums] == delta], float(delta))


def _reprice_divergence(admission: Admission, classes: Classes, rows: Rows, number: int, times: int) -> Iterator[str]:
    """Price the classes of one order again, in two ways; `times` is the number of silos per person."""
    public, order = admission.public, float(ORDERS[number])
    booked, q = classes.cost[rows], classes.q[rows]
    grid = _some(q, MOST_PRICED)
    at = np.searchsorted(grid, q, side="right") - 1
    certified = times * public.divergence_curve(order).divergence(grid)[at]
    proven = times * provable_divergence(public, grid, order)[at]
    wrong = booked < np.maximum(certified * (1.0 - _ROUNDING), proven * (1.0 - _ROUNDING))
    if (classes.active[rows] != public.schedule.rounds).any() or (classes.delta[rows] != 0.0).any():
        yield f"run {admission.run!r}: classes of Rényi accounts book a δ, or only some of the rounds"
    if wrong.any():
        worst = int(np.argmax(np.where(wrong, certified - booked, -np.inf)))
        yield (
            f"run {admission.run!r}: {int(wrong.sum()):,} sampling classes are booked below their cost, at worst "
            f"ρ = {booked[worst]:.6g} for q = {q[worst]:.6g} at order {order:.6g}, which costs {certified[worst]:.6g}"
        )


def _reprice_sums(admission: Admission, classes: Classes, of_delta: Rows, delta: float) -> Iterator[str]:
    for active in np.unique(classes.active[of_delta]):
        rows = of_delta[classes.active[of_delta] == active]
        booked = classes.cost[rows]
        wrong = np.ones(rows.size, dtype=bool)
        for accountant in _accountants(admission, delta):
            certified, proven = _prices(admission, int(active), classes.q[rows], delta, accountant)
            wrong &= booked < _least_honest(accountant, certified, proven)
            if not wrong.any():
                break
        if wrong.any():
            worst = int(np.argmax(np.where(wrong, certified - booked, -np.inf)))
            yield (
                f"run {admission.run!r}: {int(wrong.sum()):,} sampling classes are booked below their cost, at worst "
                f"ε = {booked[worst]:.6g} for q = {classes.q[rows][worst]:.6g}, which costs {certified[worst]:.6g} "
                f"(true cost at least {proven[worst]:.6g})"
            )
        yield from _attacked(admission, int(active), classes.q[rows], booked, delta)


def _accountants(admission: Admission, delta: float) -> list[Accountant]:
    """The accountants that may have priced a class: the plan's, and Rényi bounds if its δ is on the lattice.

    A common δ may lie on the lattice of own ones by chance, so there either price is honest.
    """
    own: Accountant = admission.public.accountant
    is_on_lattice = delta_below(np.array([delta]))[0] == delta
    has_one_price = own == "rdp" or admission.public.request is not None
    return [own] if has_one_price or not is_on_lattice else [own, "rdp"]


def _least_honest(accountant: Accountant, certified: FloatArray, proven: FloatArray) -> FloatArray:
    """The smallest price that any machine could have found for a plan."""
    if accountant == "rdp":
        return np.maximum(certified * (1.0 - _BETWEEN_ORDERS), proven)
    return np.where(proven > 0.0, proven, certified)


def _attacked(admission: Admission, active: int, q: FloatArray, booked: FloatArray, stated: float) -> Iterator[str]:
    """Compare what an attacker can prove with the smallest booking at each q, or between it and the next one."""
    grid = _some(q, MOST_ATTACKED)
    least = np.full(len(grid), np.inf)
    np.minimum.at(least, np.searchsorted(grid, q, side="right") - 1, booked)
    delta = provable_delta(admission.public, active, grid, least)
    wrong = delta > stated * (1.0 + _ROUNDING)
    if wrong.any():
        worst = int(np.argmax(delta))
        yield (
            f"run {admission.run!r}: {int(wrong.sum()):,} bookings are below what an attacker can prove, at worst ε = "
            f"{least[worst]:.6g} for q = {grid[worst]:.6g}: δ is at least {delta[worst]:.3g}, not "
            f"{stated:g}"
        )


def _some(q: FloatArray, most: int) -> FloatArray:
    """Return the distinct values, or at most `most` of them including the smallest."""
    grid = np.unique(q)
    if grid.size <= most:
        return grid
    return grid[np.unique(np.linspace(0, grid.size - 1, most).astype(np.int64))]


def _prices(
    admission: Admission, active: int, q: FloatArray, delta: float, accountant: Accountant
) -> tuple[FloatArray, FloatArray]:
    """Return for each q its certified cost and a proven lower bound, or those of the next smaller q on the grid."""
    grid = _some(q, MOST_PRICED)
    own, loss = (_curve(admission.public, delta, one).after(active) for one in (accountant, "pld"))
    at = np.searchsorted(grid, q, side="right") - 1
    certified: FloatArray = own.epsilon(grid)[at]
    return certified, loss.bounds(grid, accuracy=_ACCURACY).lower[at]


def _curve(public: PublicPlan, delta: float, accountant: Accountant) -> CostCurve:
    """The curve of a run by this accountant; a request has one price, whatever the accountant."""
    if public.request is not None:
        return public.curve_at(delta)
    return PrivacyCurve(public.schedule, noise_multiplier=public.noise_multiplier, delta=delta, accountant=accountant)
