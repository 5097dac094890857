"""The outlook of a run, from real ledgers: who takes part, who does not and why, and how many more runs fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import BudgetTable, Ledger, PublicPlan, Schedule
from rpdp.ledger.inspection.outlook import Obstacle, record_outlooks
from rpdp.planning import LEAST_SHARE, Allowance, MeasureSpec, Request, assign_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rpdp.budgets import AccountKind
    from rpdp.ledger.inspection.outlook import Outlook, RecordOutlooks
    from rpdp.planning import Purpose

LIFETIME_DELTA = 1e-3
SIZE = 100
BUDGETS = BudgetTable([f"r{row}" for row in range(SIZE)], np.resize([0.3, 1.0, 1.0, 5.0], SIZE))
FIFTH = Allowance(share=0.2)
KINDS = pytest.mark.parametrize("account", ["sums", "renyi"])


def make_public(sigma: float = 4.0, rounds: int = 6) -> PublicPlan:
    return PublicPlan(
        Schedule(rounds, 5, participations=4),
        noise_multiplier=sigma,
        delta=1e-4,
        clip_norm=1.0,
        normaliser=64.0,
        weights=1.0,
    )


def counts(sigma: float) -> PublicPlan:
    """A plan of an evaluation."""
    request = Request("representative", (MeasureSpec("count", 1),))
    return PublicPlan.of_request(request, noise_multiplier=sigma, delta=1e-4, purpose="evaluation")


PUBLIC = make_public()
"""One for all tests: its tables are made once."""


@pytest.fixture
def ledger(tmp_path: Path, account: AccountKind) -> Iterator[Ledger]:
    path = tmp_path / "ledger.db"
    with Ledger.create(path, BUDGETS, kind="production", lifetime_delta=LIFETIME_DELTA, account=account) as opened:
        yield opened


def records(ledger: Ledger, allowance: Allowance = FIFTH, public: PublicPlan = PUBLIC) -> RecordOutlooks:
    return record_outlooks(ledger, BUDGETS, public, allowance, LIFETIME_DELTA)


def outlook(ledger: Ledger, allowance: Allowance = FIFTH, public: PublicPlan = PUBLIC) -> Outlook:
    return records(ledger, allowance, public).summary("north", 2)


def holds(ledger: Ledger, run: str, allowance: Allowance = FIFTH, public: PublicPlan = PUBLIC) -> None:
    """Hold a run; it is free again if it is cancelled."""
    allowed = ledger.left(BUDGETS, LIFETIME_DELTA, allowance)
    ledger.reserve(run, assign_allowed(public, BUDGETS.ids, allowed), None, allowance)


def books(ledger: Ledger, run: str, allowance: Allowance = FIFTH, public: PublicPlan = PUBLIC) -> None:
    """Hold a run and charge its first round, from which on it is spent."""
    holds(ledger, run, allowance, public)
    ledger.charge(run, 1, lambda: True, lambda: (1, 2, 3, 4))


@KINDS
def test_a_fresh_a_half_used_and_a_used_up_ledger(ledger: Ledger) -> None:
    seen = []
    for number in range(7):
        seen.append(outlook(ledger))
        books(ledger, f"run {number}")
    fresh, half, last, rest, used = seen[0], seen[2], seen[4], seen[5], seen[6]
    assert (fresh.in_full, fresh.reduced, fresh.left_out, fresh.runs_in_full) == (SIZE, 0, 0, 5)
    assert fresh.signal_to_noise == fresh.unused_signal_to_noise > 1.0
    assert (half.in_full, half.runs_in_full, half.signal_to_noise) == (SIZE, 3, fresh.signal_to_noise)
    assert (last.in_full, last.runs_in_full) == (SIZE, 1)
    assert rest.in_full == rest.runs_in_full == 0
    assert {**rest.why_left_out, **rest.why_reduced} == {"used up by earlier runs": SIZE}
    assert used.signal_to_noise < 0.2 * fresh.signal_to_noise
    assert used.unused_signal_to_noise == fresh.unused_signal_to_noise
    assert [one.runs_above_floor for one in seen] == sorted((one.runs_above_floor for one in seen), reverse=True)
    is_counted = [one.runs_above_floor == 0 for one in seen]
    assert is_counted == [one.is_noise for one in seen]
    assert is_counted[-1]


@KINDS
def test_what_is_predicted_for_a_run_is_what_the_run_gets(ledger: Ledger) -> None:
    """Run after run: the plan of the outlook is the plan that is held; the count of runs in full comes true."""
    promised = outlook(ledger).runs_in_full
    for number in range(promised):
        found = records(ledger)
        assert not found.reduced.any()
        assert not found.left_out.any()
        books(ledger, f"run {number}")
        booked = ledger.resume(f"run {number}", BUDGETS.ids)
        np.testing.assert_array_equal(booked.q, found.plan.q)
    assert (records(ledger).reduced | records(ledger).left_out).all()


@pytest.mark.parametrize("account", ["renyi"])
def test_every_record_has_its_own_reason(ledger: Ledger) -> None:
    ledger.withdraw(["r1", "r2"])
    ledger.lower_budgets(["r0"], 1e-3)  # as a Rényi account it allows nothing: δ alone costs more
    books(ledger, "spent", Allowance(share=0.5))
    holds(ledger, "waits", Allowance(share=0.5))
    found = records(ledger)
    expected = [Obstacle.TOO_SMALL, Obstacle.WITHDRAWN, Obstacle.WITHDRAWN]
    assert found.reasons[:3].tolist() == expected
    assert (found.reasons[3:] == Obstacle.HELD).all()
    seen = found.summary("north")
    assert seen.in_full == 0
    names = {*seen.why_left_out, *seen.why_reduced}
    counts = {name: seen.why_left_out.get(name, 0) + seen.why_reduced.get(name, 0) for name in names}
    assert counts == {"held by another run": 97, "withdrawn": 2, "budget too small for this plan": 1}
    assert seen.missing == seen.left_out - 1
    ledger.cancel("waits", by="steward", reason="not needed")
    assert outlook(ledger).in_full == 97


@KINDS
def test_what_is_reserved_for_other_purposes_is_named(ledger: Ledger) -> None:
    kept = Allowance(share=0.5, reserved={"evaluation": 0.5})
    books(ledger, "training", kept)
    found = outlook(ledger, kept)
    assert found.in_full == 0
    assert {**found.why_left_out, **found.why_reduced} == {"reserved for other purposes": SIZE}
    evaluation = Allowance(share=0.5, purpose="evaluation", reserved={"evaluation": 0.5})
    assert outlook(ledger, evaluation, counts(4.0)).in_full == SIZE


@KINDS
def test_a_hold_for_a_purpose_with_a_reserve_frees_nothing_for_others(ledger: Ledger) -> None:
    """What an evaluation holds of its own reserve would stay reserved if it were cancelled."""
    reserved: dict[Purpose, float] = {"evaluation": 0.5}
    holds(
        ledger,
        "evaluation",
        Allowance(share=0.5, purpose="evaluation", reserved=reserved),
        counts(4.0),
    )
    books(ledger, "training", Allowance(share=0.5, reserved=reserved))
    found = outlook(ledger, Allowance(share=0.5, reserved=reserved))
    assert "held by another run" not in {**found.why_left_out, **found.why_reduced}


@KINDS
def test_a_reader_sees_the_same_and_an_expired_hold_counts_as_ended(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = ledger.left(BUDGETS, LIFETIME_DELTA, FIFTH)
    ledger.reserve("waits", assign_allowed(PUBLIC, BUDGETS.ids, allowed), ledger.clock() + 3600.0, FIFTH)
    here = outlook(ledger, Allowance(share=1.0))
    assert {**here.why_left_out, **here.why_reduced} == {"held by another run": SIZE - here.in_full}
    assert here.in_full < SIZE
    with Ledger.read(ledger.files.database) as reader:
        assert outlook(reader, Allowance(share=1.0)) == here
        later = reader.clock() + 7200.0
        monkeypatch.setattr(reader, "clock", lambda: later)
        assert outlook(reader, Allowance(share=1.0)).in_full == SIZE
    assert [one.state for one in ledger.status().runs] == ["held"]  # reading changed nothing


@pytest.mark.parametrize("account", ["renyi"])
def test_the_words(ledger: Ledger) -> None:
    ledger.withdraw(["r1"])
    first, second, third = outlook(ledger).lines()
    assert first == ("silo north: 99 of 100 records can take part in full, 0 reduced, 1 not at all (1 withdrawn)")
    assert second.startswith("silo north: signal to noise Σq/σ ")
    assert "below the floor" not in second
    assert third == (
        "silo north: runs like this one that fit, this one included: 5 in full, 5 above the floor of the signal; the "
        "policy admits 2 more runs"
    )
    books(ledger, "everything", Allowance(share=1.0))
    books(ledger, "the rest", Allowance(share=1.0))
    used = outlook(ledger)
    assert used.is_noise
    assert used.run_signal < used.floor == LEAST_SHARE * used.unused_run_signal
    assert used.lines()[1].endswith(f"in the whole run, below the floor of {used.floor:.3g}: the run would be noise")
    assert used.facts()["is_noise"] is True
    assert "used up by earlier runs" in used.lines()[0]


@pytest.mark.parametrize("account", ["renyi"])
def test_records_in_the_plan_of_the_outlook_show_only_counts(ledger: Ledger) -> None:
    assert "0.3" not in repr(records(ledger))


@KINDS
def test_looking_past_a_hold_does_not_free_it(ledger: Ledger) -> None:
    """What would be free without it is looked at in a copy: the ledger still counts the hold as taken."""
    holds(ledger, "waits", Allowance(share=1.0))
    before = ledger.left(BUDGETS, LIFETIME_DELTA)
    seen = ledger.silo_accounts(BUDGETS, LIFETIME_DELTA, without=["waits"]).allowances(Allowance(share=1.0))
    assert (seen.amount > before.amount).all()
    outlook(ledger)
    np.testing.assert_array_equal(ledger.left(BUDGETS, LIFETIME_DELTA).amount, before.amount)
    assert ledger.verify().is_good
