"""The least signal of a run that is worth its privacy: below it, a run spends budgets and releases noise.

In a step a silo releases a sum of at most Σq clipped gradients, of length Σq·L, and noise of standard deviation σL in
every direction. Over K steps signals add up and noise adds up in squares: along any one direction the whole run shows
at most Σq/σ·√K standard deviations. Somebody who knew the direction could tell such a run from pure noise in at most
Φ(Σq/σ·√K / 2) of all cases. Training must find the direction first, in as many dimensions as the model has parameters.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rpdp.accounting import Schedule

LEAST_SIGNAL = 1.0
"""The least Σq/σ·√K: a whole run, all gradients in one direction, within one standard deviation of its noise.

At this floor even an observer who knows the direction tells the run from pure noise in no more than 69 of 100 cases
(Φ(1/2)). It is a floor, and no promise that a run above it learns something."""


LEAST_SHARE = 0.1
"""The least share of the signal that unused budgets would give. Signals of runs add up in squares: below this, a
hundred such runs show no more than one from unused budgets. What planning leaves of used-up accounts (0.5 %) is mostly
below it: in a Rényi account, after one run that took everything, it pays for √0.005, 7 % of q."""


def floor_of_signal(unused: float) -> float:
    """The floor of the signal of a whole run, given the signal that it would have from unused budgets."""
    return max(LEAST_SIGNAL, LEAST_SHARE * unused)


def signal_of_run(signal_to_noise: float, schedule: Schedule) -> float:
    """The signal of a whole run in one silo, Σq/σ·√K, with K the expected number of its local steps."""
    return signal_to_noise * sqrt(schedule.expected_participations * schedule.local_steps)


def signal_of_silos(signals: Iterable[float]) -> float:
    """The signal of a run over several silos, each with its own noise: an upper bound, whatever their weights are."""
    return sqrt(sum(signal * signal for signal in signals))
