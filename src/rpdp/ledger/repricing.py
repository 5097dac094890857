"""What each run booked, priced anew from the public settings of its plan: the independent accountant of `verify`.

Two ways, both on fresh curves. The certified upper bound of the plan's own accountant: nothing may be booked below it.
And a proven *lower* bound of the true cost (the optimistic discretisation of the privacy loss, which shares neither
grid nor direction with the upper bound): a booking below it is an overspent record, whatever accountant made the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting import PrivacyCurve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.ledger.membership import Classes
    from rpdp.ledger.opened import OpenedLedger
    from rpdp.ledger.progress import Progress
    from rpdp.ledger.runs import Admission
    from rpdp.ledger.units import FloatArray

TOLERANCE = 1e-6
"""Prices of the same q alone and in a batch differ by less than this, relative (`rpdp.accounting.certificate`)."""

MOST_PRICED = 1024
"""More different q than this are checked against the price of the next smaller one among so many: cost rises with q."""


def reprice(ledger: OpenedLedger, progress: Progress) -> Iterator[str]:
    """All runs of a ledger."""
    admissions = ledger.runs.admissions()
    for number, admission in enumerate(admissions):
        yield from _reprice(admission, ledger.runs.members.classes(admission.seq, admission.classes))
        progress("pricing runs anew", number + 1, len(admissions))


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


def _prices(admission: Admission, active: int, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For each q its certified cost and a proven lower bound, or those of a smaller q."""
    public = admission.public
    grid = np.unique(q)
    if grid.size > MOST_PRICED:
        grid = grid[np.unique(np.linspace(0, grid.size - 1, MOST_PRICED).astype(np.int64))]
    own, loss = (
        PrivacyCurve(
            public.schedule, noise_multiplier=public.noise_multiplier, delta=public.delta, accountant=accountant
        ).after(active)
        for accountant in (public.accountant, "pld")
    )
    at = np.searchsorted(grid, q, side="right") - 1
    certified: FloatArray = own.epsilon(grid)[at]
    return certified, loss.bounds(grid).lower[at]
