"""The training part of a public plan: checked, frozen, in the fingerprint, and without a price."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rpdp import PublicPlan, Schedule
from rpdp.errors import InputError, PlanError, TamperedPlanError
from rpdp.planning import BACKBONES, OPTIMISERS, Recipe


def public(recipe: Recipe) -> PublicPlan:
    return PublicPlan(
        Schedule(4, 3, participation=0.5),
        noise_multiplier=1.0,
        delta=1e-3,
        clip_norm=1.0,
        normaliser=10.0,
        weights=1.0,
        recipe=recipe,
        accountant="rdp",
    )


OTHERS: list[dict[str, Any]] = [
    {"learning_rate": 0.2},
    {"optimiser": "adam"},
    {"momentum": 0.9},
    {"micro_batch": 64},
    {"averaged_rounds": 3},
    {"backbone": "fedprox"},
    {"backbone": "fedprox", "backbone_settings": {"proximal": 0.5}},
]


def test_every_setting_is_in_the_fingerprint() -> None:
    plans = [public(Recipe())] + [public(Recipe(**changes)) for changes in OTHERS]
    assert len({plan.fingerprint for plan in plans}) == 1 + len(OTHERS)


@pytest.mark.parametrize("changes", OTHERS, ids=str)
def test_round_trip_and_tampering(changes: dict[str, Any]) -> None:
    plan = public(Recipe(**changes))
    back = PublicPlan.from_json(plan.to_json())
    assert back == plan
    assert back.fingerprint == plan.fingerprint
    altered = json.loads(plan.to_json())
    altered["recipe"]["learning_rate"] = 9.0
    with pytest.raises(TamperedPlanError, match="altered"):
        PublicPlan.from_json(json.dumps(altered))


def test_settings_are_equal_however_they_are_written() -> None:
    one = Recipe(learning_rate=1, backbone="fedadam", backbone_settings={"adaptivity": 1, "server_decay": 0.5})
    other = Recipe(learning_rate=1.0, backbone="fedadam", backbone_settings={"server_decay": 0.5, "adaptivity": 1.0})
    assert one == other
    assert public(one).fingerprint == public(other).fingerprint


def test_no_recipe_changes_a_price() -> None:
    prices = {public(Recipe(**changes)).curve.epsilon(0.1) for changes in OTHERS[:3]}
    assert len(prices) == 1


def test_recipes_are_frozen() -> None:
    given = {"proximal": 0.5}
    recipe = Recipe(backbone="fedprox", backbone_settings=given)
    given["proximal"] = 9.0
    assert recipe.backbone_settings["proximal"] == 0.5
    with pytest.raises(TypeError):
        recipe.backbone_settings["proximal"] = 9.0  # type: ignore[index]
    with pytest.raises(AttributeError):
        recipe.learning_rate = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name: str) -> None:
    assert Recipe(optimiser=name).optimiser == name


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones(name: str) -> None:
    assert Recipe(backbone=name).backbone == name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate=nan must be finite"),
        ({"learning_rate": "fast"}, "learning_rate='fast' must be a number"),
        ({"optimiser": "adm"}, "optimiser='adm' must be one of sgd, adam; did you mean 'adam'"),
        ({"optimiser": None}, "optimiser=None must be one of"),
        ({"backbone": "fedpro"}, "did you mean 'fedprox'"),
        ({"backbone": "Scaffold"}, "did you mean 'scaffold'"),
        ({"momentum": 1.0}, "momentum=1.0 must be at least 0 and below 1"),
        ({"momentum": -0.1}, "momentum=-0.1"),
        ({"momentum": 0.9, "optimiser": "adam"}, "momentum=0.9 needs optimiser='sgd'"),
        ({"micro_batch": 0}, "micro_batch=0 must be at least 1"),
        ({"micro_batch": 1.5}, "micro_batch=1.5 must be a whole number"),
        ({"averaged_rounds": 0}, "averaged_rounds=0 must be at least 1"),
        ({"averaged_rounds": True}, "averaged_rounds=True must be a whole number"),
        ({"backbone_settings": [1.0]}, "backbone_settings="),
        ({"backbone_settings": {"proximal": float("inf")}}, "proximal=inf must be finite"),
        ({"backbone_settings": {"proximal": "strong"}}, "proximal='strong' must be a number"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Recipe(**changes)


@pytest.mark.parametrize("recipe", [None, "sgd", {"learning_rate": 1.0, "learning_rat": 2.0}], ids=str)
def test_a_stored_plan_with_something_else_for_a_recipe_is_refused(recipe: Any) -> None:
    values = json.loads(public(Recipe()).to_json())
    values["recipe"] = recipe
    with pytest.raises(PlanError, match="not a public plan"):
        PublicPlan.from_json(json.dumps(values))


def test_a_plan_takes_a_recipe_and_nothing_else() -> None:
    with pytest.raises(InputError, match=r"recipe='sgd' must be a rpdp\.Recipe"):
        public("sgd")  # type: ignore[arg-type]
