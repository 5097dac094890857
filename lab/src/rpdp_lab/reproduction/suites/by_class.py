"""Figure 9 and table 4: budgets that depend on the label. Fairness: what helps the classes that allow little."""

from __future__ import annotations

from typing import Any

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.published import CLASS_BUDGETS
from rpdp_lab.reproduction.sections import by_class as sections
from rpdp_lab.reproduction.suite import Suite
from rpdp_lab.reproduction.suites import figure_8

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
    "split": 0,
    "trace": False,
}
FEATURES: dict[str, Any] = {**MNIST, "task": "mnist-scattering", "learning_rate": 32.0}
PLAIN_RATES = {"heart": 0.3, "mnist": 0.5, "mnist-scattering": 32.0}
SMALL_FOR_ONE = [3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 0.1, 3.0]
"""A harder case of our own: one class allows a thirtieth of the others."""

METHODS_4: dict[str, dict[str, Any]] = {
    "rPDP-SGD": {"method": "rpdp"},
    "DP-SGD (ε = 0.5)": {"method": "uniform", "level": 0.5},
    "DP-SGD (ε = 3.0)": {"method": "uniform", "level": 3.0},
    "SGD": {"method": "plain"},
}
METHODS_9: dict[str, dict[str, Any]] = {
    "rPDP-SGD": {"method": "rpdp"},
    "DP-SGD (ε = 0.05)": {"method": "uniform", "level": 0.05},
    "DP-SGD (ε = 0.1)": {"method": "uniform", "level": 0.1},
}
REMEDIES: dict[str, dict[str, Any]] = {
    "none": {"remedy": "none"},
    "logit adjustment after training": {"remedy": "posthoc"},
    "logit adjustment in the loss": {"remedy": "loss"},
    "generous classes capped at 4 × the smallest ε": {"remedy": "cap", "cap": 4.0},
    "twice the noise, larger batches": {"remedy": "none", "sigma_factor": 2.0},
    "uniform at the smallest ε": {"remedy": "none", "method": "uniform"},
}


def figure_9(profile: Profile) -> list[Cell]:
    """Ten trials, each on its own split."""
    return [
        _cell(
            "figure-9",
            "heart",
            f"{number}.seed-{seed}",
            {**HEART, **chosen, "label": label, "trace": True},
            seed,
            profile,
        )
        for number, (label, chosen) in enumerate(METHODS_9.items())
        for seed in range(10)
    ]


def table_4(profile: Profile) -> list[Cell]:
    """Five trials (one of the network in quick) of the paper's network and of a linear model on fixed features."""
    return [
        _cell(
            "table-4",
            base["task"],
            f"{base['task']}.{number}.seed-{seed}",
            {**base, **chosen, "label": label, **_rate(base, chosen)},
            seed,
            profile,
        )
        for base in (MNIST, FEATURES)
        for number, (label, chosen) in enumerate(METHODS_4.items())
        for seed in range(1 if profile == "quick" and base is MNIST else 5)
    ]


def fairness(profile: Profile) -> list[Cell]:
    """Remedies for classes with small budgets; and the groups of figure 8, whose budgets do not depend on the label."""
    cases = {"heart": HEART, "mnist": FEATURES, "one-small": {**FEATURES, "class_budgets": SMALL_FOR_ONE}}
    groups = [
        cell
        for cell in figure_8.cells(profile)
        if cell.part == "mnist-iid" and cell.settings["distribution"] == "ThreeLevels"
    ]
    remedies = [
        _cell(
            "fairness",
            f"remedies, {name}",
            f"{name}.{number}.seed-{seed}",
            {
                **base,
                "trace": False,
                "method": "rpdp",
                **chosen,
                "level": min(base["class_budgets"]),
                "label": label,
                "case": name,
            },
            seed,
            profile,
        )
        for name, base in cases.items()
        for number, (label, chosen) in enumerate(REMEDIES.items())
        for seed in range(10 if name == "heart" else 3 if profile == "quick" else 5)
    ]
    return [*groups, *remedies]


def _rate(base: dict[str, Any], chosen: dict[str, Any]) -> dict[str, float]:
    return {"learning_rate": PLAIN_RATES[base["task"]]} if chosen["method"] == "plain" else {}


def _cell(suite: str, part: str, name: str, settings: dict[str, Any], seed: int, profile: Profile) -> Cell:
    split = seed if settings["task"] == "heart" else 0
    whole = {"remedy": "none", "sigma_factor": 1.0, "level": None, **settings, "seed": seed, "split": split}
    return Cell(suite, part, name, "by_class:train", whole, profile)


FIGURE_9 = Suite(
    "figure-9",
    "Figure 9: budgets by diagnosis, Heart-Disease",
    figure_9,
    sections.figure_9,
    {"quick": 0.2, "cpu": 0.2, "full": 0.2},
)
TABLE_4 = Suite(
    "table-4", "Table 4: budgets by class, MNIST", table_4, sections.table_4, {"quick": 3, "cpu": 10, "full": 10}
)
FAIRNESS = Suite(
    "fairness",
    "Fairness: the records of each budget group (ours)",
    fairness,
    sections.fairness,
    {"quick": 1, "cpu": 2, "full": 2},
)
