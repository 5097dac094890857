"""The audit of a silo: an honest build passes, seeded bugs are found, and what cannot be audited is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from rpdp import Schedule
from rpdp.audit import (
    Canaries,
    CanaryLaw,
    Subject,
    Tally,
    analyse,
    audit_silo,
    canary_budgets,
    go_through,
    plant,
    round_observation,
)
from rpdp.errors import InputError
from rpdp.federation import Announcement, Policy, Server, Silo, Update
from rpdp.planning import assign_allowed
from rpdp.sampling import Seeded
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import FlatModel, SlowKernelWarning
from tests.audit.test_planting import base_model, odd_model
from tests.audit.world import MUTANTS, audited, make_public, mutant
from tests.federation.world import make_model, make_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from rpdp.audit import AuditResult


def beside_records(model: nn.Module) -> Subject:
    """Canaries among fifty ordinary records."""
    budgets = np.resize([0.5, 5.0], 50)
    return Subject(make_public(), model=model, loss=binary_loss, records=make_records(50), budgets=budgets)


def test_an_honest_build_passes() -> None:
    """8 seeds: nothing proven beyond ε, and p-values that look uniform (false alarm about 1e-4 for each test)."""
    results = [audited(seed=seed) for seed in range(8)]
    assert all(result.passed for result in results)
    for result in results:
        assert all(group.bound.epsilon <= group.epsilon == group.allowed for group in result.groups)
        assert (result.view, result.joined, result.observations, result.kernel) == ("steps", 4, 40, "ghost")
        assert "No promise is broken" in result.verdict()[0]
        assert "does what its plan says" in result.verdict()[1]
    for index, test in enumerate(results[0].tests):
        if test.name != "participation":
            found = [result.tests[index].p_value for result in results]
            assert stats.ks_1samp(found, stats.uniform.cdf).pvalue > 1e-4, test.name


@pytest.mark.parametrize("view", ["steps", "rounds"])
def test_the_audit_repeats(view: Any) -> None:
    first, second = (audited(seed=3, view=view, groups=(5.0,)) for _ in range(2))
    assert replace(first, seconds=0.0) == replace(second, seconds=0.0)
    assert first.tests != audited(seed=4, view=view, groups=(5.0,)).tests


@pytest.mark.parametrize("name", [name for name in MUTANTS if name != "σ × 1.1"])
def test_seeded_bugs_are_found(name: str) -> None:
    with mutant(name):
        result = audited(seed=1, groups=(0.5, 5.0))
    assert result.p_value < 1e-6
    assert not result.passed
    assert "DOES NOT CONFORM" in result.verdict()[-1]


@pytest.mark.parametrize("name", ["σ / 2", "clip at 2L", "q × 2", "the same noise and draw in every step"])
def test_seeded_bugs_are_found_from_released_updates(name: str) -> None:
    with mutant(name):
        result = audited(seed=1, view="rounds", groups=(0.5, 5.0))
    assert result.p_value < 1e-6


def test_released_updates_of_an_honest_build_pass() -> None:
    assert audited(seed=1, view="rounds", groups=(0.5, 5.0)).passed


@pytest.mark.parametrize(("make", "kernel"), [(make_model, "affine"), (base_model, "ghost"), (odd_model, "ghost")])
def test_seeded_bugs_are_found_beside_records(make: Callable[[], nn.Module], kernel: str) -> None:
    """In the run's own model, by the kernel that it would train with."""
    settings: dict[str, Any] = {"groups": (0.5, 5.0), "per_group": 200, "seed": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowKernelWarning)
        honest = audit_silo(beside_records(make()), **settings)
        with mutant("clip at 2L"):
            broken = audit_silo(beside_records(make()), **settings)
    assert (honest.passed, honest.kernel, honest.records) == (True, kernel, 50)
    assert broken.p_value < 1e-6
    assert "noise" not in {test.name for test in broken.suspects}


def test_too_much_noise_does_not_conform_either() -> None:
    with mutant("σ × 1.1"):
        result = audited(seed=1)
    assert not result.conforms
    assert not result.broken


def test_suspects_name_the_part_that_is_wrong() -> None:
    with mutant("σ × 0.9"):
        assert "noise" in {test.name for test in audited(seed=1, groups=(0.5, 5.0)).suspects}
    with mutant("q × 2"):
        found = {test.name for test in audited(seed=1, groups=(0.5, 5.0)).suspects}
    assert {"draws ε = 0.5", "draws ε = 5"} <= found
    assert "noise" not in found


def test_a_plan_that_overspends_is_found() -> None:
    """Every record is drawn as if it allowed ε = 10: the releases conform to that plan, and the promise is broken."""

    def generous(public: Any, ids: Any, allowed: Any) -> Any:
        return assign_allowed(
            public, ids, replace(allowed, lifetime=np.full(len(ids), 10.0), amount=np.full(len(ids), 10.0))
        )

    result = audit_silo(Subject(make_public(), planner=generous), groups=(0.5, 2.0, 8.0), per_group=4_000, seed=1)
    assert result.conforms
    assert not result.passed
    assert [group.epsilon for group in result.broken] == [0.5, 2.0, 8.0]
    assert result.groups[0].bound.epsilon > 2.0
    said = result.verdict()
    assert said[0].startswith("BROKEN PROMISE: records that allow ε = 0.5: an attacker proves ε ≥ ")
    assert said[2].startswith("BROKEN PROMISE: records that allow ε = 8: the plan gives them q = ")


def test_noise_that_is_far_too_small_breaks_promises() -> None:
    with mutant("σ / 2"):
        result = audited(seed=1, groups=(2.0,), per_group=20_000)
    assert result.groups[0].bound.epsilon > 2.5
    assert result.broken
    assert not audited(seed=1, groups=(2.0,), per_group=20_000).broken


def test_participation_by_coin_is_judged_given_the_rounds_joined() -> None:
    """λ = 0.5: a run that happens to join many rounds has, given that, spent more than the promise, and may."""
    public = make_public(Schedule(6, 10, participation=0.5))
    results = [audited(public, seed=seed, groups=(5.0,)) for seed in range(8)]
    by_joined = {result.joined: result.groups[0] for result in results}
    assert len(by_joined) > 2
    assert all(result.passed and result.observations == 10 * result.joined for result in results)
    allowed = [by_joined[joined].allowed for joined in sorted(by_joined)]
    assert allowed[0] == 5.0
    assert allowed == sorted(allowed)
    given = public.curve.given(max(by_joined)).epsilon(by_joined[max(by_joined)].probability)
    assert allowed[-1] == pytest.approx(given, rel=1e-6)
    assert given > 5.05


def test_a_silo_that_joins_nothing_cannot_be_audited() -> None:
    public = make_public(Schedule(1, 10, participation=0.01))
    with pytest.raises(InputError, match="joined no round"):
        audited(public, seed=1)


def test_records_that_sit_out_stay_invisible() -> None:
    """A budget that buys no draw: q = 0, and the audit sees nothing of its canaries."""

    def strict(public: Any, ids: Any, allowed: Any) -> Any:
        return assign_allowed(public, ids, replace(allowed, amount=np.where(allowed.amount < 1.0, 0.0, allowed.amount)))

    result = audit_silo(Subject(make_public(), planner=strict), groups=(0.5, 5.0), per_group=400, seed=1)
    assert (result.groups[0].probability, result.groups[0].bound.epsilon) == (0.0, 0.0)
    assert result.passed


@pytest.mark.parametrize(
    ("recipe", "what"),
    [
        ({"optimiser": "adam"}, "optimiser = adam"),
        ({"momentum": 0.9}, "momentum = 0.9"),
        ({"backbone": "fedprox", "backbone_settings": {"proximal": 0.1}}, "backbone = fedprox"),
        ({"backbone": "scaffold"}, "backbone = scaffold"),
    ],
)
def test_updates_that_are_no_sums_are_refused(recipe: dict[str, Any], what: str) -> None:
    public = make_public(**recipe)
    with pytest.raises(InputError, match=f"plain SGD only, not with {what}"):
        audited(public, view="rounds")
    assert audited(public, seed=1, groups=(5.0,)).passed  # who sees the steps does not mind


def test_a_decaying_learning_rate_is_known() -> None:
    public = make_public(decay=0.5)
    assert audited(public, view="rounds", seed=1).passed


def test_records_that_stop_early_are_refused() -> None:
    subject = Subject(make_public(), planner=partial(assign_allowed, estimator="scf"))
    with pytest.raises(InputError, match="estimator scf ends some records before the last round"):
        audit_silo(subject, groups=(0.05, 0.1, 0.2, 0.3), per_group=100)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"view": "lines"}, "view='lines' must be one of steps, rounds"),
        ({"confidence": 1.0}, "confidence=1.0 must lie strictly between 0 and 1"),
        ({"per_group": 5}, "canaries=5"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audited(**settings)
    with pytest.raises(InputError, match="or none of them"):
        Subject(make_public(), records=make_records(3))


def test_a_silo_that_is_reached_by_bytes_only() -> None:
    """What an auditor of a deployed silo does: announcements in, bytes out, nothing else seen; as good as inside."""
    public, canaries = make_public(), Canaries.flip((0.5, 5.0), 1_000, Seeded(7).child("audit", "coins"))
    planted = plant(canaries, public.clip_norm)
    silo = Silo("far", planted.records, canary_budgets(canaries), policy=Policy.of(public))
    silo.admit("run", public, planted.model, planted.loss, Seeded(7).child("silo", "far"))
    q = public.curve.sampling_probability(canaries.groups)
    tally = Tally(canaries, [CanaryLaw(float(one), public.noise_multiplier, 10) for one in q])
    joined = []

    def by_bytes(announcement: Announcement) -> Update | None:
        update = silo.answer(announcement)
        return None if update is None else Update.from_bytes("far", update.to_bytes())

    def seen(number: int, update: Update | None) -> None:
        if update is not None:
            joined.append(number)
            tally.add(round_observation(update, planted, public))

    go_through(Server("run", public, FlatModel(planted.model).values.data, ["far"]), "far", by_bytes, seen)
    result = analyse(tally, public, [len(joined)], 0.95, Seeded(7).child("audit", "design"))
    assert (result.view, result.observations, result.passed) == ("rounds", 4, True)
    inside = audit_silo(Subject(public, "far"), groups=(0.5, 5.0), per_group=1_000, seed=7, view="rounds")
    assert summary(inside) == summary(result)


def summary(result: AuditResult) -> list[Any]:
    return [
        [(group.bound.guesses, group.bound.right) for group in result.groups],
        [test.p_value for test in result.tests],
    ]


@pytest.mark.slow
def test_the_stated_rate_of_false_alarms() -> None:
    """100 honest runs: none flagged, nothing proven beyond ε, and p-values that are uniform, the smallest included."""
    results = [audited(seed=1_000 + seed) for seed in range(100)]
    assert all(result.passed for result in results)
    assert all(group.bound.epsilon <= group.epsilon for result in results for group in result.groups)
    for index, test in enumerate(results[0].tests):
        if test.name != "participation":
            found = [result.tests[index].p_value for result in results]
            assert stats.ks_1samp(found, stats.uniform.cdf).pvalue > 1e-4, test.name
    smallest = min(test.p_value for result in results for test in result.tests)
    assert 1e-8 < smallest < 1e-2


@pytest.mark.slow
def test_a_hundred_thousand_canaries_prove_half_of_epsilon() -> None:
    result = audited(seed=1, per_group=100_000)
    assert result.passed
    for group in result.groups:
        assert 0.5 * group.epsilon <= group.bound.epsilon <= group.epsilon
