"""Runs made by hand, for reports: small, quick, and with whatever part a test wants to be different."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp import BudgetTable, PublicPlan, Schedule
from rpdp.federation import RoundLog, RunResult, Score, SiloView
from rpdp.federation.score import ClassCount, GroupScore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rpdp import SiloPlan

LEVELS = (0.5, 2.0, 8.0)


def public_plan(schedule: Schedule | None = None, weights: float | Mapping[str, float] = 1.0) -> PublicPlan:
    return PublicPlan(
        schedule or Schedule(4, 5, participation=0.5),
        noise_multiplier=3.0,
        delta=1e-4,
        clip_norm=1.5,
        normaliser=8,
        weights=weights,
        accountant="rdp",
        notes=("not covered: a note of the plan",),
    )


def silo_plan(public: PublicPlan, silo: str, records: int, levels: Sequence[float] = LEVELS) -> SiloPlan:
    budgets = [levels[row % len(levels)] for row in range(records)]
    return public.assign(BudgetTable([f"{silo}-{row}" for row in range(records)], budgets))


def view(
    plan: SiloPlan, joined: Sequence[int] = (1, 3), seed: int = 0, scored: bool = True, overdrawn: int = 0
) -> SiloView:
    rng = np.random.default_rng(seed)
    trials = len(joined) * plan.public.schedule.local_steps
    draws = rng.binomial(trials, plan.q).astype(np.int64)
    correct = rng.random(len(plan)) < 0.8
    return SiloView(plan, tuple(joined), draws, plan.q * trials, correct if scored else None, overdrawn)


def unpriced(plan: SiloPlan) -> SiloPlan:
    """As method privacy_free plans."""
    forever = np.full(len(plan), np.inf)
    columns = {"epsilon": forever.copy(), "budget": forever, "cost": forever.copy()}
    return replace(plan, **columns, q=np.full(len(plan), 0.25), estimator="none")  # type: ignore[arg-type]


def sitting_out(plan: SiloPlan, *rows: int) -> SiloPlan:
    """The same plan, but that nothing is left of these records."""
    stay = np.ones(len(plan))
    stay[list(rows)] = 0.0
    return replace(plan, q=plan.q * stay, cost=plan.cost * stay, delta=plan.delta * stay)


def made_score(accuracy: float, names: Sequence[str]) -> Score:
    """All silos alike, but for the first, which is better so that the mean over silos is 0.01 higher."""
    silos = {name: {"accuracy": accuracy + 0.01 * len(names) * (place == 0)} for place, name in enumerate(names)}
    return Score({"accuracy": accuracy}, silos)


def several_metrics(seed: int | None = 7) -> RunResult:
    """Two hospitals measured by AUC, accuracy and log loss, also by class and by budget."""
    result = two_silos(seed)
    values = {"auc": 0.789, "accuracy": 0.896, "log_loss": 0.321}
    silos: dict[str, dict[str, float | None]] = {"north": {**values}, "south": {**values, "auc": None}}
    score = Score(values, silos, {"accuracy": {"0": 1.0, "1": 0.0}}, {"0": ClassCount(90, 100), "1": ClassCount(10, 0)})
    groups = tuple(GroupScore(low, low, 14, {**values, "auc": auc}) for low, auc in ((0.5, 0.654321), (2.0, None)))
    rounds = tuple(replace(log, score=score) for log in result.rounds)
    return replace(result, rounds=rounds, groups=groups)


def run(
    views: Mapping[str, SiloView],
    *,
    public: PublicPlan | None = None,
    seed: int | None = 7,
    method: str = "rpdp",
    accuracies: Sequence[float | None] = (0.5, 0.6, 0.6, 0.7),
    rejected: Mapping[str, str] | None = None,
) -> RunResult:
    """One round per accuracy; the second of several is empty, the others are joined by all silos."""
    names = tuple(views)
    logs = []
    for number, accuracy in enumerate(accuracies, start=1):
        score = None if accuracy is None else made_score(accuracy, names)
        joined = () if number == 2 else tuple(name for name in names if name not in (rejected or {}))
        logs.append(RoundLog(number, joined, {} if number == 2 else rejected or {}, score, 0.25 * number))
    plan = public or next(iter(views.values())).plan.public
    return RunResult(f"run-{method}-{seed}", plan, method, seed, torch.zeros(14), tuple(logs), views, 3.5)


def two_silos(seed: int | None = 7, method: str = "rpdp", shift: float = 0.0) -> RunResult:
    public = public_plan()
    views = {name: view(silo_plan(public, name, count)) for name, count in (("north", 30), ("south", 12))}
    accuracies = [0.5 + shift, 0.6 + shift, 0.6 + shift, 0.7 + shift]
    return run(views, seed=seed, method=method, accuracies=accuracies)
