"""One person in three hospitals with agents of their own: everything that they release together is within the budget.

The agents have production ledgers and secure randomness. Some runs are in one hospital only, and two overlap. What the
three ledgers booked is not believed: the probabilities of the person's record are composed, all runs of all agents, as
one mechanism by `dp_accounting`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from rpdp.ledger import Ledger
from tests.deployment.agent.scene import (
    LIFETIME_DELTA,
    Making,
    admission,
    announcement,
    opened,
    policy_of,
    public_plan,
    reason,
    status,
    told,
)
from tests.ledger.test_across_silos import Part, joint_epsilon

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp import PublicPlan
    from rpdp.deployment.agent.agent import Agent

EPSILON = 2.0
RUNS = (
    ("abc", {"rounds": 3, "local_steps": 2, "noise_multiplier": 1.5, "share": 0.4}),
    ("a", {"rounds": 2, "local_steps": 4, "noise_multiplier": 4.0, "share": 0.4}),
    ("b", {"rounds": 2, "local_steps": 1, "noise_multiplier": 1.0, "share": 0.5}),
    ("ac", {"rounds": 3, "local_steps": 2, "noise_multiplier": 3.0, "share": 1.0}),
    ("b", {"rounds": 1, "local_steps": 2, "noise_multiplier": 1.0, "share": 1.0}),
)


def plans(declared: int) -> list[tuple[str, PublicPlan]]:
    terms = {"silos_per_person": declared, "account": "renyi", "lifetime_delta": LIFETIME_DELTA}
    return [(members, public_plan(**settings, **terms)) for members, settings in RUNS]  # type: ignore[arg-type]


def hospital(folder: Path, name: str, declared: int) -> Making:
    """An agent whose first record is the person's; its ledger counts on so many silos."""
    limits = policy_of(
        plans(declared)[0][1],
        max_runs=10,
        max_rounds=3,
        max_local_steps=4,
        min_noise_multiplier=1.0,
        max_share_per_run=1.0,
    )
    made = Making(plans(declared)[0][1], name=name, epsilon=(EPSILON, 0.5), policy=limits)
    Ledger.create(
        folder / f"{name}.db",
        made.budgets,
        kind="production",
        lifetime_delta=LIFETIME_DELTA,
        silos_per_person=declared,
    ).close()
    return made


def goes_through(agents: dict[str, Agent], runs: list[tuple[str, str, PublicPlan]]) -> list[Part]:
    """All of these runs at the same time, round by round; what each agent releases of the person."""
    for run, members, public in runs:
        for name in members:
            assert told(agents[name], admission(public, run)).kind == "admitted"
    for number in range(1, 1 + max(public.schedule.rounds for _, _, public in runs)):
        for run, members, public in runs:
            for name in members if number <= public.schedule.rounds else "":
                assert told(agents[name], announcement(public, number, run=run)).kind == "update"
    parts = []
    for run, members, public in runs:
        for name in members:
            silo = agents[name].silo
            q = float(silo.account.resume(run, silo.budgets.ids).q[0])
            joined = len(status(agents[name], run).joined)
            assert joined == public.schedule.rounds
            parts.append(Part(q, public.noise_multiplier, joined * public.schedule.local_steps))
    return [part for part in parts if part.q > 0.0]


def released(folder: Path, declared: int) -> float:
    """The joint ε of the person: an upper bound if as many silos were declared as there are, else a lower bound."""
    with ExitStack() as stack:
        agents = {name: stack.enter_context(opened(folder, hospital(folder, name, declared))) for name in "abc"}
        runs = [(f"run-{number}", members, public) for number, (members, public) in enumerate(plans(declared))]
        parts = goes_through(agents, runs[:1])
        parts += goes_through(agents, runs[1:3])
        parts += goes_through(agents, runs[3:])
        assert len(parts) == sum(len(members) for members, _ in RUNS)
        for agent in agents.values():
            account = agent.silo.account
            assert isinstance(account, Ledger)
            assert account.verify().is_good
            assert 0.99 < account.balances(agent.silo.budgets.ids).share_used[0] <= 1.0
    return joint_epsilon(parts, LIFETIME_DELTA, is_upper=declared == 3)


def test_three_agents_together_stay_within_the_budget_of_a_person(tmp_path: Path) -> None:
    assert 0.4 * EPSILON < released(tmp_path, declared=3) <= EPSILON


def test_agents_that_count_on_one_silo_exceed_it_together(tmp_path: Path) -> None:
    """The control: every ledger is full, right and verified, and the person has spent more than ε."""
    assert released(tmp_path, declared=1) > 1.2 * EPSILON


@pytest.mark.parametrize("changes", [{"silos_per_person": 2}, {"silos_per_person": 1}, {"account": "sums"}])
def test_a_server_cannot_declare_fewer_silos_than_the_ledger_was_made_for(
    changes: dict[str, object], tmp_path: Path
) -> None:
    terms = {"silos_per_person": 3, "account": "renyi", "lifetime_delta": LIFETIME_DELTA}
    with opened(tmp_path, hospital(tmp_path, "a", 3)) as agent:
        asked = public_plan(3, 2, noise_multiplier=1.5, **{**terms, **changes})
        assert reason(told(agent, admission(asked))) == "policy"
        assert agent.silo.account.status().runs == ()
