"""No record over budget, computed again from a run's log with an accountant that did not make the plan.

The chain has three links: who was active in which announced rounds (the log), with which probability (the draws), and
what that costs (the other accountant). Each link is broken once, to see that the check notices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import stats

from rpdp import BudgetTable, PrivacyCurve, PublicPlan, Schedule
from rpdp.federation import Policy, RunResult, Silo, SiloView, simulate
from rpdp.planning import SiloPlan, assign_allowed
from rpdp.tasks.models.losses import binary_loss
from tests.federation.world import make_ids, make_model, make_public, make_records, make_silo

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LEVELS = np.array([0.5, 1.0, 3.0, 8.0])
Price = Callable[[PublicPlan, float, int], float]
"""From the public plan, q and the rounds a record was active in to its cost."""


@cache
def run(name: str) -> RunResult:
    """Two silos of 40 records each, ten of every budget."""
    public, estimator, _ = PLANS[name]

    def planner(*arguments: Any) -> SiloPlan:
        return assign_allowed(*arguments, estimator=estimator)

    silos = [
        Silo(
            name,
            make_records(40, seed),
            BudgetTable(make_ids(40, name), np.tile(LEVELS, 10)),
            policy=Policy.of(public),
            planner=planner,
        )
        for seed, name in enumerate(("a", "b"))
    ]
    return simulate(make_model(), binary_loss, silos, public, seed=5)


def overspending(result: RunResult, price: Price, *, q_factor: float = 1.0, to_the_end: bool = False) -> float:
    """The largest cost/ε of any record; the last two arguments falsify the log."""
    announced = len(result.rounds)
    least: dict[tuple[float, int], float] = {}  # the smallest budget behind each probability and number of rounds
    for view in result.silos.values():
        active = np.minimum(view.plan.active_rounds + to_the_end * announced, announced)
        chances = np.minimum(view.plan.q * q_factor, 1.0)
        for q, rounds, budget in zip(chances.tolist(), active.tolist(), np.tile(LEVELS, 10).tolist(), strict=True):
            least[q, rounds] = min(budget, least.get((q, rounds), budget))
    return max(price(result.public, q, rounds) / budget for (q, rounds), budget in least.items() if q > 0.0)


def by_the_other_curve(public: PublicPlan, q: float, rounds: int) -> float:
    """RDP plans priced by PLD. (PLD plans priced by RDP would prove nothing: its bounds are larger.)"""
    other = PrivacyCurve(
        public.schedule, noise_multiplier=public.noise_multiplier, delta=public.delta, accountant="pld"
    )
    return other.after(rounds).epsilon(q)


def by_dp_accounting(public: PublicPlan, q: float, rounds: int) -> float:
    """Google's PLD accountant, on a grid fine enough for costs of 0.5; it knows λ = 1 only."""
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(public.noise_multiplier))
    accountant = PLDAccountant(value_discretization_interval=5e-4)
    return float(accountant.compose(event, rounds * public.schedule.local_steps).get_epsilon(public.delta))


BY_PEER = "planned by PLD, priced by dp_accounting"
BY_FIT = "curve fit, planned by PLD, priced by dp_accounting"
PLANS: dict[str, tuple[PublicPlan, str, Price]] = {
    "planned by RDP, priced by PLD": (make_public(8, 5, participation=0.5), "certified", by_the_other_curve),
    BY_PEER: (
        make_public(8, 5, participation=1.0, accountant="pld"),
        "certified",
        by_dp_accounting,
    ),
    BY_FIT: (
        make_public(10, 5, participation=1.0, accountant="pld"),
        "scf",
        by_dp_accounting,
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_nobody_is_over_budget(name: str) -> None:
    result = run(name)
    assert len(result.rounds) == result.public.schedule.rounds
    assert 0.8 < overspending(result, PLANS[name][2]) <= 1.0
    assert [view.overdrawn for view in result.silos.values()] == [0, 0]


def test_larger_probabilities_would_be_caught() -> None:
    """The control: q 20 % above the plan overspends by the same check."""
    assert overspending(run(BY_PEER), by_dp_accounting, q_factor=1.2) > 1.1


def test_records_that_stay_too_long_would_be_caught() -> None:
    """The control for t_j: the curve fit's records, had they stayed to the end, overspend."""
    result = run(BY_FIT)
    assert any((view.plan.active_rounds < 10).any() for view in result.silos.values())
    assert overspending(result, by_dp_accounting, to_the_end=True) > 1.05


# Realised sampling

STEPS = 20
Q = np.tile([0.05, 0.1, 0.3, 0.6], 50)
FALSE_ALARM = 1e-6


def sampled(q: ArrayLike, last: ArrayLike | None = None) -> SiloView:
    """200 records over ten rounds of 20 steps, about half of them joined, seed 11."""
    public = make_public(10, STEPS, participation=0.5)
    silo = make_silo("a", public, 200, q=q, active_rounds=last)
    return simulate(make_model(), binary_loss, [silo], public, seed=11).silos["a"]


def fits(draws: NDArray[np.int64], trials: NDArray[np.int64], q: NDArray[np.float64]) -> bool:
    """Chi-square of binomial counts over all records, on both sides: neither too far from q nor suspiciously near."""
    some = trials > 0
    if draws[~some].any():
        return False
    expected = trials[some] * q[some]
    total = float((((draws[some] - expected) ** 2) / (expected * (1 - q[some]))).sum())
    low, high = stats.chi2(int(some.sum())).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    return bool(low < total < high)


def test_records_are_drawn_at_their_own_rates() -> None:
    """False alarm in 1e6; sampling at 1.2 q and sampling without chance are caught."""
    view = sampled(Q)
    trials = np.full(200, STEPS * len(view.joined))
    assert 0 < len(view.joined) < 10
    np.testing.assert_allclose(view.expected_draws, trials * Q)
    assert fits(view.draws, trials, Q)
    assert not fits(sampled(1.2 * Q).draws, trials, Q)
    assert not fits(np.round(trials * Q).astype(np.int64), trials, Q)


def test_records_with_a_last_round_are_drawn_until_then() -> None:
    last = np.repeat([0, 2, 5, 10], 50)
    view = sampled(Q, last)
    turns = np.array([sum(number <= end for number in view.joined) for end in last])
    assert len(set(turns.tolist())) >= 3
    np.testing.assert_allclose(view.expected_draws, turns * STEPS * Q)
    assert fits(view.draws, turns * STEPS, Q)
    assert not fits(sampled(Q, np.maximum(last, 5)).draws, turns * STEPS, Q)  # some drawn for longer: caught


def test_the_schedule_is_what_is_priced() -> None:
    """The plan's own curve and the log agree on the number of announced rounds; fewer joined rounds refund nothing."""
    result = run("planned by RDP, priced by PLD")
    for view in result.silos.values():
        assert len(view.joined) < len(result.rounds) == 8
        whole = result.public.curve.epsilon(view.plan.q)
        np.testing.assert_allclose(whole, view.plan.cost, rtol=1e-9)
    assert result.public.schedule == Schedule(8, 5, participation=0.5)
