"""Training in one place: SCF and Filter (table 2, figure 7), and ways to probabilities (table 3)."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.accounting import Schedule
from rpdp.budgets import BudgetTable, distribution
from rpdp.federation.workers import cores
from rpdp.planning import PublicPlan
from rpdp.sampling import Seeded
from rpdp.tasks.federate import split_rows
from rpdp.tasks.models.losses import cross_entropy
from rpdp.training import train_central
from rpdp_lab.central import METHODS, SETTINGS
from rpdp_lab.central.case import Case, sgd
from rpdp_lab.data.heart_disease import load_published_heart_disease
from rpdp_lab.data.mnist import load_mnist
from rpdp_lab.features.features import linear_model, scattered_mnist
from rpdp_lab.features.public_start import scaled_cnn, stroke_started_cnn
from rpdp_lab.reproduction.work.curves import plain
from rpdp_lab.reproduction.work.measures import accuracy, records_of
from rpdp_lab.rivals.filter import FilterSettings, train_filtered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from rpdp.accounting import PrivacyCurve
    from rpdp.tasks.dataset import Dataset

MOST_POINTS = 60
"""Of a curve over steps."""

PENALTIES = (0.01, 0.1, 1.0, 3.0, 10.0, 20.0, 30.0, 50.0, 100.0)
LEAST_SECONDS, MOST_REPEATS = 1.0, 5
"""How long, or how often, a fast estimator is timed."""


@lru_cache(maxsize=1)
def _case(task: str, steps: int, filter_steps: int, split: int | None) -> Case:
    settings = SETTINGS[task]
    shorter = replace(settings.filter, steps=filter_steps)
    return Case(replace(settings, steps=steps, filter=shorter), split)


def against_filter(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """A method of the central comparison on one seed: accuracy, time and records per step."""
    _one_thread_each(device)
    case = _case(settings["task"], settings["steps"], settings["filter_steps"], settings["split"])
    outcome = METHODS[settings["method"]][1](case, settings["seed"])
    return {
        "accuracy": outcome.accuracy,
        "steps": outcome.steps,
        "records_per_step": outcome.gradients_per_step,
        "seconds_per_step": outcome.milliseconds_per_step / 1000.0,
        "train_records": len(case.train),
        "test_records": len(case.test),
        "note": outcome.note,
    }


def best_penalty(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Logistic regression without privacy on the published split, its penalty chosen on the *test* records.

    Not a method of the table: it tells how much the split allows that model without luck.
    """
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    data = load_published_heart_disease().pooled()
    scores = {
        penalty: LogisticRegression(C=1.0 / penalty, max_iter=5000)
        .fit(data.train.features, data.train.labels)
        .score(data.test.features, data.test.labels)
        for penalty in PENALTIES
    }
    return {
        "accuracy": float(max(scores.values())),
        "by_penalty": {f"{penalty:g}": float(score) for penalty, score in scores.items()},
        "train_records": len(data.train),
        "test_records": len(data.test),
    }


def active_records(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Filter once more, for whom it leaves when; a record that dropped out never comes back."""
    _one_thread_each(device)
    case = _case(settings["task"], settings["steps"], settings["filter_steps"], settings["split"])
    seed, choice = settings["seed"], case.settings.filter
    sigma = settings.get("filter_noise", choice.noise_multiplier)
    budgets = case.table(seed).epsilon
    start = time.perf_counter()
    result = train_filtered(
        case.model(seed),
        case.loss,
        case.train,
        budgets,
        Seeded(seed),
        settings=FilterSettings(choice.steps, sigma, case.settings.clip_norm, len(case.train), case.delta),
        optimiser=sgd(choice.learning_rate),
        device=device,
    )
    seconds = (time.perf_counter() - start) / choice.steps
    active = {f"{level:g}": result.local.draws[budgets == level] for level in np.unique(budgets)}
    steps = np.unique(np.linspace(0, choice.steps, MOST_POINTS).astype(int))
    return {
        "accuracy": case.accuracy(result.model),
        "seconds_per_step": seconds,
        "steps": choice.steps,
        "at": steps.tolist(),
        "active": {level: [int((draws >= step).sum()) for step in steps] for level, draws in active.items()},
        "first_filtered": {
            level: int(draws.min()) if draws.min() < choice.steps else None for level, draws in active.items()
        },
        "train_records": len(case.train),
        "test_records": len(case.test),
        "records_per_step": float(np.mean(result.local.batch_sizes)),
        "noise_multiplier": sigma,
        "note": None,
    }


def estimators(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Table 3: probabilities by one estimator for 1,000 examples, the time they take, and what training reaches.

    σ is a public setting, the same for every estimator. Every estimator is given a fresh curve, as if nothing had been
    computed before; one that is done at once is asked a few times, and the median counts.
    """
    _one_thread_each(device)
    data, test, module = _task_3(settings)
    rows, _ = split_rows(data.labels, settings["records"] / len(data), np.random.default_rng(settings["seed"]))
    chosen = data.take(rows)
    budgets = _budgets(settings["scenario"], len(chosen), settings["seed"])
    table = BudgetTable(chosen.record_ids.tolist(), budgets)
    times: list[float] = []
    while not times or (sum(times) < LEAST_SECONDS and len(times) < MOST_REPEATS):
        plan = _plan(settings)
        start = time.perf_counter()
        silo_plan = plan.assign(table, estimator=settings["estimator"])
        times.append(time.perf_counter() - start)
    numbers: dict[str, Any] = {
        "seconds": statistics.median(times),
        "mean_q": float(silo_plan.q.mean()),
        "largest_ratio": _largest_ratio(plan.curve, silo_plan.q, budgets),
        "noise_multiplier": plan.noise_multiplier,
        "left_early": int((silo_plan.active_rounds < plan.schedule.rounds).sum()),
    }
    if settings["train"]:
        result = train_central(
            module,
            cross_entropy,
            records_of(chosen),
            silo_plan,
            Seeded(settings["seed"]),
            optimiser=sgd(settings["learning_rate"]),
            device=device,
        )
        numbers["accuracy"] = accuracy(result.model, records_of(test))
    return numbers


def _task_3(settings: Mapping[str, Any]) -> tuple[Dataset, Dataset, nn.Module]:
    if settings["model"] != "features":
        from_strokes = settings["model"] == "cnn, public start"
        module = stroke_started_cnn() if from_strokes else scaled_cnn(seed=settings["seed"])
        return load_mnist("train"), load_mnist("test"), module
    directions = settings["directions"]
    return scattered_mnist("train", directions), scattered_mnist("test", directions), linear_model(directions)


def _largest_ratio(curve: PrivacyCurve, q: np.ndarray[Any, Any], budgets: np.ndarray[Any, Any]) -> float:
    """The largest cost of q over its budget if nobody stopped early."""
    return float(plain(np.max(curve.epsilon(q) / budgets)))


def _plan(settings: Mapping[str, Any]) -> PublicPlan:
    """Each step a round, so that records of SCF can end between steps; that costs the same."""
    return PublicPlan(
        Schedule(settings["steps"], 1, participation=1.0),
        noise_multiplier=settings["noise_multiplier"],
        delta=settings["delta"],
        clip_norm=settings["clip_norm"],
        normaliser=settings["expected_batch"],
        weights=1.0,
    )


def _budgets(scenario: str, records: int, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The three scenarios of table 3."""
    if scenario == "group-3":
        overrides = {"levels": (1.0, 2.0, 3.0), "shares": (0.54, 0.37, 0.09)}
        return distribution("ThreeLevels", overrides=overrides).sample(records, seed)
    if scenario == "group-100":
        levels = np.resize(1.0 + 0.05 * np.arange(100), records)
        return np.random.default_rng(seed).permutation(levels)
    return distribution("BoundedMixGauss").sample(records, seed)


def _one_thread_each(device: str) -> None:
    """Cells run side by side: one thread each on a machine with few cores."""
    if device == "cpu" and cores() <= 4:
        torch.set_num_threads(1)
