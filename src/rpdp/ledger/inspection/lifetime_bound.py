"""What everything that was, or may still be, released about a person reveals at most: (ε, δ), from the accounts alone.

| account | for life | so far |
|---|---|---|
| sums | the larger of the budget in force and what is booked; of a withdrawn one, what is booked | what is booked |
| Rényi | the larger of the budget in force and what is booked at its order, withdrawn or not | 0, or unknown |

A withdrawn record of which nothing is booked reveals nothing. What is booked may exceed a budget that was lowered
later. A Rényi account is a filter: it bounds its whole life, and gives no ε to a part of it (privacy.md, section 7).
The records of one person compose as a group. A person who may have accounts in k silos is bounded for all of them, if
no other silo was given a larger budget; nothing is said "so far".

Every number is rounded up: a bound here may be larger than it need be, never smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.odds import right_guesses
from rpdp.accounting.renyi_filter import ORDERS, conversion
from rpdp.budgets.person_split import log_joint_delta
from rpdp.display import counts_repr
from rpdp.ledger.inspection.person_explanation import largest_budgets
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT

if TYPE_CHECKING:
    from rpdp.ledger.balances import Balances
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.store.fixed_point import FloatArray, UnitArray

_ROUNDING = 1e-9
"""Relative: more than the last digits of all sums and conversions here; bounds are raised by it."""


@dataclass(frozen=True)
class LifetimeBound:
    """An upper bound (ε at δ); of a single Rényi account also the divergence at its order."""

    epsilon: float
    delta: float
    order: float | None = None
    divergence: float | None = None

    __repr__ = counts_repr

    @property
    def guesses(self) -> float:
        """Of 100 guesses whether the person is in, at most so many are right; 50 if nothing was or can be released."""
        if (self.epsilon == 0.0 and self.delta == 0.0) or self.divergence == 0.0:
            return 50.0
        return right_guesses(self.epsilon, self.delta, order=self.order, divergence=self.divergence)


@dataclass(frozen=True)
class PersonBounds:
    """The bounds of one person.

    Attributes:
        for_life: What all releases together reveal, those so far and those that the budget still allows.
        so_far: What the releases so far reveal; None where no such number exists.
    """

    for_life: LifetimeBound
    so_far: LifetimeBound | None

    __repr__ = counts_repr


def bounds_of_person(ledger: LedgerBase, held: Balances) -> PersonBounds:
    """Return the bounds of the person whose records have these balances."""
    largest_epsilon, largest_delta = largest_budgets(ledger, held)
    life = _for_life(held, largest_epsilon, largest_delta, ledger.terms.parts)
    return PersonBounds(life, _so_far(held))


def _for_life(held: Balances, largest_epsilon: FloatArray, largest_delta: FloatArray, parts: int) -> LifetimeBound:
    is_renyi, silos = held.order > 0, held.silos_per_person
    booked, booked_delta = _above(held.booked, EPSILON_SHIFT), _above(held.booked_delta, DELTA_SHIFT)
    gone = held.withdrawn & (~is_renyi | (held.booked == 0)) & (silos == 1)
    if silos > 1:  # another silo may have booked before a budget was lowered, in either kind of account
        in_force = np.maximum(held.epsilon, largest_epsilon), np.maximum(held.delta, largest_delta)
    else:
        in_force = np.where(gone, 0.0, held.epsilon), np.where(gone, 0.0, held.delta)
    # A δ that was lowered to 0 still has to turn what is booked into an ε.
    delta = np.where(is_renyi & ~gone & (in_force[1] == 0.0), largest_delta, in_force[1])
    used = np.where(is_renyi, _converted(booked, held, delta), booked)
    epsilon, delta = np.maximum(in_force[0], used), np.maximum(delta, booked_delta)
    if len(held) == 1 and is_renyi[0] and silos == 1:
        divergence = 0.0 if gone[0] else max(float(held.lifetime()[0][0]), float(booked[0]))
        order = float(ORDERS[held.order[0]])
        return LifetimeBound(float(epsilon[0]), float(delta[0]), order, divergence * (1.0 + _ROUNDING))
    return _together(epsilon, delta, parts=parts)


def _so_far(held: Balances) -> LifetimeBound | None:
    if held.silos_per_person > 1 or ((held.order > 0) & (held.booked > 0)).any():
        return None
    return _together(_above(held.booked, EPSILON_SHIFT), _above(held.booked_delta, DELTA_SHIFT), parts=1)


def _converted(booked: FloatArray, held: Balances, delta: FloatArray) -> FloatArray:
    """The ε at δ of what is booked at a Rényi account's order; 0 where nothing is booked or the account is a sum."""
    epsilon = np.zeros(len(held))
    rows = np.flatnonzero((held.order > 0) & (held.booked > 0))
    with np.errstate(divide="ignore"):
        price = conversion(ORDERS[held.order[rows]], delta[rows])
    epsilon[rows] = np.maximum(booked[rows] + price + _ROUNDING * (booked[rows] + np.abs(price)), 0.0)
    return epsilon


def _together(epsilon: FloatArray, delta: FloatArray, *, parts: int) -> LifetimeBound:
    """All records of a person as a group, in as many silos as hold equal parts."""
    joint = float(log_joint_delta(epsilon, delta, np.zeros(len(epsilon), dtype=np.int64), 1)[0])
    together = parts * (1.0 if joint >= 0.0 else math.exp(joint)) * (1.0 + _ROUNDING)
    return LifetimeBound(parts * math.fsum(epsilon) * (1.0 + _ROUNDING), min(1.0, together))


def _above(units: UnitArray, shift: int) -> FloatArray:
    """A float that is not below these units."""
    values = np.ldexp(units.astype(np.float64), -shift)
    return np.where(units == 0, 0.0, np.nextafter(values, np.inf))
