"""Figure 8: the federated evaluation, and which of its runs belong to which profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.reproduction.cell import Cell, Profile
from rpdp.reproduction.sections import figure_8 as sections
from rpdp.reproduction.suite import Suite
from rpdp.reproduction.suites import federations as known
from rpdp.reproduction.suites.federations import DISTRIBUTIONS, METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.reproduction.suites.federations import Federation

ALL, FIRST = DISTRIBUTIONS, DISTRIBUTIONS[:1]
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
        (
            known.MNIST_IID_CNN,
            FIRST if few else ALL,
            ("rpdp", "minimum", "dropout") if few else METHODS,
            1 if few else 5,
        ),
        (known.MNIST_NON_IID_CNN, FIRST if few else ALL, ("rpdp",) if few else METHODS, 1 if few else 5),
    ]
    if profile == "cpu":  # nothing more to be had of these without a GPU
        return shares
    others = METHODS if profile == "full" else PAPERS
    return [
        *shares,
        (known.CIFAR, ALL if profile == "full" else FIRST, others, 1 if few else 5),
        (known.CIFAR_RESNET, FIRST if few else ALL, ("rpdp",) if few else PAPERS, 1 if few else 5),
        (known.SNLI, ALL if profile == "full" else FIRST, others, 1 if few else 5),
    ]


def _full(federation: Federation) -> dict[str, dict[str, int]]:
    """The paper's schedule for what `quick` shortens."""
    if federation in (known.CIFAR, known.CIFAR_RESNET):
        return {"schedule": {"rounds": 30, "local_steps": 50}}
    return {"schedule": {"rounds": 15, "local_steps": 50}} if federation is known.SNLI else {}


def cells(profile: Profile) -> list[Cell]:
    """1,000 budgets of each distribution, and all runs."""
    budgets = [
        Cell(
            "figure-8",
            "budgets",
            f"budgets.{distribution}",
            "federated:budget_sample",
            {"distribution": distribution, "parameters": parameters, "records": 1000, "seed": 0},
            profile,
        )
        for distribution in DISTRIBUTIONS
        for parameters in ("paper",)
    ]
    runs = [
        Cell(
            "figure-8",
            federation.name,
            f"{federation.name.replace(', ', '-')}.{distribution}.{method}.seed-{seed}",
            "federated:one_run",
            federation.settings(method, distribution, seed, **(_full(federation) if profile == "full" else {})),
            profile,
        )
        for federation, distributions, methods, seeds in _shares(profile)
        for seed in range(1, seeds + 1)
        for distribution in distributions
        for method in methods
        if not _too_slow(profile, federation, distribution, method)
    ]
    return [*budgets, *runs]


def _too_slow(profile: Profile, federation: Federation, distribution: str, method: str) -> bool:
    """SCF prices thousands of different budgets for every number of rounds, minutes a run: not in an hour."""
    many = federation in (known.MNIST_IID, known.MNIST_NON_IID) and distribution != "ThreeLevels"
    return profile == "quick" and method == "scf" and many


SUITE = Suite(
    "figure-8",
    "Figure 8: the federated evaluation",
    cells,
    sections.section,
    {"quick": 25, "cpu": 330, "full": 2000},
)
