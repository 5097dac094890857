"""Recomputing what each run booked from the public settings of its plan, in three ways.

| price | a booking below it is | independent of |
|---|---|---|
| certified upper bound, by the plan's own accountant | not what the plan costs | all of the ledger but q |
| lower bound, from rounded privacy losses | an overspent record | grid and rounding of the first |
| lower bound, by an attacker (`rpdp.ledger.inspection.attacker`) | an overspent record | all of `rpdp.accounting` |

The first is the tightest and finds any booking that was changed, but would miss a fault of the accountant itself. The
last uses no code of the accountant, and finds a fault that makes prices a few per cent too low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting import PrivacyCurve
from rpdp.ledger.inspection.attacker import provable_delta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.store.fixed_point import FloatArray
    from rpdp.ledger.store.run_book import Admission
    from rpdp.ledger.store.sampling_classes import Classes

TOLERANCE = 1e-6
"""Relative: prices of one q, alone and in a batch, differ by less than this (`rpdp.accounting.certificate`)."""

MOST_PRICED, MOST_ATTACKED = 1024, 128
"""With more distinct q than this, only so many are priced. The others are checked against the next smaller one's price,
which is safe because the cost rises with q."""


def reprice(ledger: LedgerBase, progress: Progress) -> Iterator[str]:
    """Price all runs of a ledger again and report bookings that are too low."""
    admissions = ledger.runs.admissions()
    for number, admission in enumerate(admissions):
        yield from _reprice(admission, ledger.runs.members.classes(admission.seq, admission.classes))
        progress("pricing runs again", number + 1, len(admissions))


def _reprice(admission: Admission, classes: Classes) -> Iterator[str]:
    for active in np.unique(classes.active[1:]):
        rows = 1 + np.flatnonzero(classes.active[1:] == active)
        certified, proven = _prices(admission, int(active), classes.q[rows])
        booked = classes.cost[rows]
        wrong = (booked < certified * (1.0 - TOLERANCE)) | (booked < proven * (1.0 - TOLERANCE))
        if wrong.any():
            worst = int(np.argmax(certified - booked))
            yield (
                f"run {admission.run!r}: {int(wrong.sum()):,} sampling classes are booked below their cost, at worst "
                f"ε = {booked[worst]:.6g} for q = {classes.q[rows][worst]:.6g}, which costs {certified[worst]:.6g} "
                f"(true cost at least {proven[worst]:.6g})"
            )
        yield from _attacked(admission, int(active), classes.q[rows], booked)


def _attacked(admission: Admission, active: int, q: FloatArray, booked: FloatArray) -> Iterator[str]:
    """Compare what an attacker can prove with the smallest booking at each q, or between it and the next one."""
    grid = _some(q, MOST_ATTACKED)
    least = np.full(len(grid), np.inf)
    np.minimum.at(least, np.searchsorted(grid, q, side="right") - 1, booked)
    delta = provable_delta(admission.public, active, grid, least)
    wrong = delta > admission.public.delta * (1.0 + TOLERANCE)
    if wrong.any():
        worst = int(np.argmax(delta))
        yield (
            f"run {admission.run!r}: {int(wrong.sum()):,} bookings are below what an attacker can prove, at worst ε = "
            f"{least[worst]:.6g} for q = {grid[worst]:.6g}: δ is at least {delta[worst]:.3g}, not "
            f"{admission.public.delta:g}"
        )


def _some(q: FloatArray, most: int) -> FloatArray:
    """Return the distinct values, or at most `most` of them including the smallest."""
    grid = np.unique(q)
    if grid.size <= most:
        return grid
    return grid[np.unique(np.linspace(0, grid.size - 1, most).astype(np.int64))]


def _prices(admission: Admission, active: int, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return for each q its certified cost and a proven lower bound, or those of the next smaller q on the grid."""
    public = admission.public
    grid = _some(q, MOST_PRICED)
    own, loss = (
        PrivacyCurve(
            public.schedule, noise_multiplier=public.noise_multiplier, delta=public.delta, accountant=accountant
        ).after(active)
        for accountant in (public.accountant, "pld")
    )
    at = np.searchsorted(grid, q, side="right") - 1
    certified: FloatArray = own.epsilon(grid)[at]
    return certified, loss.bounds(grid).lower[at]
