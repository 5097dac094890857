"""Random settings over the whole range that the accountant promises to price well, and towards its edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp import PrivacyCurve, Schedule
from tests.accounting.certificates import random_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

NOISE, PROBABILITY, DELTA, PARTICIPATION = (0.3, 50.0), (1e-6, 1.0), (1e-12, 1e-2), (0.01, 1.0)
MOST_ROUNDS, MOST_LOCAL_STEPS = 5000, 200


@dataclass(frozen=True)
class Setting:
    """One record in one run."""

    schedule: Schedule
    sigma: float
    delta: float
    q: float

    def curve(self) -> PrivacyCurve:
        """The product's default accountant."""
        return PrivacyCurve(self.schedule, noise_multiplier=self.sigma, delta=self.delta)


def spread(generator: np.random.Generator, low: float, high: float) -> float:
    """A number between the two, uniform in its logarithm."""
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))


def random_settings(seed: int, count: int) -> Iterator[Setting]:
    """Settings that are uniform in the logarithm of every number, with each kind of participation equally likely."""
    for index in range(count):
        generator = np.random.default_rng([seed, index])
        rounds, local_steps = (int(spread(generator, 1, most + 1)) for most in (MOST_ROUNDS, MOST_LOCAL_STEPS))
        schedule = random_schedule(generator, rounds, local_steps, spread(generator, *PARTICIPATION))
        yield Setting(schedule, spread(generator, *NOISE), spread(generator, *DELTA), spread(generator, *PROBABILITY))


def edge_settings(seed: int, count: int) -> Iterator[Setting]:
    """Settings where mistakes hide: caps that bind, little noise, tiny q, and a δ between q and far below it."""
    for index in range(count):
        generator = np.random.default_rng([seed, index, 1])
        rounds, local_steps = int(spread(generator, 2, 300)), int(spread(generator, 1, 20))
        participation = spread(generator, *PARTICIPATION)
        cap = int(np.clip(round(rounds * participation * spread(generator, 0.3, 3.0)), 1, rounds - 1))
        schedule = Schedule(rounds, local_steps, participation=participation, max_participations=cap)
        sigma, q = spread(generator, 0.25, 2.0), spread(generator, 1e-10, 0.01)
        delta = float(np.clip(q * spread(generator, 1e-8, 1.0), 1e-15, 1e-4))
        yield Setting(schedule, sigma, delta, q)
