"""Rules of privacy.md that a seeded bug has shown to need a test of their own: noise by literal numbers.

Noise is seeded, so tests pass or fail for good. Deviations are compared at five standard errors (a false alarm in 2e6).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.budgets import BudgetTable
from rpdp.sampling import Seeded
from rpdp.training import FlatModel, NoisyStep, Records, StepSettings, make_kernel, train_central
from rpdp.training.noise_addition import BLOCK, release_
from tests.federation.world import make_public, silo_plan

if TYPE_CHECKING:
    from collections.abc import Callable

CLIP_NORM, NOISE_MULTIPLIER, NORMALISER = 0.5, 3.0, 7.0
STD = 1.5 / 7.0
"""Of a released coordinate, by hand: σ L / B."""


def cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="none")


def some_records(count: int = 30) -> Records:
    generator = torch.Generator().manual_seed(3)
    return Records.of(torch.randn(count, 5, generator=generator), torch.arange(count) % 3)


def perceptron() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 600), nn.Tanh(), nn.Linear(600, 3))


def make_step(micro_batch: int) -> NoisyStep:
    model = FlatModel(perceptron())
    settings = StepSettings(CLIP_NORM, NOISE_MULTIPLIER, NORMALISER, micro_batch)
    kernel = make_kernel(model, cross_entropy, some_records())
    return NoisyStep(kernel, torch.optim.SGD([model.values], lr=0.1), settings, Seeded(1))


def noise_of(step: NoisyStep, count: int) -> Tensor:
    """What is on top of the clipped sum in the release of the first records."""
    step.release(some_records(), np.arange(count))
    release = step.kernel.model.values.grad
    assert release is not None
    exact = step.kernel.clipped_sum(some_records().rows(0, count), CLIP_NORM).total
    return release - exact / NORMALISER


def has_deviation(noise: Tensor, std: float) -> bool:
    error = 5.0 / math.sqrt(2.0 * len(noise))
    return abs(float(noise.double().std()) / std - 1.0) < error < 0.08


def test_the_noise_is_the_settings_noise() -> None:
    """Not by the property of the settings, which the step itself uses."""
    assert StepSettings(CLIP_NORM, NOISE_MULTIPLIER, NORMALISER).noise_std == 1.5
    noise = noise_of(make_step(1000), 0)
    assert has_deviation(noise, STD)
    assert not has_deviation(noise, 0.9 * STD)


@pytest.mark.parametrize("micro_batch", [1, 4, 16])
def test_large_draws_get_the_same_noise(micro_batch: int) -> None:
    """One noise per step, however many pieces the draw has."""
    noise = noise_of(make_step(micro_batch), 30)
    assert has_deviation(noise, STD)
    assert not has_deviation(noise, STD / math.sqrt(30 / micro_batch))


@pytest.mark.parametrize("count", [BLOCK, BLOCK + 1])
def test_noise_has_the_resolution_of_the_grid(count: int) -> None:
    """131,072 values in some four million cells within two deviations: few coincide; of coarser noise nearly all do."""
    released = release_(torch.zeros(count, dtype=torch.float64), 1.0, 1.0, Seeded(2)).numpy()
    assert len(np.unique(released)) > 0.9 * count
    assert len(np.unique(released.astype(np.float16))) < 0.3 * count


class Watched(torch.optim.SGD):
    """Keeps every gradient that it is given."""

    def __init__(self, values: list[Tensor]) -> None:
        super().__init__(values, lr=0.01)
        self.seen: list[Tensor] = []

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        gradient = self.param_groups[0]["params"][0].grad
        self.seen.append(gradient.clone())
        super().step(closure)


def test_centralised_steps_release_by_the_public_settings() -> None:
    """Nobody is drawn, so that each step releases noise alone: of deviation σ L / B, and fresh."""
    public = make_public(
        1, 4, clip_norm=CLIP_NORM, noise_multiplier=NOISE_MULTIPLIER, normaliser=NORMALISER, participation=1.0
    )
    table = BudgetTable([str(row) for row in range(30)], np.ones(30))
    plan = silo_plan(public, table.ids, table.epsilon, 0.0)
    made: list[Watched] = []

    def optimiser(values: list[Tensor]) -> Watched:
        made.append(Watched(values))
        return made[0]

    train_central(perceptron(), cross_entropy, some_records(), plan, Seeded(5), optimiser=optimiser)
    releases = made[0].seen
    assert len(releases) == 4
    assert all(has_deviation(release, STD) for release in releases)
    assert len({release.numpy().tobytes() for release in releases}) == 4
