"""A silo's own limits: each of them, by its name."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation import Policy
from rpdp.planning import Recipe
from tests.federation.world import make_public, make_recipe

LIMITS = Policy(
    max_rounds=4,
    max_local_steps=3,
    max_participation=0.5,
    max_clip_norm=1.0,
    min_noise_multiplier=1.0,
    lifetime_delta=1e-3,
    max_runs=2,
)


def test_a_plan_at_the_limits_is_admitted() -> None:
    LIMITS.require(make_public(participation=0.5), runs_before=1)
    LIMITS.require(make_public(participations=2), runs_before=0)
    LIMITS.require(make_public(2, 1, participation=0.1, noise_multiplier=9.0, clip_norm=0.1, delta=1e-9), runs_before=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 5}, r"rounds=5 \(policy: at most 4\)"),
        ({"local_steps": 4}, r"local_steps=4 \(policy: at most 3\)"),
        ({"participation": 0.51}, r"participation=0.51 \(policy: at most 0.5\)"),
        ({"participations": 3}, r"participation=0.75 \(policy: at most 0.5\)"),
        ({"clip_norm": 1.01}, r"clip_norm=1.01 \(policy: at most 1.0\)"),
        ({"noise_multiplier": 0.99}, r"noise_multiplier=0.99 \(policy: at least 1.0\)"),
        ({"delta": 1.01e-3}, r"delta=0.00101 \(policy: at most 0.001\)"),
        ({"recipe": Recipe(1e-30)}, r"learning_rate of the last round=1e-30 \(policy: at least 1e-06\)"),
        ({"recipe": Recipe(0.1, 1e-3)}, r"learning_rate of the last round=1[.0-9]*e-10 \(policy: at least 1e-06\)"),
        ({"recipe": Recipe(10.1)}, r"learning_rate=10.1 \(policy: at most 10.0\)"),
        ({"recipe": Recipe(momentum=0.999)}, r"momentum=0.999 \(policy: at most 0.99\)"),
        ({"recipe": Recipe(micro_batch=255)}, r"micro_batch=255 \(policy: at least 256\)"),
        ({"recipe": make_recipe("fedprox", proximal=1e30)}, r"proximal=1e\+30 \(policy: at most 10.0\)"),
        ({"recipe": make_recipe("fedavg", proximal=11)}, r"proximal=11.0 \(policy: at most 10.0\)"),
        ({"recipe": make_recipe("fedprox", proximal=-1)}, r"smallest proximal=-1.0 \(policy: at least 0.0\)"),
    ],
    ids=str,
)
def test_every_limit_is_kept_and_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PrivacyRefusal, match=words) as refusal:
        LIMITS.require(make_public(**{"participation": 0.5, **changes}), runs_before=0)
    assert str(refusal.value).count("(policy:") == 1


def test_the_number_of_runs_is_limited() -> None:
    with pytest.raises(PrivacyRefusal, match=r"runs=3 \(policy: at most 2\)"):
        LIMITS.require(make_public(participation=0.5), runs_before=2)


def test_all_limits_that_are_broken_are_named_at_once() -> None:
    with pytest.raises(PrivacyRefusal, match=r"rounds=9 .*, noise_multiplier=0.5 .*nothing was reserved"):
        LIMITS.require(make_public(9, participation=0.5, noise_multiplier=0.5), runs_before=0)


@pytest.mark.parametrize("schedule", [{"participation": 0.3}, {"participations": 3}], ids=str)
def test_the_policy_of_a_plan_admits_it_once_and_nothing_beyond(schedule: dict[str, Any]) -> None:
    public = make_public(**schedule)
    policy = Policy.of(public)
    policy.require(public, runs_before=0)
    with pytest.raises(PrivacyRefusal, match="runs=2"):
        policy.require(public, runs_before=1)
    with pytest.raises(PrivacyRefusal, match="noise_multiplier"):
        policy.require(replace(public, noise_multiplier=public.noise_multiplier * (1 - 1e-9)), runs_before=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_rounds", 0),
        ("max_rounds", 1.5),
        ("max_local_steps", -1),
        ("max_runs", True),
        ("max_participation", 1.1),
        ("max_clip_norm", float("inf")),
        ("min_noise_multiplier", 0.0),
        ("lifetime_delta", 1.0),
        ("lifetime_delta", float("nan")),
        ("min_learning_rate", 0.0),
        ("max_learning_rate", float("inf")),
        ("max_momentum", -0.1),
        ("min_micro_batch", 0),
        ("max_proximal", float("nan")),
    ],
)
def test_impossible_limits_are_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name}="):
        Policy(**{**asdict(LIMITS), name: value})


def test_of_two_limits_the_stricter_counts() -> None:
    stated = {"max_rounds": 9, "max_local_steps": 1, "min_noise_multiplier": 2.0, "max_share_per_run": 0.1}
    both = replace(LIMITS, reserved={"evaluation": 0.1, "statistics": 0.3}).within(
        {**stated, "reserved": {"evaluation": 0.2}, "lifetime_delta": 1e-3}
    )
    assert both == replace(
        LIMITS,
        max_local_steps=1,
        min_noise_multiplier=2.0,
        max_share_per_run=0.1,
        reserved={"evaluation": 0.2, "statistics": 0.3},
    )
    assert both.within({"max_share_per_run": 0.5, "min_noise_multiplier": 1.0}) == both
    assert LIMITS.within({}) == LIMITS


@pytest.mark.parametrize(("name", "stated"), [("lifetime_delta", 1e-4), ("silos_per_person", 2)])
def test_what_cannot_be_stricter_must_be_the_same(name: str, stated: float) -> None:
    with pytest.raises(PrivacyRefusal, match=rf"{name}=.* beside the ledger state {stated}"):
        LIMITS.within({name: stated})
