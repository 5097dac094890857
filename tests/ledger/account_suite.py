"""What every account must do, in memory or durable: a subclass says how one is made, and passes all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable, PublicPlan, Schedule, SiloPlan
from rpdp.errors import PlanError, PrivacyRefusal
from rpdp.ledger import Account, Charge, RunStatus
from tests.federation.world import make_ids, make_public, silo_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

RECORDS = 4
DELTA = 1e-3
LIFETIME_DELTA = 2.5e-3


def table(epsilon: ArrayLike = (0.3, 1.0, 2.0, 5.0), delta: ArrayLike | None = None) -> BudgetTable:
    return BudgetTable(make_ids(RECORDS), epsilon, delta=delta)


def plan(public: PublicPlan | None = None, *, cost: ArrayLike = 0.1, q: ArrayLike = 0.5) -> SiloPlan:
    """A plan for the records of `table`."""
    public = make_public(rounds=5, delta=DELTA) if public is None else public
    return silo_plan(public, table().ids, table().epsilon.copy(), q, cost=cost)


class Coin:
    """A coin that shows the given faces and counts how often it was thrown."""

    def __init__(self, *faces: bool) -> None:
        self._faces = list(faces)
        self.thrown = 0

    def __call__(self) -> bool:
        self.thrown += 1
        return self._faces.pop(0) if self._faces else True


class Rounds:
    """Draws the given rounds, and counts how often it is asked to."""

    def __init__(self, *rounds: int) -> None:
        self._rounds = rounds
        self.times = 0

    def __call__(self) -> tuple[int, ...]:
        self.times += 1
        return self._rounds


def never() -> bool:
    pytest.fail("a coin was drawn that must not be drawn")


class AccountSuite(ABC):
    """The contract of `Account`."""

    @abstractmethod
    def make(self, records: int = RECORDS) -> Account:
        """A fresh account."""

    @abstractmethod
    def switch_off(self, account: Account, positions: NDArray[np.int64]) -> None:
        """Withdraw these records, by whatever way this account has."""

    def reserved(self, plan: SiloPlan, expires: float | None = None) -> Account:
        account = self.make()
        account.reserve("run", plan, expires)
        return account

    # Reservations

    def test_nothing_is_used_at_first(self) -> None:
        left = self.make().left(table(), LIFETIME_DELTA)
        assert left.epsilon.tolist() == [0.3, 1.0, 2.0, 5.0]
        assert left.delta is not None
        assert left.delta.tolist() == [LIFETIME_DELTA] * RECORDS

    def test_left_is_lifetime_minus_all_reservations(self) -> None:
        account = self.reserved(plan(cost=[0.1, 0.4, 0.5, 3.0]))
        account.reserve("another", plan(cost=[0.1, 0.0, 0.25, 1.0]), None)
        left = account.left(table(), LIFETIME_DELTA)
        np.testing.assert_allclose(left.epsilon, [0.1, 0.6, 1.25, 1.0], rtol=1e-12)
        assert left.delta is not None
        np.testing.assert_allclose(left.delta, LIFETIME_DELTA - 2 * DELTA, rtol=1e-12)

    def test_left_is_never_negative(self) -> None:
        """0.3 − (0.1 + 0.2) is below zero in floating point; so is a budget that was lowered after a run."""
        account = self.reserved(plan(cost=0.1))
        account.reserve("another", plan(cost=0.2), None)
        assert 0.3 - (0.1 + 0.2) < 0.0
        left = account.left(table(), 2 * DELTA)
        assert left.epsilon[0] == 0.0
        assert left.delta is not None
        assert (left.delta >= 0.0).all()
        lowered = account.left(table([0.01] * RECORDS), DELTA / 2)
        assert lowered.epsilon.tolist() == [0.0] * RECORDS
        assert lowered.delta is not None
        assert lowered.delta.tolist() == [0.0] * RECORDS

    def test_records_that_sit_out_pay_nothing(self) -> None:
        left = self.reserved(plan(q=[0.5, 0.0, 0.5, 0.0])).left(table(), LIFETIME_DELTA)
        assert left.epsilon[[1, 3]].tolist() == [1.0, 5.0]
        assert left.delta is not None
        assert (left.delta < LIFETIME_DELTA).tolist() == [True, False, True, False]

    def test_a_record_with_its_own_delta(self) -> None:
        left = self.reserved(plan()).left(table(delta=[1e-3, 2e-3, 3e-3, 0.5]), LIFETIME_DELTA)
        assert left.delta is not None
        np.testing.assert_allclose(left.delta, [0.0, 1e-3, 2e-3, 0.499], rtol=1e-12)

    def test_a_run_is_reserved_once(self) -> None:
        account = self.reserved(plan())
        before = account.left(table(), LIFETIME_DELTA).epsilon
        with pytest.raises(PrivacyRefusal, match="'run' was admitted before"):
            account.reserve("run", plan(cost=0.05), None)
        assert account.left(table(), LIFETIME_DELTA).epsilon.tolist() == before.tolist()
        assert len(account.status().runs) == 1

    def test_a_plan_for_other_records_is_refused(self) -> None:
        account = self.make(RECORDS + 1)
        with pytest.raises(PlanError, match="the plan has 4 records and the account has 5"):
            account.reserve("run", plan(), None)
        assert account.status().runs == ()

    def test_nothing_is_refunded(self) -> None:
        """Whatever the coins say, however early the run ends: what was reserved is spent."""
        account = self.reserved(plan())
        before = account.left(table(), LIFETIME_DELTA)
        account.charge("run", 1, Coin(False))
        account.charge("run", 3, Coin(True))
        account.reserve("next", plan(q=0.0), None)
        after = account.left(table(), LIFETIME_DELTA)
        assert after.epsilon.tolist() == before.epsilon.tolist()
        assert before.delta is not None
        assert after.delta is not None
        assert after.delta.tolist() == before.delta.tolist()

    # Charges

    def test_rounds_in_order(self) -> None:
        account, coin = self.reserved(plan()), Coin(True, False, True, False, True)
        charges = [account.charge("run", number, coin) for number in range(1, 6)]
        assert charges == [Charge(number, number % 2 == 1, is_new=True) for number in range(1, 6)]
        assert coin.thrown == 5
        assert account.status().runs[0].joined == (1, 3, 5)
        assert account.status().runs[0].announced == 5

    @pytest.mark.parametrize("face", [True, False])
    def test_the_same_round_again_gets_the_same_answer_and_no_coin(self, face: bool) -> None:
        account, coin = self.reserved(plan()), Coin(face)
        assert account.charge("run", 1, coin) == Charge(1, face, is_new=True)
        for _ in range(3):
            assert account.charge("run", 1, never) == Charge(1, face, is_new=False)
        account.charge("run", 2, Coin(not face))
        assert account.charge("run", 1, never) == Charge(1, face, is_new=False)
        assert coin.thrown == 1

    def test_rounds_that_were_missed_are_charged_as_sat_out(self) -> None:
        account, coin = self.reserved(plan()), Coin(True)
        assert account.charge("run", 4, coin) == Charge(4, True, is_new=True)
        assert coin.thrown == 1
        assert account.status().runs[0].announced == 4
        for missed in (1, 2, 3):
            assert account.charge("run", missed, never) == Charge(missed, False, is_new=False)
        assert account.charge("run", 5, Coin(True)).is_new

    @pytest.mark.parametrize("number", [6, 7, 0, -1])
    def test_rounds_that_were_not_planned_are_refused(self, number: int) -> None:
        account = self.reserved(plan())
        account.charge("run", 2, Coin(True))
        before = account.status()
        with pytest.raises(PrivacyRefusal, match=f"round {number} of run 'run' is not one of the 5"):
            account.charge("run", number, never)
        assert account.status() == before

    @pytest.mark.parametrize(
        "ask",
        [
            lambda account: account.charge("other", 1, never),
            lambda account: account.store("other", 1, b"update"),
            lambda account: account.stored("other", 1),
        ],
        ids=["charge", "store", "stored"],
    )
    def test_runs_that_were_not_admitted_are_refused(self, ask: Callable[[Account], Any]) -> None:
        with pytest.raises(PrivacyRefusal, match="'other' was never admitted"):
            ask(self.reserved(plan()))

    def test_runs_do_not_mix(self) -> None:
        account = self.reserved(plan())
        account.reserve("second", plan(), None)
        account.charge("run", 3, Coin(True))
        assert account.charge("second", 1, Coin(False)) == Charge(1, False, is_new=True)
        account.store("run", 3, b"one")
        assert account.stored("second", 3) is None
        assert [run.announced for run in account.status().runs] == [3, 1]

    def test_after_the_cap_a_silo_sits_out(self) -> None:
        """Heads count towards the cap whether or not an update was finished."""
        public = make_public(rounds=6, participation=0.5, max_participations=2)
        account = self.reserved(plan(public))
        joined = [account.charge("run", number, Coin(number != 2)).joined for number in range(1, 7)]
        assert joined == [True, False, True, False, False, False]
        assert account.status().runs[0].announced == 6
        assert account.charge("run", 5, never) == Charge(5, False, is_new=False)

    def test_exactly_the_drawn_rounds_are_joined_and_no_coin_is_thrown(self) -> None:
        public = make_public(rounds=6, participations=3)
        account, drawn = self.reserved(plan(public)), Rounds(2, 3, 6)
        joined = [number for number in range(1, 7) if account.charge("run", number, never, drawn).joined]
        assert joined == [2, 3, 6]
        assert drawn.times == 1  # with the first charge
        assert public.schedule == Schedule(6, 3, participations=3)

    # Outbox

    def test_an_update_is_stored_once_and_comes_back_unchanged(self) -> None:
        account, payload = self.reserved(plan()), bytes(range(256)) * 3
        account.charge("run", 1, Coin(True))
        assert account.stored("run", 1) is None
        account.store("run", 1, payload)
        with pytest.raises(PrivacyRefusal, match="round 1"):
            account.store("run", 1, b"another")
        account.charge("run", 2, Coin(True))
        assert account.stored("run", 1) == payload
        assert account.stored("run", 2) is None
        assert account.status().runs[0].released == (1,)

    @pytest.mark.parametrize("number", [1, 2, 3, 6])
    def test_no_update_without_a_charged_and_joined_round(self, number: int) -> None:
        account = self.reserved(plan())
        account.charge("run", 2, Coin(False))  # 1 was missed, 2 sat out, 3 not announced, 6 not planned
        with pytest.raises(PrivacyRefusal, match=f"round {number}"):
            account.store("run", number, b"update")
        assert account.stored("run", number) is None

    # Withdrawals and status

    def test_withdrawn_records_stay_withdrawn_and_have_nothing_left(self) -> None:
        account = self.make()
        assert account.switched_off().size == 0
        self.switch_off(account, np.array([2]))
        self.switch_off(account, np.array([0, 2]))
        assert sorted(account.switched_off().tolist()) == [0, 2]
        assert account.left(table(), LIFETIME_DELTA).epsilon.tolist() == [0.0, 1.0, 0.0, 5.0]

    def test_status(self) -> None:
        account, made = self.make(), plan()
        assert account.status().records == RECORDS
        assert account.status().is_simulation == account.is_simulation
        account.reserve("run", made, None)
        account.charge("run", 1, Coin(True))
        account.charge("run", 2, Coin(False))
        account.store("run", 1, b"update")
        assert account.status().runs == (RunStatus("run", made.fingerprint, 5, 2, (1,), (1,)),)
