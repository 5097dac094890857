"""A silo with a ledger under it, and a server that repeats, reorders and invents announcements."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpdp import BudgetTable, PublicPlan
from rpdp.errors import PrivacyRefusal
from rpdp.federation import Announcement, Policy, Silo
from rpdp.ledger import Ledger
from rpdp.planning import assign_allowed
from rpdp.sampling import Randomness, Secure, Seeded
from rpdp.tasks.models.losses import binary_loss
from tests.federation.world import (
    FEATURES,
    admit,
    announced,
    make_ids,
    make_model,
    make_public,
    make_records,
    make_silo,
)
from tests.ledger.small import LIFETIME_DELTA

ANNOUNCEMENTS = 10_000
ROUNDS = 40


@pytest.fixture
def public() -> PublicPlan:
    return make_public(rounds=ROUNDS, local_steps=1, participation=0.5)


def silo_with(path: Path, public: PublicPlan, kind: type[Silo] = Silo) -> Silo:
    table = BudgetTable(make_ids(12, "a"), [1.0] * 12)
    ledger = Ledger.create(path / "ledger.db", table, kind="production", lifetime_delta=LIFETIME_DELTA)
    silo = make_silo("a", public, account=ledger, kind=kind, planner=assign_allowed)
    admit(silo, public, randomness=Secure())
    return silo


def ledger_of(silo: Silo) -> Ledger:
    assert isinstance(silo.account, Ledger)
    return silo.account


def wrong(public: PublicPlan, chance: random.Random) -> Announcement:
    """Another run, plan, round or model than was admitted."""
    good = announced(public, chance.randint(1, ROUNDS))
    return chance.choice(
        [
            replace(good, run="another"),
            replace(good, plan="0" * 64),
            replace(good, round=chance.choice([0, -3, ROUNDS + 1, 10**9])),
            replace(good, values=torch.zeros(FEATURES + 2)),
            replace(good, values=torch.full((FEATURES + 1,), torch.nan)),
        ]
    )


def played(silo: Silo, public: PublicPlan) -> dict[int, bytes | None]:
    """All but the last rounds, in order; round 5 is missed."""
    answers = {}
    for number in range(1, ROUNDS - 4):
        if number != 5:
            update = silo.answer(announced(public, number))
            answers[number] = None if update is None else update.to_bytes()
    return answers


def test_ten_thousand_repeated_reordered_and_foreign_announcements(tmp_path: Path, public: PublicPlan) -> None:
    silo = silo_with(tmp_path, public)
    first = played(silo, public)
    before = (silo.account.status(), ledger_of(silo).chain.head)
    chance = random.Random(3)  # noqa: S311
    for _ in range(ANNOUNCEMENTS):
        if chance.random() < 0.3:
            with pytest.raises(PrivacyRefusal):
                silo.answer(wrong(public, chance))
            continue
        number = chance.randint(1, ROUNDS - 5)
        update = silo.answer(announced(public, number, values=torch.randn(FEATURES + 1)))
        assert (None if update is None else update.to_bytes()) == first.get(number)
    assert (silo.account.status(), ledger_of(silo).chain.head) == before
    assert any(first.values())


def sat_out_and_answered(silo: Silo, public: PublicPlan, count: int) -> int:
    """Announces rounds again that were sat out; how many are answered with an update."""
    first = played(silo, public)
    sat_out = [number for number, answer in first.items() if answer is None] + [5]
    assert len(sat_out) > 1
    chance = random.Random(4)  # noqa: S311
    return sum(silo.answer(announced(public, chance.choice(sat_out))) is not None for _ in range(count))


def test_ten_thousand_announcements_of_rounds_that_were_sat_out(tmp_path: Path, public: PublicPlan) -> None:
    assert sat_out_and_answered(silo_with(tmp_path, public), public, ANNOUNCEMENTS) == 0


class Redrawing(Silo):
    """The control: it flips a new coin for a round that it sat out."""

    def begin(self, announcement: Announcement) -> object:  # type: ignore[override]
        stored = super().begin(announcement)
        return Secure().coin(0.5) if stored is False else stored

    def claim(self, announcement: Announcement) -> None:
        """It asks nobody whether it may train."""

    def finish(self, trained):  # type: ignore[no-untyped-def]
        return trained.update


def test_a_silo_that_redraws_its_coin_is_caught(tmp_path: Path, public: PublicPlan) -> None:
    assert sat_out_and_answered(silo_with(tmp_path, public, Redrawing), public, 200) > 50


def test_a_round_charged_and_not_finished_is_never_trained_again(tmp_path: Path) -> None:
    public = make_public(rounds=3, local_steps=1)
    silo = silo_with(tmp_path, public)
    assert silo.begin(announced(public, 1)) is True  # and then the silo stops
    for _ in range(3):
        assert silo.answer(announced(public, 1)) is None
    assert silo.answer(announced(public, 2)) is not None
    ledger_of(silo).close()
    with Ledger.open(tmp_path / "ledger.db") as again:
        run = again.status().runs[0]
        assert (run.joined, run.released) == ((1, 2), (2,))


@pytest.mark.parametrize(("kind", "randomness"), [("production", Seeded(1)), ("simulation", Secure())])
def test_seeded_runs_and_production_ledgers_do_not_mix(
    tmp_path: Path, public: PublicPlan, kind: str, randomness: Randomness
) -> None:
    table = BudgetTable(make_ids(12, "a"), [1.0] * 12)
    ledger = Ledger.create(tmp_path / "ledger.db", table, kind=kind, lifetime_delta=LIFETIME_DELTA)  # type: ignore[arg-type]
    silo = make_silo("a", public, account=ledger)
    with pytest.raises(PrivacyRefusal, match="randomness with a"):
        admit(silo, public, randomness=randomness)
    assert ledger.status().runs == ()


def test_withdrawn_in_the_middle_of_a_round(tmp_path: Path) -> None:
    """Between two local steps: drawn in all steps before, in none after."""
    public = make_public(rounds=1, local_steps=20, noise_multiplier=50.0)  # so that all can afford every step
    table = BudgetTable(make_ids(12, "a"), [1.0] * 12)
    ledger = Ledger.create(tmp_path / "ledger.db", table, kind="production", lifetime_delta=LIFETIME_DELTA)
    silo = make_silo("a", public, account=ledger, records=make_records(12), planner=assign_allowed)
    admit(silo, public, randomness=Secure())
    asked = 0
    whom = ledger.switched_off

    def switched_off(run: str | None = None) -> object:
        nonlocal asked
        if asked == 7:
            with Ledger.read(tmp_path / "ledger.db") as steward:
                steward.withdraw(["a3"])
        asked += 1
        return whom(run)

    ledger.switched_off = switched_off  # type: ignore[method-assign, assignment]
    assert silo.begin(announced(public, 1)) is True
    draws = silo.train(announced(public, 1)).draws
    assert draws.tolist() == [20, 20, 20, 7] + [20] * 8


def test_two_runs_share_one_lifetime(tmp_path: Path) -> None:
    """The real planner, twice; the second run gets what the first has left, the third nothing."""
    public = make_public(rounds=2, local_steps=2, noise_multiplier=4.0)
    table = BudgetTable(make_ids(12, "a"), [1.0, 0.2] * 6)
    delta = 2 * public.delta
    ledger = Ledger.create(tmp_path / "ledger.db", table, kind="production", lifetime_delta=delta, account="sums")
    policy = replace(Policy.of(public), max_runs=3, lifetime_delta=delta, max_share_per_run=0.5)
    drawn = []
    for run in ("one", "two", "three"):
        silo = Silo("a", make_records(12), table, policy=policy, account=ledger)
        plan = silo.admit(run, public, make_model(), binary_loss, Secure())
        drawn.append(int((plan.q > 0.0).sum()))
    assert drawn[0] == 12
    assert drawn[2] == 0
    assert ledger.verify().is_good
    for name in ("a0", "a1"):
        account = ledger.explain(name)
        assert account.spent_epsilon is not None
        assert account.spent_epsilon <= account.epsilon
