"""Small plans to audit, and ways to break a build."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from rpdp import PublicPlan, Schedule
from rpdp.audit import Subject, audit_silo
from rpdp.federation import local_training as local
from rpdp.planning import Recipe
from rpdp.sampling import PoissonSampler, Seeded
from rpdp.training import Kernel, StepSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rpdp.audit import AuditResult

SCHEDULE = Schedule(4, 10, participations=4)
SIGMA = 2.5
"""With this schedule and δ = 1e-3 a record in every batch pays ε = 10.4."""

PER_GROUP = 400


def make_public(schedule: Schedule = SCHEDULE, *, sigma: float = SIGMA, **recipe: Any) -> PublicPlan:
    """A plan whose normaliser, clip norm and learning rate are no round numbers, so that a forgotten factor shows."""
    settings = {"learning_rate": 0.3, **recipe}
    return PublicPlan(
        schedule,
        noise_multiplier=sigma,
        delta=1e-3,
        clip_norm=0.7,
        normaliser=37.0,
        weights=1.0,
        recipe=Recipe(**settings),
    )


def audited(public: PublicPlan | None = None, **settings: Any) -> AuditResult:
    """A small audit."""
    return audit_silo(Subject(make_public() if public is None else public), **{"per_group": PER_GROUP, **settings})


@contextmanager
def mutant(name: str) -> Iterator[None]:
    """A build with one bug, until the end of the block."""
    target, attribute, broken = MUTANTS[name]
    with mock.patch.object(target, attribute, broken):
        yield


def _settings(factor: float) -> Any:
    def made(clip_norm: float, noise_multiplier: float, normaliser: float, micro_batch: int) -> StepSettings:
        return StepSettings(clip_norm, factor * noise_multiplier, normaliser, micro_batch)

    return made


def _twice_the_norm() -> Any:
    honest = Kernel.add_clipped_sum

    def add(self: Kernel, records: Any, clip_norm: float, *more: Any) -> Any:
        return honest(self, records, 2.0 * clip_norm, *more)

    return add


def _twice_as_often(probabilities: Any) -> PoissonSampler:
    return PoissonSampler(np.minimum(1.0, 2.0 * np.asarray(probabilities)))


def _forgetful() -> Any:
    """Streams of a round that do not know the step: every step draws the same records and adds the same noise."""
    honest = Seeded.child

    def child(self: Seeded, *key: str | int) -> Seeded:
        return honest(
            self, *[0 if part != "round" and key[0] == "step" and i == 1 else part for i, part in enumerate(key)]
        )

    return child


MUTANTS: Mapping[str, tuple[Any, str, Any]] = {
    "σ × 0.9": (local, "StepSettings", _settings(0.9)),
    "σ / 2": (local, "StepSettings", _settings(0.5)),
    "σ × 1.1": (local, "StepSettings", _settings(1.1)),
    "clip at 2L": (Kernel, "add_clipped_sum", _twice_the_norm()),
    "q × 2": (local, "PoissonSampler", _twice_as_often),
    "the same noise and draw in every step": (Seeded, "child", _forgetful()),
}
