"""Training with budgets that depend on the label, and remedies for the classes that allow little. Imports torch.

A class with a small budget is drawn rarely, so the model learns a world in which it is rare. A remedy that spends
nothing may use whatever follows from the *public* budget of each class and its nominal share.

| remedy      | what it does                                                                                       |
|-------------|----------------------------------------------------------------------------------------------------|
| `none`      | nothing                                                                                            |
| `posthoc`   | subtracts log π_c from the finished model's logits (Menon et al. 2021), π_c the public drawn share |
| `loss`      | trains with logits + log π_c, so that the model itself need not learn the skew                     |
| `cap`       | draws generous classes as if they allowed at most `cap` times the smallest ε; the rest is unused   |
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.accounting import Schedule
from rpdp.budgets import BudgetTable
from rpdp.planning import PublicPlan
from rpdp.sampling import Seeded
from rpdp.tasks.dataset import SiloData
from rpdp.tasks.models.convolutional import paper_cnn
from rpdp.tasks.models.linear import logistic_regression
from rpdp.tasks.models.losses import binary_loss, cross_entropy
from rpdp.training import FlatModel, train_central
from rpdp_lab.data.mnist import load_mnist
from rpdp_lab.features.mnist_features import linear_model, scattered_mnist
from rpdp_lab.models.model_scores import accuracy_by_class, logits, records_of
from rpdp_lab.rivals.plain_sgd import train_plain
from rpdp_lab.tasks import task

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.training import OptimiserFactory, PerRecordLoss, Records
    from rpdp_lab.reproduction.cell import Numbers, Settings

    Array = NDArray[np.float64]


def train(settings: Settings, device: str) -> Numbers:
    """Train one model; its accuracy by class at the end, and if `trace` is set after every step."""
    data, seed = _data(settings["task"], settings["split"]), settings["seed"]
    budgets = np.asarray(settings["class_budgets"], dtype=np.float64)
    records, test = records_of(data.train), records_of(data.test)
    plan = _public(settings)
    allowed = _allowed(settings, budgets)
    trace: list[Tensor] = []
    optimiser = _optimiser(settings["learning_rate"], trace if settings["trace"] else None)
    module = _model(settings["task"], seed)
    shift = _shift(plan, allowed) if settings["remedy"] in ("posthoc", "loss") else torch.zeros(len(budgets))
    loss = _loss(len(budgets), shift if settings["remedy"] == "loss" else None)
    q = plan.curve.sampling_probability(allowed)
    if settings["method"] == "plain":
        model = _plain(module, loss, records, settings, optimiser, device)
    else:
        silo_plan = plan.assign(BudgetTable(data.train.record_ids.tolist(), allowed[data.train.labels]))
        model = train_central(module, loss, records, silo_plan, Seeded(seed), optimiser=optimiser, device=device).model
    after = shift if settings["remedy"] == "posthoc" else torch.zeros(len(budgets))
    found = _measured(model, test, after)
    return {
        **found,
        "by_step": [_measured(_at(model, values), test, after) for values in trace],
        "q": [float(value) for value in np.atleast_1d(q)],
        "noise_multiplier": plan.noise_multiplier,
        "train_records": len(records),
        "test_records": len(test),
    }


def _measured(model: FlatModel, test: Records, shift: Tensor) -> dict[str, Any]:
    outputs = _shifted(logits(model, test), -shift)
    classes = shift.numel()
    by_class = accuracy_by_class(outputs, test.targets, classes)
    shares = np.bincount(test.targets.numpy(), minlength=classes) / len(test)
    return {
        "accuracy": round(float(by_class @ shares), 5),
        "by_class": [round(float(value), 5) for value in by_class],
    }


def _at(model: FlatModel, values: Tensor) -> FlatModel:
    model.values.data.copy_(values)
    return model


@lru_cache(maxsize=2)
def _data(name: str, split: int) -> SiloData:
    if name == "heart":
        return task("heart_disease").load(seed=split).pooled()
    load = scattered_mnist if name == "mnist-scattering" else load_mnist
    return SiloData(load("train"), load("test"))


def _model(name: str, seed: int) -> nn.Module:
    if name == "heart":
        return logistic_regression(13)
    return linear_model() if name == "mnist-scattering" else paper_cnn(activation="tanh", seed=seed)


def _public(settings: Settings) -> PublicPlan:
    """The same σ for every method; with `sigma_factor` more noise and larger batches."""
    return PublicPlan(
        Schedule(1, settings["steps"], participation=1.0),
        noise_multiplier=settings["noise_multiplier"] * settings["sigma_factor"],
        delta=settings["delta"],
        clip_norm=settings["clip_norm"],
        normaliser=settings["expected_batch"] * settings["sigma_factor"],
        weights=1.0,
    )


def _allowed(settings: Settings, budgets: Array) -> Array:
    """The ε that each class is planned with."""
    if settings["method"] == "uniform":
        return np.full(budgets.shape, settings["level"])
    if settings["remedy"] == "cap":
        return np.minimum(budgets, float(settings["cap"] * budgets.min()))
    return budgets


def _shift(plan: PublicPlan, allowed: Array) -> Tensor:
    """Log π_c, the log of each class's share of the draws by public numbers."""
    q = np.asarray(plan.curve.sampling_probability(allowed))
    return torch.from_numpy(np.log(q / q.sum())).float()


def _loss(classes: int, shift: Tensor | None) -> PerRecordLoss:
    base: Callable[[Tensor, Tensor], Tensor] = binary_loss if classes == 2 else cross_entropy
    if shift is None:
        return base
    return lambda outputs, targets: base(_shifted(outputs, shift), targets)


def _shifted(outputs: Tensor, shift: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return outputs + float(shift[1] - shift[0])
    return outputs + shift.to(outputs.device)


def _optimiser(learning_rate: float, trace: list[Tensor] | None) -> OptimiserFactory:
    def make(values: list[Tensor]) -> torch.optim.Optimizer:
        optimiser = torch.optim.SGD(values, lr=learning_rate)
        if trace is not None:
            optimiser.register_step_post_hook(lambda *_: trace.append(values[0].detach().clone()))
        return optimiser

    return make


def _plain(
    module: nn.Module,
    loss: PerRecordLoss,
    records: Records,
    settings: Settings,
    optimiser: OptimiserFactory,
    device: str,
) -> FlatModel:
    return train_plain(
        module,
        loss,
        records,
        Seeded(settings["seed"]),
        steps=settings["steps"],
        sampling_probability=settings["expected_batch"] / len(records),
        normaliser=settings["expected_batch"],
        optimiser=optimiser,
        device=device,
    ).model
