"""The audit of statistics and evaluation, per budget group: an honest build passes, and every seeded bug is found."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from rpdp.audit import RequestSubject, audit_request
from rpdp.errors import InputError
from rpdp.federation import exact_sums, sums
from rpdp.planning import MeasureSpec, PublicPlan, Request, assign_allowed
from rpdp.sampling import Seeded
from rpdp.statistics import Columns, ColumnSource, Inquiry, Mean, NumberRange, RequestTerms, ask
from rpdp.statistics.intervals import Noise
from tests.audit.world import make_public
from tests.federation.requests import request_silo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rpdp.audit import AuditResult
    from rpdp.planning import Purpose, RequestEstimator
    from rpdp.statistics import NoisyEstimate

GROUPS = (0.5, 2.0, 8.0)
RANGE = NumberRange(0.0, 10.0)
MEAN = Mean("x", RANGE)


def asked(
    estimator: RequestEstimator = "representative", measures: int = 3, purpose: Purpose = "statistics", rounds: int = 2
) -> PublicPlan:
    """At s = 1.5 the groups have weights 0.23, 0.71 and 1, or 0, 0 and 1."""
    request = Request(estimator, tuple(MeasureSpec("count", 1) for _ in range(measures)))
    return PublicPlan.of_request(request, noise_multiplier=1.5, delta=1e-3, purpose=purpose, rounds=rounds)


def audited(subject: RequestSubject | None = None, **settings: Any) -> AuditResult:
    given = {"groups": GROUPS, "per_group": 2_000, "seed": 1, **settings}
    return audit_request(RequestSubject(asked()) if subject is None else subject, **given)


def beside_records(estimator: RequestEstimator = "representative", budgets: tuple[float, ...] = (0.5, 5.0)) -> Any:
    """Canaries among records whose mean is asked for."""
    columns = Columns.of_arrays({"x": np.linspace(0.0, 10.0, 60)}, ranges={"x": (0.0, 10.0)})
    public = replace(asked(estimator), request=Inquiry((MEAN,), estimator).request, clip_norm=1.0)
    return RequestSubject(public, source=ColumnSource(columns), budgets=np.resize(budgets, 60))


@pytest.mark.parametrize("estimator", ["everyone", "representative"])
@pytest.mark.parametrize("purpose", ["statistics", "evaluation"])
def test_an_honest_build_passes(estimator: RequestEstimator, purpose: Purpose) -> None:
    result = audited(RequestSubject(asked(estimator, purpose=purpose)))
    assert result.passed
    assert all(group.bound.epsilon <= group.allowed == group.epsilon for group in result.groups)
    assert (result.view, result.kernel, result.observations, result.purpose) == ("rounds", "sums", 2, purpose)
    weights = [group.probability for group in result.groups]
    assert weights == ([0.0, 0.0, 1.0] if estimator == "everyone" else sorted(weights))
    assert result.groups[-1].bound.epsilon > 1.0  # it could see something


def test_p_values_of_an_honest_build_look_uniform() -> None:
    """8 seeds; false alarm about 1e-4 for each test."""
    results = [audited(seed=seed, per_group=400) for seed in range(8)]
    for index, test in enumerate(results[0].tests):
        if not test.name.startswith(("participation", "purity")):
            found = [result.tests[index].p_value for result in results]
            assert stats.ks_1samp(found, stats.uniform.cdf).pvalue > 1e-4, test.name


def test_records_of_the_silo_are_measured_beside_the_canaries() -> None:
    result = audited(beside_records(), per_group=1_000)
    assert (result.passed, result.records) == (True, 60)
    assert audited(beside_records(), per_group=1_000, seed=1).tests == result.tests
    assert json.loads(json.dumps(result.to_json()))["purpose"] == "statistics"


# Bugs


def _everybody_whole(self: Any, cells: Any, weights: Any) -> Any:
    return _CONTRIBUTIONS(self, cells, np.where(weights > 0.0, 1.0, 0.0))


def _noise_of_s(self: Any, noise_multiplier: float, norm: float, randomness: Any) -> Any:
    return _RELEASE(self, noise_multiplier, 1.0, randomness)


def _less_noise(self: Any, noise_multiplier: float, norm: float, randomness: Any) -> Any:
    return _RELEASE(self, 0.9 * noise_multiplier, norm, randomness)


def _same_noise(self: Seeded, *key: str | int) -> Seeded:
    return _CHILD(self, *[0 if place == 1 and key[0] == "round" else part for place, part in enumerate(key)])


_CONTRIBUTIONS, _RELEASE = exact_sums.ExactSums.contributions, exact_sums.ExactSums.release
_CHILD = Seeded.child

BUGS: Mapping[str, tuple[Any, str, Any]] = {
    "weights not applied": (exact_sums.ExactSums, "contributions", _everybody_whole),
    "noise of s in place of s·L": (exact_sums.ExactSums, "release", _noise_of_s),
    "noise of 0.9 s": (exact_sums.ExactSums, "release", _less_noise),
    "the same noise in every round": (Seeded, "child", _same_noise),
}


@contextmanager
def bug(name: str) -> Iterator[None]:
    target, attribute, broken = BUGS[name]
    with mock.patch.object(target, attribute, broken):
        yield


@pytest.mark.parametrize("name", BUGS)
def test_seeded_bugs_are_found(name: str) -> None:
    with bug(name):
        result = audited(per_group=30_000 if name == "noise of 0.9 s" else 2_000)
    assert not result.conforms
    assert "DOES NOT CONFORM" in result.verdict()[-1]


@pytest.mark.parametrize("name", ["weights not applied", "noise of s in place of s·L"])
def test_seeded_bugs_are_found_beside_records(name: str) -> None:
    with bug(name):
        assert not audited(beside_records(), per_group=1_000).conforms


def test_weights_that_are_not_applied_are_named_by_group() -> None:
    with bug("weights not applied"):
        suspects = {test.name for test in audited().suspects}
    assert {"releases ε = 0.5", "releases ε = 2"} <= suspects
    assert not {"noise", "releases ε = 8"} & suspects


def test_a_price_of_s_in_place_of_s_over_w_is_found() -> None:
    """Everybody has weight 1, at the price that s has for a generous record: the promise is broken where it is not."""

    def at_s(public: Any, ids: Any, allowed: Any) -> Any:
        most = np.full(len(ids), 8.0)
        return assign_allowed(public, ids, replace(allowed, lifetime=most, amount=most))

    result = audited(RequestSubject(asked(), planner=at_s), per_group=20_000)
    assert result.conforms
    assert [group.epsilon for group in result.broken] == [0.5, 2.0]
    assert result.groups[0].bound.epsilon > 1.0
    few = audited(RequestSubject(asked(), planner=at_s), per_group=200)
    assert "BROKEN PROMISE: records that allow ε = 2: the plan gives them w = 1, which costs ε ≥ " in few.verdict()[1]


def test_a_floor_from_private_accounts_is_found() -> None:
    """Half of the silo's records are above the floor, whatever they allow: a record's weight depends on the others."""

    def from_accounts(public: Any, ids: Any, allowed: Any) -> Any:
        low = allowed.amount < np.median(allowed.amount)
        return assign_allowed(public, ids, replace(allowed, amount=np.where(low, 0.0, allowed.amount)))

    groups = (4.0, 8.0)
    generous = replace(beside_records("everyone", (6.0, 7.0)), planner=from_accounts)
    assert audited(beside_records("everyone", (6.0, 7.0)), groups=groups, per_group=200).passed
    result = audited(generous, groups=groups, per_group=200)
    assert [test.name for test in result.suspects] == ["purity ε = 4"]
    assert not result.passed


# Intervals


def answered(budgets: float) -> tuple[Any, list[NoisyEstimate]]:
    """What records with such a budget answer, and the estimates."""
    terms = RequestTerms(1e-3)
    inquiry = Inquiry((MEAN,), "representative")
    columns = Columns.of_arrays({"x": np.linspace(0.0, 10.0, 40)}, ranges={"x": (0.0, 10.0)})
    public = terms.plan(inquiry.request, 2.0)
    silo = request_silo("a", public, 40, source=ColumnSource(columns), epsilon=budgets)  # type: ignore[arg-type]
    answers = ask(inquiry, public, [silo], seed=1)
    return answers, answers.estimates()


def test_intervals_are_made_of_released_numbers_alone() -> None:
    """The same released numbers give the same interval, whatever records and budgets answered last."""
    answers, before = answered(5.0)
    _, other = answered(0.05)
    assert other != before
    assert answers.estimates() == before


def test_an_interval_from_private_counts_is_found() -> None:
    """The control of the test above: Σw² as the silo knows it, which would make intervals narrower."""
    seen: list[float] = []
    run = sums.SumsWork.run

    def watched(self: Any, plan: Any, *more: Any) -> Any:
        seen.append(float((plan.q**2).sum()))
        return run(self, plan, *more)

    private = mock.patch.object(Noise, "squared_weights", lambda self, weights, error: np.full_like(weights, seen[-1]))
    with mock.patch.object(sums.SumsWork, "run", watched), private:
        answers, before = answered(5.0)
        answered(0.05)
        assert answers.estimates() != before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RequestSubject(make_public()), "this plan trains"),
        (lambda: RequestSubject(asked(), budgets=np.ones(3)), "or neither"),
    ],
)
def test_nonsense_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
