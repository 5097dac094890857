"""IDP-SGD (Boenisch et al. 2023, "Have it your way"): individual sampling rates (Sample) or clip norms (Scale).

Both keep record j within its ε_j, **given** their settings. But they take those settings from the budgets in the
data: Sample finds σ from the mean sampling rate that all budgets together give, Scale finds noise and clip norms from
the mean of 1/σ_j. With one record more or less, every setting moves a little, and the analysis treats them as fixed.
So the promise is per record only for somebody who already knows the settings (privacy.md, rule 6); plans made
here carry that note. Calibration is one search per different budget: fine for groups, slow for personal budgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.accounting import PrivacyCurve, Schedule, calibrate_noise
from rpdp.accounting.noise_limits import LARGEST_NOISE, SMALLEST_NOISE
from rpdp.checks import require_count, require_delta, require_fraction, require_positive
from rpdp.errors import BudgetError, InputError, PlanError
from rpdp.planning import TUNED_ON_BUDGETS, PublicPlan
from rpdp.sampling import PoissonSampler
from rpdp.training import CentralResult, FlatModel, LocalView, make_kernel
from rpdp.training.noise_addition import release_

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor, nn

    from rpdp.accounting import Accountant
    from rpdp.budgets import BudgetTable
    from rpdp.planning import SiloPlan
    from rpdp.sampling import Randomness
    from rpdp.training import Kernel, OptimiserFactory, PerRecordLoss, Records

_TOLERANCE = 1e-2
_BRACKET = 1.25


@dataclass(frozen=True)
class IdpSettings:
    """What both variants are given; everything else they derive from the budgets.

    Attributes:
        steps: Number of steps.
        sampling_rate: The mean sampling rate q: expected batch over number of records.
        delta: δ of the run.
        clip_norm: c, the clip norm of Sample and the mean clip norm of Scale.
        normaliser: Public divisor of the noisy sum.
        accountant: "pld" or "rdp" (theirs).
    """

    steps: int
    sampling_rate: float
    delta: float
    clip_norm: float
    normaliser: float
    accountant: Accountant = "pld"

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        require_fraction("sampling_rate", self.sampling_rate)
        require_delta("delta", self.delta)
        require_positive("clip_norm", self.clip_norm)
        require_positive("normaliser", self.normaliser)

    @property
    def schedule(self) -> Schedule:
        """Every step taken, without federation."""
        return Schedule(1, self.steps, participation=1.0)


def sample_plan(budgets: BudgetTable, settings: IdpSettings) -> SiloPlan:
    """Sample (their Algorithm 2): a common σ at which the mean of the q_j is the given rate; for `train_central`.

    q_j is found by binary search, one for each different budget. Promise: (ε_j, δ) for each record given σ; σ comes
    from all budgets, so it is not covered.
    """
    epsilon = budgets.per_record().epsilon
    sigma = noise_for_rate(epsilon, settings.sampling_rate, settings.schedule, settings.delta, settings.accountant)
    public = PublicPlan(
        settings.schedule,
        noise_multiplier=sigma,
        delta=settings.delta,
        clip_norm=settings.clip_norm,
        normaliser=settings.normaliser,
        weights=1.0,
        accountant=settings.accountant,
        notes=(TUNED_ON_BUDGETS,),
    )
    return public.assign(budgets, estimator="binary_search")


def noise_for_rate(
    epsilon: ArrayLike, sampling_rate: float, schedule: Schedule, delta: float, accountant: Accountant = "pld"
) -> float:
    """The smallest σ, to 1 %, at which budgets `epsilon` allow a mean sampling rate of at least `sampling_rate`.

    Public when `epsilon` is a declared distribution; not covered when these are the real budgets.
    """
    levels, counts = np.unique(_budgets(epsilon), return_counts=True)
    require_fraction("sampling_rate", sampling_rate)
    shares = tuple(zip(levels.tolist(), (counts / counts.sum()).tolist(), strict=True))
    return _noise_for_rate(shares, sampling_rate, schedule, delta, accountant)


@lru_cache(maxsize=16)
def _noise_for_rate(
    shares: tuple[tuple[float, float], ...], target: float, schedule: Schedule, delta: float, accountant: Accountant
) -> float:
    levels, weights = np.array(shares).T

    def enough(sigma: float) -> bool:
        curve = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant=accountant)
        return float(curve.sampling_probability(levels) @ weights) >= target

    # What suffices by the cheap Rényi bound suffices by the smaller PLD bound, and is not far above.
    high = 1.0 if accountant == "rdp" else _noise_for_rate(shares, target, schedule, delta, "rdp")
    while not enough(high):
        high *= 2.0
        if high > LARGEST_NOISE:
            raise InputError(f"no σ up to {LARGEST_NOISE:g} gives these budgets a mean sampling rate of {target:g}")
    low = high / _BRACKET
    while low > SMALLEST_NOISE and enough(low):
        low, high = low / _BRACKET, low
    low = max(low, SMALLEST_NOISE)
    while high > low * (1.0 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class ScalePlan:
    """Scale (their Algorithm 3): one sampling rate, one noise, a clip norm for each record.

    Noise of standard deviation σ c hides a record with clip norm c_j = c σ/σ_j like a noise multiplier σ_j, and
    σ_j is what ε_j needs at the common rate. σ = 1 / mean(1/σ_j), so that the c_j average to c. Promise: (ε_j, δ) for
    each record given σ and c; σ comes from all budgets, so it is not covered.
    """

    settings: IdpSettings
    noise_multiplier: float
    noise_multipliers: NDArray[np.float64]
    clip_norms: NDArray[np.float64]

    @classmethod
    def of(cls, epsilon: ArrayLike, settings: IdpSettings) -> ScalePlan:
        """From the budgets: a noise calibration for each different one."""
        levels, where = np.unique(_budgets(epsilon), return_inverse=True)
        needed = np.array(
            [
                calibrate_noise(
                    settings.schedule,
                    epsilon=float(level),
                    delta=settings.delta,
                    sampling_probability=settings.sampling_rate,
                    accountant=settings.accountant,
                )
                for level in levels
            ]
        )[where]
        sigma = 1.0 / float(np.mean(1.0 / needed))
        return cls(settings, sigma, needed, settings.clip_norm * sigma / needed)

    def cost(self, accountant: Accountant | None = None) -> NDArray[np.float64]:
        """ε that each record spends, by the accountant of the settings or another one."""
        settings = self.settings
        levels, where = np.unique(self.noise_multipliers, return_inverse=True)
        curves = [
            PrivacyCurve(
                settings.schedule,
                noise_multiplier=float(level),
                delta=settings.delta,
                accountant=accountant or settings.accountant,
            )
            for level in levels
        ]
        return np.array([curve.epsilon(settings.sampling_rate) for curve in curves])[where]


def train_scaled(
    module: nn.Module,
    loss: PerRecordLoss,
    records: Records,
    plan: ScalePlan,
    randomness: Randomness,
    *,
    optimiser: OptimiserFactory,
    device: torch.device | str = "cpu",
) -> CentralResult:
    """Train `module` in place with a clip norm for each record; the promise is that of `ScalePlan`."""
    if len(records) == 0:
        raise InputError("the data set is empty: there is no record to train on")
    if len(records) != len(plan.clip_norms):
        raise PlanError(f"{len(records):,} records and a plan for {len(plan.clip_norms):,}")
    settings = plan.settings
    model = FlatModel(module, device)
    kernel = make_kernel(model, loss, records)
    made = optimiser([model.values])
    q = np.full(len(records), settings.sampling_rate)
    sampler, local = PoissonSampler(q), LocalView(q * settings.steps)
    std = plan.noise_multiplier * settings.clip_norm
    for number in range(settings.steps):
        model.require_finite()
        drawn = sampler.draw(randomness.child("step", number, "draw"))
        key = kernel.mask_key(randomness.child("step", number, "masks"))
        total, norms = _scaled_sum(kernel, records, drawn, plan.clip_norms[drawn], key)
        release_(total, std, settings.normaliser, randomness.child("step", number, "noise"))
        model.values.grad = total
        made.step()
        local.add(drawn, norms, settings.clip_norm)
    model.require_finite()
    return CentralResult(model, randomness.is_simulation, local)


def _scaled_sum(
    kernel: Kernel, records: Records, drawn: NDArray[np.int64], clip_norms: NDArray[np.float64], key: bytes | None
) -> tuple[Tensor, Tensor]:
    """The sum of the drawn gradients, each clipped at its own norm: one pass for each different norm."""
    total = torch.zeros_like(kernel.model.values.data)
    norms = [total.new_zeros(0)]
    for clip_norm in np.unique(clip_norms):
        rows = drawn[clip_norms == clip_norm]
        norms.append(kernel.add_clipped_sum(records.select(rows).masked(key, rows), float(clip_norm), total))
    return total, torch.cat(norms)


def _budgets(epsilon: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(epsilon, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not (np.isfinite(values) & (values > 0.0)).all():
        raise BudgetError("budgets must be a list of positive finite ε, one for each record")
    return values
