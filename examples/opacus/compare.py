"""Opacus and rpdp on the same digits: one budget for all, personal budgets, and everybody at the smallest budget.

    RPDP_DATA=/path/to/data python examples/opacus/compare.py [--tune]

`--tune` tries learning rates on training images 50,000 to 60,000: no run trains on them, and no result is measured on
them.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import digits
import numpy as np
import opacus_loop
import rpdp_loop
import torch
from opacus.accountants import PRVAccountant
from opacus.accountants.utils import get_noise_multiplier

import rpdp
from rpdp.planning.declared_plan import declared_probability

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

SEEDS, TUNING_SEED = range(1, 6), 1001
RATES = (0.25, 0.5, 1.0, 2.0)
PERSONAL_SIGMA = 2.0
LEVELS = rpdp.budgets.ThreeLevels()


def uniform(test: digits.TensorDataset) -> digits.Run:
    """Everybody at what the settings of Opacus cost, by its own accountant."""
    settings = digits.Run(digits.images("train", 0, digits.RECORDS), np.empty(0), test)
    accountant = PRVAccountant()
    accountant.history = [(settings.sigma, settings.batch / digits.RECORDS, settings.epochs * settings.steps)]
    return replace(settings, budgets=np.full(digits.RECORDS, accountant.get_epsilon(settings.delta)))


def smallest(run: digits.Run) -> digits.Run:
    """The noise with which everybody pays the smallest budget; batch, clip norm and epochs stay."""
    sigma = get_noise_multiplier(
        target_epsilon=min(LEVELS.levels),
        target_delta=run.delta,
        sample_rate=run.batch / digits.RECORDS,
        steps=run.epochs * run.steps,
        accountant="prv",
    )
    return replace(run, sigma=sigma)


def personal(run: digits.Run) -> digits.Run:
    """Three levels of budgets. σ is public, and so is the batch: what to expect of the declared levels."""
    budgets = LEVELS.sample(digits.RECORDS, seed=0)
    schedule = rpdp.Schedule(run.epochs, run.steps, participation=1.0)
    plan = rpdp.PublicPlan(
        schedule, noise_multiplier=PERSONAL_SIGMA, delta=run.delta, clip_norm=run.clip, normaliser=1.0
    )
    batch = round(digits.RECORDS * declared_probability(plan, LEVELS.sample(1000, seed=0)))
    return replace(run, budgets=budgets, sigma=PERSONAL_SIGMA, batch=batch)


def main() -> None:
    """Print the settings and the accuracy of each of the four ways."""
    warnings.filterwarnings("ignore", module="opacus")
    tunes = "--tune" in sys.argv
    same = uniform(digits.images("train", 50_000, 60_000) if tunes else digits.images("t10k", 0, 10_000))
    ways = {
        "Opacus": (opacus_loop.train, same),
        "rpdp, the same budget for all": (rpdp_loop.train, same),
        "rpdp, personal budgets": (rpdp_loop.train, personal(same)),
        "Opacus, everybody at the smallest": (opacus_loop.train, smallest(same)),
    }
    for name, (train, run) in ways.items():
        print(f"{name}: σ = {run.sigma:.4g}, batch {run.batch}, largest budget {run.budgets.max():.4g}", flush=True)
        for rate in RATES if tunes else [LEARNING_RATES[name]]:
            seeds = [TUNING_SEED] if tunes else SEEDS
            found = [measured(train, replace(run, learning_rate=rate), seed) for seed in seeds]
            spread = np.std(found, ddof=1) if len(found) > 1 else 0.0
            each = ", ".join(f"{one:.4f}" for one in found)
            print(f"  learning rate {rate}: {np.mean(found):.4f} ± {spread:.4f} ({each})", flush=True)


def measured(train: Callable[[digits.Run, int], nn.Module], run: digits.Run, seed: int) -> float:
    """Train without a line for each epoch, and return the accuracy on the run's test records."""
    few = digits.TensorDataset(*(values[:10] for values in run.test.tensors))
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        model = train(replace(run, test=few), seed)
    return digits.accuracy(model, run.test)


LEARNING_RATES = {
    "Opacus": 2.0,
    "rpdp, the same budget for all": 2.0,
    "rpdp, personal budgets": 2.0,
    "Opacus, everybody at the smallest": 0.25,
}
"""By `--tune`, seed 1001. The two with the same budget take the one of Opacus."""

if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
