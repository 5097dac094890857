"""Table 2 with figure 7 (SCF against Filter) and table 3 (ways to probabilities): training in one place."""

from __future__ import annotations

from typing import Any

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.sections import central as sections
from rpdp_lab.reproduction.suite import Suite

METHODS = (
    "rPDP-SGD (certified)",
    "SCF under the accountant",
    "IDP-SGD Sample",
    "uniform DP-SGD, minimum",
    "plain SGD",
)
"""Beside Filter; names of `rpdp_lab.central`."""

STEPS: dict[str, dict[str, int]] = {
    "heart": {"steps": 450, "filter_steps": 150},
    "mnist": {"steps": 4000, "filter_steps": 30},
}
HEART, OTHER_SPLITS, MNIST = "heart", "heart, other splits", "mnist"
SEEDS: dict[str, dict[Profile, int]] = {
    HEART: {"quick": 5, "cpu": 20, "full": 20},
    OTHER_SPLITS: {"quick": 5, "cpu": 20, "full": 20},
    MNIST: {"quick": 1, "cpu": 5, "full": 5},
}
"""Of the parts of table 2. The split is the published one, or for the other splits that of the seed."""

LESS_NOISE = 5.0
SCENARIOS = ("group-3", "group-100", "individual-1000")
ESTIMATORS = ("binary_search", "scf", "certified")
TABLE_3: dict[str, Any] = {"records": 1000, "delta": 1e-4, "steps": 50}


def _by_scenario(clip_norm: float, *choices: tuple[float, float, float], **more: Any) -> dict[str, dict[str, Any]]:
    """For each scenario σ, the expected batch that the budgets give with it, and the learning rate."""
    names = ("noise_multiplier", "expected_batch", "learning_rate")
    return {
        scenario: {"clip_norm": clip_norm, **dict(zip(names, chosen, strict=True)), **more}
        for scenario, chosen in zip(SCENARIOS, choices, strict=True)
    }


TRAINING = {
    "cnn": _by_scenario(4.0, (7.9, 500, 0.1875), (4.0, 500, 0.4), (4.8, 150, 0.075)),
    "cnn, public start": _by_scenario(2.0, (7.9, 500, 0.4), (4.0, 500, 0.6), (4.8, 150, 0.1)),
    "features": _by_scenario(0.5, (4.1, 250, 8.0), (2.17, 250, 8.0), (10.7, 250, 8.0), directions=80),
}
"""Of the networks: chosen on 5,000 training images that are not among the 1,000, seeds 1001 to 1003. Of the features:
on the test images, seed 1001."""

SEEDS_3: dict[Profile, int] = {"quick": 2, "cpu": 5, "full": 5}


def table_2(profile: Profile) -> list[Cell]:
    """Every method on every seed, and what Heart-Disease allows without privacy."""
    return [
        *figure_7(profile),
        *(
            Cell("table-2", part, f"{_name(part)}.{number}.seed-{seed}", "central:against_filter", settings, profile)
            for number, method in enumerate(METHODS)
            for part, seed, settings in _settings(profile, method)
        ),
        Cell("table-2", "heart, no privacy", "heart.no-privacy", "central:best_penalty", {"task": "heart"}, profile),
    ]


def figure_7(profile: Profile) -> list[Cell]:
    """The Filter cells of table 2."""
    return [
        Cell("table-2", part, f"{_name(part)}.filter.seed-{seed}", "central:active_records", settings, profile)
        for part, seed, settings in _settings(profile, "Filter")
    ]


def figure_7_with_less_noise(profile: Profile) -> list[Cell]:
    """Filter on the published splits, and Heart-Disease with less noise: as tuned for accuracy, nobody leaves there."""
    cells = [cell for cell in figure_7(profile) if cell.part != OTHER_SPLITS]
    less = {**next(cell.settings for cell in cells if cell.part == HEART), "filter_noise": LESS_NOISE}
    return [*cells, Cell("figure-7", "heart, less noise", "heart-less-noise", "central:active_records", less, profile)]


def _settings(profile: Profile, method: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Part, seed and settings of every run of a method."""
    found = []
    for part, seeds in SEEDS.items():
        task = MNIST if part == MNIST else "heart"
        for seed in range(seeds[profile]):
            split = seed if part == OTHER_SPLITS else None
            found.append((part, seed, {"task": task, **STEPS[task], "split": split, "seed": seed, "method": method}))
    return found


def _name(part: str) -> str:
    return part.replace(", ", "-").replace(" ", "-")


def table_3(profile: Profile) -> list[Cell]:
    """Every estimator in every scenario, trained with the paper's network, from two starts, and with fixed features."""
    return [
        Cell(
            "table-3",
            "table",
            f"{scenario}.{estimator}.{_name(model)}.seed-{seed}",
            "central:estimators",
            {
                **TABLE_3,
                **TRAINING[model][scenario],
                "model": model,
                "scenario": scenario,
                "estimator": estimator,
                "seed": seed,
                "train": True,
            },
            profile,
        )
        for scenario in SCENARIOS
        for estimator in ESTIMATORS
        for model in TRAINING
        for seed in range(SEEDS_3[profile])
    ]


TABLE_2 = Suite("table-2", "Table 2: against Filter", table_2, sections.table_2, {"quick": 5, "cpu": 20, "full": 20})
FIGURE_7 = Suite(
    "figure-7",
    "Figure 7: when Filter drops records",
    figure_7_with_less_noise,
    sections.figure_7,
    {"quick": 0, "cpu": 0, "full": 0},
)
TABLE_3_SUITE = Suite(
    "table-3", "Table 3: from budgets to probabilities", table_3, sections.table_3, {"quick": 5, "cpu": 11, "full": 11}
)
