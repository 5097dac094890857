"""One task with the records of all silos pooled: its data, its plans, and how a method is run and scored on it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.accounting import Schedule, calibrate_noise
from rpdp.budgets import BudgetTable
from rpdp.errors import InputError
from rpdp.planning import PublicPlan
from rpdp.sampling import Seeded
from rpdp.tasks.dataset import SiloData
from rpdp.tasks.models.convolutional import paper_cnn
from rpdp.training import train_central, uniform_plan
from rpdp_lab.central.central_settings import BUDGETS, DECLARED_RECORDS, CentralSettings
from rpdp_lab.data.heart_disease import load_published_heart_disease
from rpdp_lab.data.mnist import load_mnist
from rpdp_lab.models.model_scores import accuracy, records_of
from rpdp_lab.rivals.idp_sgd import IdpSettings, noise_for_rate
from rpdp_lab.tasks import task

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from rpdp.planning import SiloPlan
    from rpdp.training import CentralResult, OptimiserFactory, PerRecordLoss
    from rpdp_lab.rivals.filter import FilterResult


@dataclass(frozen=True)
class CentralOutcome:
    """One run: its accuracy, and what it took."""

    accuracy: float
    steps: int
    gradients_per_step: float
    milliseconds_per_step: float
    note: str | None = None


class PooledTask:
    """One task with its data and public settings, ready for any method and seed.

    `split` is the seed of the split into training and test records; None is the published split. MNIST has only that.
    """

    def __init__(self, settings: CentralSettings, split: int | None = 0) -> None:
        data = _load(settings.task, split)
        self.settings = settings
        self.train, self.test = records_of(data.train), records_of(data.test)
        self.delta = task(settings.task).schedule.delta
        self.ids: list[str] = data.train.record_ids.tolist()
        self.rate = settings.expected_batch / len(self.train)
        self.loss: PerRecordLoss = task(settings.task).loss
        self.optimiser = sgd(settings.learning_rate)

    def model(self, seed: int) -> nn.Module:
        """A new model; tanh in the CNN, which suits clipping better than ReLU (Papernot et al. 2021)."""
        if self.settings.task.startswith("mnist"):
            return paper_cnn(activation="tanh", seed=seed)
        return task(self.settings.task).model(seed=seed)

    def table(self, seed: int) -> BudgetTable:
        """Who has which budget."""
        return BudgetTable(self.ids, BUDGETS.sample(len(self.train), seed))

    @property
    def idp(self) -> IdpSettings:
        """The settings of IDP-SGD."""
        settings = self.settings
        return IdpSettings(settings.steps, self.rate, self.delta, settings.clip_norm, settings.expected_batch)

    @cached_property
    def noise_multiplier(self) -> float:
        """σ at which the declared distribution gives the expected batch."""
        declared = BUDGETS.sample(DECLARED_RECORDS, 0)
        return noise_for_rate(declared, self.rate, self.idp.schedule, self.delta)

    def public(self, noise_multiplier: float, schedule: Schedule) -> PublicPlan:
        """A public plan with these settings."""
        return PublicPlan(
            schedule,
            noise_multiplier=noise_multiplier,
            delta=self.delta,
            clip_norm=self.settings.clip_norm,
            normaliser=self.settings.expected_batch,
            weights=1.0,
        )

    @cached_property
    def rpdp_plan(self) -> PublicPlan:
        """The plan of rPDP-SGD."""
        return self.public(self.noise_multiplier, self.idp.schedule)

    @cached_property
    def scf_plan(self) -> PublicPlan:
        """As published, with the Rényi accountant; each step a round, so that records can end between steps."""
        steps = Schedule(self.settings.steps, 1, participation=1.0)
        return replace(self.public(self.noise_multiplier, steps), accountant="rdp")

    @cached_property
    def uniform_plan(self) -> SiloPlan:
        """Every record at the strictest level."""
        least = min(BUDGETS.levels)
        sigma = calibrate_noise(
            self.idp.schedule, epsilon=least, delta=self.delta, sampling_probability=self.rate, tolerance=1e-3
        )
        return uniform_plan(self.public(sigma, self.idp.schedule), self.ids, least)

    def follow(self, plan: SiloPlan, seed: int) -> CentralOutcome:
        """Train by a plan."""
        return self.timed(
            lambda: train_central(
                self.model(seed),
                self.loss,
                self.train,
                plan,
                Seeded(seed),
                optimiser=self.optimiser,
                record_ids=self.ids,
            )
        )

    def timed(self, train: Callable[[], CentralResult | FilterResult]) -> CentralOutcome:
        """Time the training, without the planning before it, and score the model on the test records."""
        start = time.perf_counter()
        result = train()
        elapsed = time.perf_counter() - start
        batches = result.local.batch_sizes
        return CentralOutcome(
            accuracy(result.model, self.test), len(batches), float(np.mean(batches)), 1000.0 * elapsed / len(batches)
        )


def sgd(learning_rate: float) -> OptimiserFactory:
    """Stochastic gradient descent without momentum."""
    return lambda values: torch.optim.SGD(values, lr=learning_rate)


def _load(name: str, split: int | None) -> SiloData:
    """Pooled training and test records; MNIST as it was published, 60,000 and 10,000."""
    if name == "mnist":
        return SiloData(load_mnist("train"), load_mnist("test"))
    if split is not None:
        return task(name).load(seed=split).pooled()
    if name == "heart_disease":
        return load_published_heart_disease().pooled()
    raise InputError(f"task {name!r} has no published split")
