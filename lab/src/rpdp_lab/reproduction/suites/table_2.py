"""Table 2: rPDP-SGD against Filter and other methods, trained in one place on pooled data."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.markdown import (
    DASH,
    finished,
    grouped,
    mean,
    numbers,
    provenance,
    spread,
    spread_of_seeds,
    table,
)
from rpdp_lab.reproduction.published import PAPER_TABLE_2
from rpdp_lab.reproduction.suite import PageSection, Suite, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp_lab.central.pooled_task import PooledTask
    from rpdp_lab.reproduction.cell import CellResult, Numbers, Settings

OURS, SCF, FILTER, PLAIN = "rPDP-SGD (certified)", "SCF under the accountant", "Filter", "plain SGD"
METHODS = (OURS, SCF, "IDP-SGD Sample", "uniform DP-SGD, minimum", PLAIN)
"""Beside Filter; names of `rpdp_lab.central`."""

STEPS: dict[str, dict[str, int]] = {
    "heart": {"steps": 450, "filter_steps": 150},
    "mnist": {"steps": 4000, "filter_steps": 30},
}
HEART, OTHER_SPLITS, MNIST, NO_PRIVACY = "heart", "heart, other splits", "mnist", "heart, no privacy"
SEEDS: dict[str, dict[Profile, int]] = {
    HEART: {"quick": 5, "cpu": 20, "full": 20},
    OTHER_SPLITS: {"quick": 5, "cpu": 20, "full": 20},
    MNIST: {"quick": 1, "cpu": 5, "full": 5},
}
"""By part. The split is the published one, or for the other splits that of the seed."""

TITLES = {
    HEART: "Heart-Disease (pooled), published split",
    OTHER_SPLITS: "Heart-Disease (pooled), other splits",
    MNIST: "MNIST (pooled)",
}
PUBLISHED_AS = {OURS: "SCF", SCF: "SCF", FILTER: "Filter"}
GOALS = {"heart": 0.82, "mnist": 0.955}
FIT_IS_OFF = (
    "the fit is far off at the small q of this setting: records would overspend, so the accountant ends them early"
)
TOO_HARD = "this model does not reach it on this split either"
PENALTIES = (0.01, 0.1, 1.0, 3.0, 10.0, 20.0, 30.0, 50.0, 100.0)
MOST_POINTS = 60
"""Of a curve over steps."""


def cells(profile: Profile) -> list[Cell]:
    """Every method on every seed, and what Heart-Disease allows without privacy."""
    methods = [
        Cell("table-2", part, f"{_file_name(part)}.{number}.seed-{seed}", against_filter, settings, profile)
        for number, method in enumerate(METHODS)
        for part, seed, settings in _runs(profile, method)
    ]
    ceiling = Cell("table-2", NO_PRIVACY, "heart.no-privacy", best_penalty, {"task": "heart"}, profile)
    return [*filter_cells(profile), *methods, ceiling]


def filter_cells(profile: Profile) -> list[Cell]:
    """The runs of Filter, which figure 7 shows as well."""
    return [
        Cell("table-2", part, f"{_file_name(part)}.filter.seed-{seed}", active_records, settings, profile)
        for part, seed, settings in _runs(profile, FILTER)
    ]


def _runs(profile: Profile, method: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Part, seed and settings of every run of a method."""
    runs = []
    for part, seeds in SEEDS.items():
        task = "mnist" if part == MNIST else "heart"
        for seed in range(seeds[profile]):
            split = seed if part == OTHER_SPLITS else None
            runs.append((part, seed, {"task": task, **STEPS[task], "split": split, "seed": seed, "method": method}))
    return runs


def _file_name(part: str) -> str:
    return part.replace(", ", "-").replace(" ", "-")


def against_filter(settings: Settings, device: str) -> Numbers:
    """One method of the central comparison on one seed: accuracy, time and records per step."""
    from rpdp_lab.central import METHODS as CENTRAL_METHODS

    pooled = _pooled(settings)
    outcome = CENTRAL_METHODS[settings["method"]][1](pooled, settings["seed"])
    return {
        "accuracy": outcome.accuracy,
        "steps": outcome.steps,
        "records_per_step": outcome.gradients_per_step,
        "seconds_per_step": outcome.milliseconds_per_step / 1000.0,
        "train_records": len(pooled.train),
        "test_records": len(pooled.test),
        "note": outcome.note,
    }


def active_records(settings: Settings, device: str) -> Numbers:
    """One run of Filter: its accuracy, and how many records of each budget are still active after each step."""
    from rpdp_lab.central.central_methods import run_filter
    from rpdp_lab.models.model_scores import accuracy

    pooled, seed = _pooled(settings), settings["seed"]
    choice = pooled.settings.filter
    sigma = settings.get("filter_noise", choice.noise_multiplier)
    budgets = pooled.table(seed).epsilon
    start = time.perf_counter()
    result = run_filter(pooled, seed, sigma, device)
    seconds = (time.perf_counter() - start) / choice.steps
    # A record that dropped out never comes back, so the number of its draws is the step at which it left.
    draws = {f"{level:g}": result.local.draws[budgets == level] for level in np.unique(budgets)}
    steps = np.unique(np.linspace(0, choice.steps, MOST_POINTS).astype(int))
    return {
        "accuracy": accuracy(result.model, pooled.test),
        "seconds_per_step": seconds,
        "steps": choice.steps,
        "at": steps.tolist(),
        "active": {level: [int((each >= step).sum()) for step in steps] for level, each in draws.items()},
        "first_filtered": {
            level: int(each.min()) if each.min() < choice.steps else None for level, each in draws.items()
        },
        "train_records": len(pooled.train),
        "test_records": len(pooled.test),
        "records_per_step": float(np.mean(result.local.batch_sizes)),
        "noise_multiplier": sigma,
        "note": None,
    }


def best_penalty(settings: Settings, device: str) -> Numbers:
    """Logistic regression without privacy on the published split, its penalty chosen on the *test* records.

    Not a method of the table: it shows what this model can reach on this split.
    """
    from sklearn.linear_model import LogisticRegression

    from rpdp_lab.data.heart_disease import load_published_heart_disease

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


def _pooled(settings: Settings) -> PooledTask:
    return _cached_task(settings["task"], settings["steps"], settings["filter_steps"], settings["split"])


@lru_cache(maxsize=1)
def _cached_task(name: str, steps: int, filter_steps: int, split: int | None) -> PooledTask:
    from rpdp_lab.central import SETTINGS
    from rpdp_lab.central.pooled_task import PooledTask

    usual = SETTINGS[name]
    return PooledTask(replace(usual, steps=steps, filter=replace(usual.filter, steps=filter_steps)), split)


def section(results: Sequence[CellResult]) -> PageSection:
    """Accuracy and time per step of all methods on both tasks."""
    lines = [
        "Training in one place. ThreeLevels ε = 2.0 / 4.7 / 11.8 for 70 / 20 / 10 %, expected batch 32 and 64, δ = "
        "1e-3 (Heart-Disease) and 1e-4 (MNIST), the paper's values for its federated runs; Heart-Disease by logistic "
        "regression, MNIST by the paper's network with tanh. *Filter* is private gradient descent on everybody whose "
        "budget is not used up. The paper's SCF row is its whole method; ours is *certified*. *SCF under the "
        "accountant* takes the published fit and ends a record when its budget is used up.",
        "",
    ]
    verdicts = []
    by_part = {part: [result for result in finished(results) if result.part == part] for part in TITLES}
    ceiling = mean(numbers([result for result in results if result.part == NO_PRIVACY], "accuracy"))
    for part, group in by_part.items():
        if group:
            lines += _part_lines(part, group)
            if part != OTHER_SPLITS:
                verdicts += _verdicts(group, ceiling)
    return PageSection([*lines, *_why_not(by_part[HEART], ceiling), *provenance(results)], verdicts=verdicts)


def _part_lines(part: str, group: Sequence[CellResult]) -> list[str]:
    task, first = group[0].settings["task"], group[0].numbers
    rows = []
    for (method,), runs in grouped(group, "method").items():
        paper = None if part == OTHER_SPLITS else PAPER_TABLE_2.get((task, PUBLISHED_AS.get(method, "")))
        rows.append(
            [
                method,
                DASH if paper is None else f"{paper.accuracy:.4f}",
                spread(numbers(runs, "accuracy")),
                DASH if paper is None else f"{paper.seconds_per_step:.4f}",
                f"{statistics.median(numbers(runs, 'seconds_per_step')):.4f}",
                f"{statistics.fmean(numbers(runs, 'records_per_step')):,.0f}",
                str(len(runs)),
            ]
        )
    columns = ["method", "paper", "ours", "paper s/step (A40)", "ours s/step (1 core)", "records/step", "seeds"]
    notes = sorted({result.numbers["note"] for result in group if result.numbers.get("note")})
    return [
        f"**{TITLES[part]}**: {first['train_records']:,} training and {first['test_records']:,} test records.",
        "",
        *table(columns, rows),
        *(f"- {note}" for note in notes[:1]),
        "",
    ]


def _why_not(heart: Sequence[CellResult], ceiling: float | None) -> list[str]:
    """Why 0.82 is not reached on Heart-Disease, if the cells that show it are there."""
    by_method = grouped(heart, "method")
    plain, ours = (numbers(by_method.get((name,), []), "accuracy") for name in (PLAIN, OURS))
    if not plain or not ours or ceiling is None:
        return []
    return [
        "**Why not 0.82 on Heart-Disease.** The paper takes the pooled Fed-Heart-Disease data, whose code (FLamby) "
        "fixes a split of 486 and 254 patients; we assume it was used. On it plain SGD without any privacy reaches "
        f"{spread(plain)}: at these budgets privacy is not what is in the way. Logistic regression with the penalty "
        f"that is best *on the test records* gets {ceiling:.4f}, {round(ceiling * 254)} of 254 patients; the "
        f"paper's 0.8189 is 208, the goal 209. Our runs go from {min(ours):.4f} to {max(ours):.4f}. The paper calls "
        "all its numbers means of five runs; yet 0.8189 and 0.7717 are whole numbers of patients, so each may be a "
        "single run. On other splits of the 740 patients methods differ no more than splits do.",
        "",
    ]


def _verdicts(group: Sequence[CellResult], ceiling: float | None) -> list[Verdict]:
    """Of the methods that the paper's table has."""
    task, verdicts = group[0].settings["task"], []
    for (method,), runs in grouped(group, "method").items():
        if method not in PUBLISHED_AS:
            continue
        accuracies = numbers(runs, "accuracy")
        paper = PAPER_TABLE_2[task, PUBLISHED_AS[method]].accuracy
        goal = GOALS[task] if method == OURS else paper
        why = FIT_IS_OFF if method == SCF else ""
        if task == "heart" and ceiling is not None:
            why = f"without privacy {TOO_HARD}, {ceiling:.4f} with the best penalty"
        verdicts.append(
            Verdict(
                f"table 2: {'ours' if method == OURS else method} on {TITLES[task]}, goal {goal:g}",
                f"{paper:.4f}",
                spread_of_seeds(accuracies),
                statistics.fmean(accuracies) >= goal,
                better=method == OURS,
                why=why,
            )
        )
    return verdicts


SUITE = Suite("table-2", "Table 2: against Filter", cells, section, {"quick": 5, "cpu": 20, "full": 20})
