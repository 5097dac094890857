"""What figure 9, table 4 and `fairness` share: settings of training with budgets that depend on the label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.published import CLASS_BUDGETS

if TYPE_CHECKING:
    from rpdp_lab.reproduction.cell import Numbers, Settings

HEART: dict[str, Any] = {
    "task": "heart",
    "class_budgets": [0.5, 0.05],
    "steps": 20,
    "noise_multiplier": 10.0,
    "expected_batch": 115,
    "delta": 1e-3,
    "clip_norm": 1.0,
    "learning_rate": 0.3,
}
MNIST: dict[str, Any] = {
    "task": "mnist",
    "class_budgets": list(CLASS_BUDGETS),
    "steps": 100,
    "noise_multiplier": 2.0,
    "expected_batch": 6900,
    "delta": 1e-4,
    "clip_norm": 1.0,
    "learning_rate": 2.0,
    "trace": False,
}
FEATURES: dict[str, Any] = {**MNIST, "task": "mnist-scattering", "learning_rate": 32.0}
REVEALING = (
    "Budgets that follow the label tell the label to whoever learns the budget; the paper assumes they are known."
)


def class_cell(suite: str, part: str, name: str, settings: dict[str, Any], seed: int, profile: Profile) -> Cell:
    """A cell; Heart-Disease has a split for each seed, MNIST the published one."""
    split = seed if settings["task"] == "heart" else 0
    whole = {"remedy": "none", "sigma_factor": 1.0, "level": None, **settings, "seed": seed, "split": split}
    return Cell(suite, part, name, trained_by_class, whole, profile)


def trained_by_class(settings: Settings, device: str) -> Numbers:
    """One model; see `class_training`, which imports torch."""
    from rpdp_lab.reproduction.suites.class_training import train

    return train(settings, device)
