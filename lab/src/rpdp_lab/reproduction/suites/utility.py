"""`utility` (ours): what each means brings to the MNIST cells of figure 8 within the same budgets, one at a time."""

from __future__ import annotations

from typing import Any

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.sections import utility as sections
from rpdp_lab.reproduction.suite import Suite
from rpdp_lab.reproduction.suites.federations import (
    CNN_RATES,
    MNIST_IID,
    MNIST_IID_CNN,
    MNIST_IID_STARTED,
    MNIST_NON_IID,
    MNIST_NON_IID_CNN,
    MNIST_NON_IID_STARTED,
)

HOME = "rpdp_lab.features.features"
SLOW = ("the paper's CNN, tanh",)

CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "all of it": {},
    "no cap on rounds (λ = 0.5)": {"schedule": {"max_participations": 15}},
    "exactly 7 rounds": {"schedule": {"participation": None, "max_participations": None, "participations": 7}},
    "RDP instead of PLD": {"privacy": {"accountant": "rdp"}},
    "σ = 1.5": {"privacy": {"noise_multiplier": 1.5}},
    "σ = 6, batches grow": {"privacy": {"noise_multiplier": 6.0}},
    "clip norm 1, rate 4": {"privacy": {"clip_norm": 1.0}, "training": {"learning_rate": 4.0}},
    "clip norm 0.1, rate 40": {"privacy": {"clip_norm": 0.1}, "training": {"learning_rate": 40.0}},
    "constant rate": {"training": {"decay": 1.0}},
    "last model, no averaging": {"training": {"averaged_rounds": 1}},
    "constant rate, no averaging": {"training": {"decay": 1.0, "averaged_rounds": 1}},
    "momentum 0.9, rate 2": {"training": {"momentum": 0.9, "learning_rate": 2.0}},
    "Adam, rate 0.1": {"training": {"optimiser": "adam", "learning_rate": 0.1}},
    "SCAFFOLD, constant rate": {"training": {"backbone": "scaffold", "decay": 1.0}},
    "20 local steps": {"schedule": {"local_steps": 20}},
    "pixels, linear": {
        "task": {"data": None, "loss": None, "name": "mnist", "model": f"{HOME}:pixel_model"},
        "privacy": {"clip_norm": 1.0},
        "training": {"learning_rate": 0.1},
    },
    "the paper's CNN, tanh": {
        "task": {"data": None, "loss": None, "name": "mnist", "model": f"{HOME}:tanh_network"},
        "privacy": {"clip_norm": CNN_RATES["rpdp"][1]},
        "training": {"learning_rate": CNN_RATES["rpdp"][0]},
    },
}


def cells(profile: Profile) -> list[Cell]:
    """Each change on both partitions; the paper's CNN is that of figure 8."""
    seeds = {"quick": 2, "cpu": 5, "full": 5}[profile]
    partitions = {"iid": MNIST_IID, "five_classes": MNIST_NON_IID}
    found = []
    for partition, federation in partitions.items():
        for number, (label, changes) in enumerate(CHANGES.items()):
            own = {**changes, "task": {**changes["task"], "partition": partition}} if "task" in changes else changes
            for seed in range(1, (1 if label in SLOW and profile == "quick" else seeds) + 1):
                settings = {**federation.settings("rpdp", "ThreeLevels", seed, **own), "label": label}
                settings = {key: _without_none(value) for key, value in settings.items()}
                found.append(
                    Cell(
                        "utility",
                        partition,
                        f"{partition}.{number}.seed-{seed}",
                        "federated:one_run",
                        settings,
                        profile,
                    )
                )
    return found


def _without_none(value: Any) -> Any:
    return {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else value


def network_cells(profile: Profile) -> list[Cell]:
    """The paper's network with ReLU, and started from strokes: runs of figure 8."""
    from rpdp_lab.reproduction.suites import figure_8

    federations = (MNIST_IID_CNN, MNIST_NON_IID_CNN, MNIST_IID_STARTED, MNIST_NON_IID_STARTED)
    names = [federation.name for federation in federations]
    return [
        cell
        for cell in figure_8.cells(profile)
        if cell.part in names and cell.settings["method"] == "rpdp" and cell.settings["distribution"] == "ThreeLevels"
    ]


def all_cells(profile: Profile) -> list[Cell]:
    """Changes, and the paper's network."""
    return [*cells(profile), *network_cells(profile)]


SUITE = Suite(
    "utility",
    "Utility: what each means brings on MNIST (ours)",
    all_cells,
    sections.section,
    {"quick": 4, "cpu": 12, "full": 12},
)
