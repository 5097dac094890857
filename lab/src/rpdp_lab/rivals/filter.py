"""Filter: full-batch private gradient descent with individual accounting (Feldman & Zrnic 2021, Algorithm 3).

Every step uses all records that are still active. A record is charged the squared norm of its own clipped gradient,
not the worst case L²; before the step in which its sum would exceed its norm budget, it drops out for good.

From (ε_j, δ) to a norm budget B_j. With noise of standard deviation s = σL, a step with a gradient of norm g is, for
that record, a Gaussian mechanism with sensitivity g: its Rényi divergence of order α is α g²/(2s²), for all α at once.
When Σ g² ≤ B_j always holds, the filter theorem gives the record the whole curve α B_j/(2s²), that of a single
Gaussian with sensitivity √B_j (each α is fixed before the run, so the best may be taken afterwards). Two ways to read
an ε off:

| `conversion` | the largest B_j with                                       | rests on                                |
|--------------|------------------------------------------------------------|-----------------------------------------|
| `"renyi"`    | tight conversion of the best order ≤ ε_j                    | Feldman & Zrnic 2021, Rényi filter      |
| `"gaussian"` | exact profile of that Gaussian ≤ δ at ε_j (√B_j/s-GDP)      | Koskela, Tobaben & Honkela, ICLR 2023   |

The second is never smaller; it is the fair rival of a plan made with the PLD accountant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from scipy import special

from rpdp.accounting.renyi import tight_epsilon
from rpdp.checks import require_count, require_delta, require_positive
from rpdp.errors import BudgetError, InputError, PlanError
from rpdp.training import FlatModel, LocalView, make_kernel
from rpdp.training.noise_addition import release_

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor, nn

    from rpdp.sampling import Randomness
    from rpdp.training import Kernel, OptimiserFactory, PerRecordLoss, Records

Conversion = Literal["renyi", "gaussian"]

CHARGE_SLACK = 1e-4
"""Norms are charged this much longer than computed: float32 rounding of a norm stays within it."""

_ORDERS = 1.0 + np.geomspace(2.0**-10, 2.0**20, 600)
_SEARCH_STEPS = 100
_LARGEST_MU = 1e4


@dataclass(frozen=True)
class FilterSettings:
    """The public settings of private gradient descent with a filter.

    Attributes:
        steps: Number of steps, fixed in advance: all are run, however many records are left.
        noise_multiplier: σ; the noise has standard deviation σL.
        clip_norm: L.
        normaliser: Public divisor, about the declared number of records.
        delta: δ of the run, common to all records.
        conversion: How an (ε, δ) becomes a norm budget.
        micro_batch: Records per pass.
    """

    steps: int
    noise_multiplier: float
    clip_norm: float
    normaliser: float
    delta: float
    conversion: Conversion = "gaussian"
    micro_batch: int = 512

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        require_count("micro_batch", self.micro_batch)
        for name in ("noise_multiplier", "clip_norm", "normaliser"):
            require_positive(name, getattr(self, name))
        require_delta("delta", self.delta)
        if self.conversion not in ("renyi", "gaussian"):
            raise InputError(f"conversion={self.conversion!r} must be 'renyi' or 'gaussian'")

    def norm_budgets(self, epsilon: ArrayLike) -> NDArray[np.float64]:
        """B_j for each ε_j: how large the sum of a record's squared gradient norms may become."""
        budgets = np.asarray(epsilon, dtype=np.float64)
        if not (np.isfinite(budgets) & (budgets > 0.0)).all():
            raise BudgetError("every budget must be a positive finite ε")
        levels, where = np.unique(budgets, return_inverse=True)
        mu = np.array([largest_mu(float(level), self.delta, self.conversion) for level in levels])
        return np.asarray((mu[where] * self.noise_multiplier * self.clip_norm) ** 2)


@dataclass(frozen=True)
class FilterResult:
    """A model trained by Filter.

    Attributes:
        model: The model after the last step: what the promise covers.
        is_simulation: Whether the randomness was seeded.
        local: What the steps saw; `local.batch_sizes` is the number of active records of each step. Sensitive.
        spent: Σ of squared norms charged to each record. Sensitive: it depends on the record's data.
        norm_budgets: B_j of each record.
    """

    model: FlatModel
    is_simulation: bool
    local: LocalView
    spent: NDArray[np.float64]
    norm_budgets: NDArray[np.float64]


def train_filtered(
    module: nn.Module,
    loss: PerRecordLoss,
    records: Records,
    epsilon: ArrayLike,
    randomness: Randomness,
    *,
    settings: FilterSettings,
    optimiser: OptimiserFactory,
    device: torch.device | str = "cpu",
) -> FilterResult:
    """Train `module` in place by full-batch noisy gradient descent; records drop out when their budget is used up.

    Promise, **per record**: the sequence of models is (ε_j, δ)-DP under adding or removing record j. Whether a record
    is active follows from its own gradients and the models released so far, so for a given record everybody else
    behaves the same with and without it. That holds for the models only: who is active, how many are, and what a
    record has spent are functions of private data and stay local. There is no sampling, hence no amplification, and
    every step costs a pass over all active records.

    A record with a NaN or infinite gradient contributes zero and is charged L² (its gradient may be anything).
    """
    budgets = settings.norm_budgets(epsilon)
    if len(records) == 0:
        raise InputError("the data set is empty: there is no record to train on")
    if budgets.shape != (len(records),):
        raise PlanError(f"{len(records):,} records and budgets of shape {budgets.shape}: every record needs its own")
    model = FlatModel(module, device)
    kernel = make_kernel(model, loss, records)
    made = optimiser([model.values])
    account = _Account(budgets, settings.clip_norm)
    local = LocalView(np.full(len(records), float(settings.steps)))
    std = settings.noise_multiplier * settings.clip_norm
    for number in range(settings.steps):
        model.require_finite()
        total, taken, norms = _filtered_sum(
            kernel, records, account, settings, kernel.mask_key(randomness.child("step", number, "masks"))
        )
        release_(total, std, settings.normaliser, randomness.child("step", number, "noise"))
        model.values.grad = total.to(model.values.dtype)
        made.step()
        local.add(taken, norms, settings.clip_norm)
    model.require_finite()
    return FilterResult(model, randomness.is_simulation, local, account.spent, budgets)


class _Account:
    """Norm budgets of all records, what is spent, and who is still active."""

    def __init__(self, budgets: NDArray[np.float64], clip_norm: float) -> None:
        self.budgets = budgets
        self.spent = np.zeros(budgets.shape)
        self.active = np.ones(budgets.shape, dtype=bool)
        self._clip_norm = clip_norm

    def charge(self, rows: NDArray[np.int64], norms: Tensor) -> NDArray[np.bool_]:
        """Charge those who can afford this step, drop the others for good; return who was charged."""
        length = np.nan_to_num(norms.double().cpu().numpy(), nan=np.inf, posinf=np.inf)
        price = np.minimum(length * (1.0 + CHARGE_SLACK), self._clip_norm) ** 2
        affordable: NDArray[np.bool_] = self.spent[rows] + price <= self.budgets[rows]
        self.spent[rows[affordable]] += price[affordable]
        self.active[rows[~affordable]] = False
        return affordable


def _filtered_sum(
    kernel: Kernel, records: Records, account: _Account, settings: FilterSettings, key: bytes | None
) -> tuple[Tensor, NDArray[np.int64], Tensor]:
    """The clipped sum over all records that can afford it, who they are, and their norms.

    Pieces are added up in float64: sixty thousand float32 terms would round away more than the clipping slack.
    """
    total = torch.zeros_like(kernel.model.values.data, dtype=torch.float64)
    active = np.flatnonzero(account.active)
    taken, lengths = [np.zeros(0, np.int64)], [kernel.model.values.new_zeros(0)]
    for start in range(0, len(active), settings.micro_batch):
        rows = active[start : start + settings.micro_batch]
        found = kernel.clipped_sum(records.select(rows).masked(key, rows), settings.clip_norm)
        keep = account.charge(rows, found.norms)
        if not keep.all():
            rows = rows[keep]
            found = kernel.clipped_sum(records.select(rows).masked(key, rows), settings.clip_norm)
        total.add_(found.total)
        taken.append(rows)
        lengths.append(found.norms)
    return total, np.concatenate(taken), torch.cat(lengths)


def largest_mu(epsilon: float, delta: float, conversion: Conversion) -> float:
    """The largest √B/s at which a record that spends all of B is (ε, δ)-DP; a bisection that ends on the safe side."""
    fits = _gaussian_fits if conversion == "gaussian" else _renyi_fits
    low, high = 0.0, _LARGEST_MU
    for _ in range(_SEARCH_STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle, epsilon, delta) else (low, middle)
    return low


def _renyi_fits(mu: float, epsilon: float, delta: float) -> bool:
    log_moment = _ORDERS * (_ORDERS - 1.0) * (0.5 * mu**2)
    return bool(tight_epsilon(log_moment, _ORDERS, delta).min() <= epsilon)


def _gaussian_fits(mu: float, epsilon: float, delta: float) -> bool:
    """Balle & Wang 2018: δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    profile = special.ndtr(0.5 * mu - epsilon / mu) - np.exp(epsilon + special.log_ndtr(-0.5 * mu - epsilon / mu))
    return bool(profile <= delta)
