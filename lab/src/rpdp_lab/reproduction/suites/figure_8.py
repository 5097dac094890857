"""Figure 8: the federated evaluation, and which of its runs belong to which profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.sections import figure_8 as sections
from rpdp_lab.reproduction.suite import Suite
from rpdp_lab.reproduction.suites import federations as known
from rpdp_lab.reproduction.suites.federations import DISTRIBUTIONS, METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp_lab.reproduction.suites.federations import Federation

ALL, FIRST = DISTRIBUTIONS, DISTRIBUTIONS[:1]
OURS = ("rpdp",)
PAPERS = ("rpdp", "minimum", "dropout", "privacy_free")
"""The methods in the paper's figure."""

Share = tuple["Federation", "Sequence[str]", "Sequence[str]", int]
"""A federation, distributions, methods, number of seeds."""


def _shares(profile: Profile) -> list[Share]:
    few, seeds = profile == "quick", {"quick": 3, "cpu": 5, "full": 5}[profile]
    shares: list[Share] = [
        (known.HEART, ALL, METHODS, 5 if few else 20),
        (known.MNIST_IID, ALL, METHODS, seeds),
        (known.MNIST_NON_IID, ALL, METHODS, seeds),
        (known.MNIST_IID_STARTED, ALL, OURS, 1 if few else 5),
        (known.MNIST_NON_IID_STARTED, ALL, OURS, 1 if few else 5),
        (known.MNIST_IID_CNN, FIRST if few else ALL, OURS if few else METHODS, 1 if few else 5),
        (known.MNIST_NON_IID_CNN, FIRST if few else ALL, OURS if few else METHODS, 1 if few else 5),
    ]
    if profile == "cpu":  # the networks of the rest want a GPU for more than `quick` does
        return [*shares, (known.SNLI_FEATURES, ALL, METHODS, seeds)]
    return [
        *shares,
        (known.CIFAR, ALL, METHODS, 1 if few else 5),
        (known.CIFAR_RESNET, FIRST if few else ALL, OURS if few else PAPERS, 1 if few else 5),
        (known.SNLI_FEATURES, ALL, METHODS, seeds),
        (known.SNLI, FIRST if few else ALL, ("rpdp", "privacy_free") if few else METHODS, 1 if few else 5),
    ]


def _full(federation: Federation) -> dict[str, dict[str, float]]:
    """The paper's schedule for what `quick` shortens, with a σ that suits it."""
    if federation is known.CIFAR_RESNET:
        return {"schedule": {"rounds": 30, "local_steps": 50}, "privacy": {"noise_multiplier": 1.0}}
    if federation is known.CIFAR:
        return {"schedule": {"rounds": 30, "local_steps": 50}, "privacy": {"noise_multiplier": 1.5}}
    return {"schedule": {"rounds": 15, "local_steps": 50}} if federation is known.SNLI else {}


def cells(profile: Profile) -> list[Cell]:
    """1,000 budgets of each distribution, and all runs."""
    budgets = [
        Cell(
            "figure-8",
            "budgets",
            f"budgets.{distribution}",
            "federated:budget_sample",
            {"distribution": distribution, "parameters": "paper", "records": 1000, "seed": 0},
            profile,
        )
        for distribution in DISTRIBUTIONS
    ]
    runs = [
        Cell(
            "figure-8",
            federation.name,
            f"{federation.name.replace(',', '').replace(' ', '-')}.{distribution}.{method}.seed-{seed}",
            "federated:one_run",
            federation.settings(method, distribution, seed, **(_full(federation) if profile == "full" else {})),
            profile,
        )
        for federation, distributions, methods, seeds in _shares(profile)
        for seed in range(1, seeds + 1)
        for distribution in distributions
        for method in methods
        if not (profile == "quick" and method == "scf" and _is_slow(federation, distribution, seed))
    ]
    return [*budgets, *runs]


def _is_slow(federation: Federation, distribution: str, seed: int) -> bool:
    """SCF prices thousands of different budgets for every number of rounds: `quick` has one seed of that."""
    return federation is not known.HEART and distribution != "ThreeLevels" and seed > 1


SUITE = Suite(
    "figure-8",
    "Figure 8: the federated evaluation",
    cells,
    sections.section,
    {"quick": 15, "cpu": 110, "full": 2000},
)
