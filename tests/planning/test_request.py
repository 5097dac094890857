"""What a run of statistics or evaluation asks, and the plan that carries it: public, and changed by nobody unseen."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from rpdp import PublicPlan, Schedule
from rpdp.errors import InputError, PlanError, TamperedPlanError
from rpdp.planning import MeasureSpec, Recipe, Request
from rpdp.planning.request import MOST_CELLS

AGES = MeasureSpec("histogram", 10, {"column": "age", "edges": [0, 50, 100], "more": {"by": None}})
REQUEST = Request("representative", (MeasureSpec("count", 1), AGES))


def plan(request: Request = REQUEST, **settings: Any) -> PublicPlan:
    given: dict[str, Any] = {"noise_multiplier": 4.0, "delta": 1e-4, "purpose": "statistics", **settings}
    return PublicPlan.of_request(request, **given)


def test_the_measures_share_one_vector() -> None:
    assert REQUEST.size == 11
    assert REQUEST.parts == (slice(0, 1), slice(1, 11))
    assert REQUEST.norm == math.sqrt(2)
    assert plan().clip_norm == REQUEST.norm


def test_a_plan_returns_from_json_as_it_was() -> None:
    again = PublicPlan.from_json(plan().to_json())
    assert again == plan()
    assert again.request == REQUEST
    assert again.fingerprint == plan().fingerprint
    assert json.loads(plan().to_json())["format"] == "rpdp-public-plan/2"


def test_settings_are_an_own_copy_of_plain_json() -> None:
    edges = [0, 1]
    spec = MeasureSpec("histogram", 1, {"edges": edges, "range": (0, 1)})
    edges.append(2)
    assert spec.settings == {"edges": [0, 1], "range": [0, 1]}
    with pytest.raises(TypeError):
        spec.settings["edges"] = []  # type: ignore[index]


@pytest.mark.parametrize("value", [{1, 2}, b"a", object(), math.inf], ids=["set", "bytes", "object", "infinity"])
def test_settings_that_json_cannot_say_are_refused(value: Any) -> None:
    """Not turned into null: the fingerprint would then cover something else than what the silo computes."""
    with pytest.raises(InputError, match="are not JSON"):
        MeasureSpec("histogram", 1, {"edges": value})


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, estimator="everyone"),
        Request("representative", (AGES, MeasureSpec("count", 1))),
        Request("representative", (MeasureSpec("count", 1), replace(AGES, settings={"column": "sbp"}))),
        Request("representative", (MeasureSpec("counts", 1), AGES)),
    ],
)
def test_the_fingerprint_covers_the_request(other: Request) -> None:
    assert plan(other).fingerprint != plan().fingerprint
    altered = {**json.loads(plan().to_json()), "request": other.plain()}
    with pytest.raises(TamperedPlanError):
        PublicPlan.from_json(json.dumps(altered))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"purpose": "training"}, "a plan for training must not have one"),
        ({"request": None}, "needs a rpdp.planning.Request"),
        ({"request": REQUEST.plain()}, "needs a rpdp.planning.Request"),
        ({"clip_norm": 1.0}, "clip_norm=1.0, not 1.41"),
        ({"normaliser": 2.0}, "normaliser=2.0, not 1.0"),
        ({"weights": {"a": 1.0, "b": 2.0}}, "every weight"),
        ({"schedule": Schedule(1, 2, participation=1.0)}, "local_steps=2, not 1"),
        ({"schedule": Schedule(2, 1, participation=0.5)}, "participation=0.5, not 1"),
        ({"schedule": Schedule(2, 1, participations=2)}, "participation=None, not 1"),
        ({"schedule": Schedule(2, 1, participation=1.0, max_participations=1)}, "max_participations=1, not None"),
        ({"recipe": Recipe(backbone="fedprox")}, "recipe="),
        ({"accountant": "rdp"}, "accountant='rdp', not 'pld'"),
    ],
)
def test_a_plan_with_a_request_has_the_settings_of_a_sum(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", "\\(")):
        replace(plan(), **changes)


def test_a_plan_for_training_has_no_request() -> None:
    training = PublicPlan(
        Schedule(1, 1, participation=1.0), noise_multiplier=1.0, delta=1e-4, clip_norm=1.0, normaliser=1.0, weights=1.0
    )
    assert training.request is None
    assert "request" not in training.to_json()
    with pytest.raises(InputError, match="needs a"):
        replace(training, purpose="evaluation")


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        {"estimator": "everyone"},
        {"estimator": "everyone", "measures": []},
        {"estimator": "nobody", "measures": [{"kind": "count", "size": 1}]},
        {"estimator": "everyone", "measures": [{"kind": "count", "size": 0}]},
        {"estimator": "everyone", "measures": [{"kind": "count", "size": True}]},
        {"estimator": "everyone", "measures": [{"kind": "", "size": 1}]},
        {"estimator": "everyone", "measures": [{"kind": "count", "size": MOST_CELLS}, {"kind": "more", "size": 1}]},
        {"estimator": "everyone", "measures": [{"kind": "count", "size": 1, "settings": []}]},
        {"estimator": "everyone", "measures": [{"kind": "count", "size": 1, "settings": {"x": math.nan}}]},
        {"estimator": "everyone", "measures": [{"kind": "count", "size": 1, "other": 1}]},
        {"estimator": "everyone", "measures": [{"kind": "count", "size": 1}], "other": 1},
    ],
)
def test_a_request_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError):
        Request.of(wrong)
    with pytest.raises((InputError, PlanError)):
        PublicPlan.from_json(json.dumps({**json.loads(plan().to_json()), "request": wrong}))
