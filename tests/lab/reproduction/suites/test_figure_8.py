"""Which runs of figure 8 belong to which profile, and which are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rpdp_lab.reproduction.cell import PROFILES
from rpdp_lab.reproduction.suites import federations
from rpdp_lab.reproduction.suites.federations import DISTRIBUTIONS, METHODS
from rpdp_lab.reproduction.suites.figure_8 import DESCRIPTIONS, budget_histogram, cells, section

from tests.lab.reproduction.conftest import result

if TYPE_CHECKING:
    from rpdp_lab.reproduction.cell import Profile


def runs(profile: Profile, federation: federations.FederationSettings) -> list[dict[str, Any]]:
    return [dict(cell.settings) for cell in cells(profile) if cell.part == federation.name]


@pytest.mark.parametrize(
    "federation", [federations.HEART, federations.MNIST_IID, federations.CIFAR, federations.SNLI_FEATURES]
)
def test_quick_has_all_methods_and_distributions(federation: federations.FederationSettings) -> None:
    found = {(each["distribution"], each["method"]) for each in runs("quick", federation)}
    assert found == {(distribution, method) for distribution in DISTRIBUTIONS for method in METHODS}


@pytest.mark.parametrize("methods", [("rpdp",), ("rpdp", "minimum")], ids=["alone", "with a rival"])
def test_federations_are_drawn_where_ours_has_rivals(methods: tuple[str, ...]) -> None:
    numbers: dict[str, Any] = {"accuracy": 0.9, "by_round": [0.5, 0.9], "records": 10, "overdrawn": 0}
    chosen = [cell for cell in cells("cpu") if cell.part == federations.MNIST_IID_CNN.name]
    found = section([result(cell, **numbers) for cell in chosen if cell.settings["method"] in methods])
    assert (federations.MNIST_IID_CNN.name in found.figures["figure-8.svg"]) == (len(methods) > 1)


def test_the_papers_models_stay_in_quick() -> None:
    assert [each["method"] for each in runs("quick", federations.CIFAR_RESNET)] == ["rpdp"]
    assert {each["method"] for each in runs("quick", federations.SNLI)} == {"rpdp", "privacy_free"}


def test_full_has_the_papers_schedule() -> None:
    for federation, schedule in (
        (federations.CIFAR_RESNET, (30, 50)),
        (federations.CIFAR, (30, 50)),
        (federations.SNLI, (15, 50)),
    ):
        found = {(each["schedule"]["rounds"], each["schedule"]["local_steps"]) for each in runs("full", federation)}
        assert found == {schedule}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_federation_is_described(profile: Profile) -> None:
    parts = {cell.part for cell in cells(profile)} - {"budgets"}
    assert parts <= set(DESCRIPTIONS)


def test_the_budgets_of_the_first_column() -> None:
    found = budget_histogram({"distribution": "ThreeLevels", "parameters": "paper", "records": 1000, "seed": 0}, "cpu")
    assert sum(found["counts"]) == 1000
    assert sorted(count for count in found["counts"] if count) == [100, 200, 700]
