"""The paper's own bounds on the cost of a run, kept to reproduce its figures. Nothing here ever enforces a budget.

The functions, whose names start with `paper_`, follow theorem 1 of "Cross-silo Federated Learning with Record-level
Personalized Differential Privacy" (CCS'24), at given Rényi orders and with the conversion of its Lemma 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.renyi import lemma_1_epsilon, log_moments
from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.schedule import Schedule

PAPER_ORDERS = np.concatenate([np.linspace(1.1, 10.9, 99), np.arange(11.0, 64.0), [128.0, 256.0, 512.0]])


def paper_type_1(
    schedule: Schedule,
    q: ArrayLike,
    *,
    noise_multiplier: float,
    delta: float,
    orders: ArrayLike = PAPER_ORDERS,
) -> FloatArray:
    """Min over α of λ T ρ_τ(α) + log(1/δ)/(α − 1): *not a bound*.

    The server sees who takes part. Given k joined rounds, the divergence is k ρ_τ. The paper averages it to λ T ρ_τ.
    What bounds δ, however, is the average of exp((α−1) k ρ_τ), which by Jensen's inequality is larger than the
    exponential of the average. At the paper's MNIST setting this formula claims 8.5 where 10.0 is due (tight
    conversion, integer orders).
    """
    moments = schedule.local_steps * _moments(q, orders, noise_multiplier)
    return _best(_participation(schedule) * schedule.rounds * moments, orders, delta)


def paper_type_2(
    schedule: Schedule,
    q: ArrayLike,
    *,
    noise_multiplier: float,
    delta: float,
    orders: ArrayLike = PAPER_ORDERS,
) -> FloatArray:
    """Min over α of T ρ_round(α) + log(1/δ)/(α − 1): valid for every observer, and looser than `PrivacyCurve`."""
    _participation(schedule)
    moments = schedule.local_steps * _moments(q, orders, noise_multiplier)
    return _best(schedule.count().log_moment(moments), orders, delta)


def _participation(schedule: Schedule) -> float:
    if schedule.participation is None or schedule.max_participations is not None:
        raise InputError("the paper's bounds cover only Poisson participation without a cap: give participation=λ")
    return schedule.participation


def _moments(q: ArrayLike, orders: ArrayLike, noise_multiplier: float) -> FloatArray:
    probabilities = np.atleast_1d(np.asarray(q, dtype=np.float64))
    return log_moments(probabilities[:, None], np.asarray(orders, dtype=np.float64), noise_multiplier)


def _best(log_moment: FloatArray, orders: ArrayLike, delta: float) -> FloatArray:
    return np.asarray(lemma_1_epsilon(log_moment, np.asarray(orders, dtype=np.float64), delta).min(axis=1))
