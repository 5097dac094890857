"""What every account must do with holds, in memory or durable: hold, commit with the first charge, cancel, expire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from rpdp.errors import PrivacyRefusal, Reason
from tests.federation.world import make_public
from tests.ledger.account_suite import LIFETIME_DELTA, Coin, Rounds, never, plan, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.ledger import Account
    from rpdp.planning import Allowances

NOON = datetime(2030, 5, 3, 12, tzinfo=UTC).timestamp()
COSTS = [0.1, 0.7, 1.1, 0.3]
"""In floating point 0.1 + 0.2 − 0.2 is not 0.1: a return that subtracts is not exact."""


class Clock:
    """A wall clock that the test sets."""

    def __init__(self) -> None:
        self.time = NOON

    def __call__(self) -> float:
        return self.time


def left(account: Account) -> tuple[list[float], list[float]]:
    found: Allowances = account.left(table(), LIFETIME_DELTA)
    assert found.delta is not None
    return found.epsilon.tolist(), found.delta.tolist()


def state(account: Account, run: str = "run") -> str:
    return next(one.state for one in account.status().runs if one.run == run)


def reason(ask: Callable[[], Any]) -> Reason:
    """Why it is refused; a server is told nothing else."""
    with pytest.raises(PrivacyRefusal) as refusal:
        ask()
    return refusal.value.reason


class HoldSuite(ABC):
    """The contract of `Account` on holds."""

    @abstractmethod
    def make(self) -> Account:
        """A fresh account."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def account(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Account:
        made = self.make()
        monkeypatch.setattr(made, "clock", clock)
        return made

    def test_a_hold_counts_as_taken_and_the_first_charge_commits_it(self, account: Account) -> None:
        before = left(account)
        account.reserve("run", plan(cost=COSTS), NOON + 60)
        held = left(account)
        assert held != before
        assert (state(account), account.status().runs[0].expires) == ("held", "2030-05-03T12:01:00+00:00")
        account.charge("run", 1, Coin(False))
        assert state(account) == "committed"
        assert left(account) == held

    def test_cancelling_returns_all_of_it_exactly(self, account: Account) -> None:
        account.reserve("before", plan(cost=0.2), None)
        account.charge("before", 1, Coin(True))
        before = left(account)
        account.reserve("run", plan(cost=[0.1, 0.2, 0.7, 1.1], q=[0.5, 0.0, 1.0, 0.5]), NOON + 60)
        assert left(account) != before
        account.cancel("run")
        assert left(account) == before
        assert state(account) == "cancelled"
        for _ in range(3):
            account.cancel("run")  # again: a server whose answer was lost
        assert left(account) == before
        account.reserve("next", plan(cost=0.1), None)  # what was returned can be used
        assert account.charge("next", 1, Coin(True)).is_new

    @pytest.mark.parametrize("number", [1, 3])
    @pytest.mark.parametrize("face", [True, False])
    def test_after_the_first_charge_nothing_is_cancelled_or_expires(
        self, account: Account, clock: Clock, number: int, face: bool
    ) -> None:
        account.reserve("run", plan(cost=COSTS), NOON + 60)
        account.charge("run", number, Coin(face))
        spent = left(account)
        assert reason(lambda: account.cancel("run")) == Reason.CHARGED
        assert reason(lambda: account.cancel("run", by="steward", reason="a letter")) == Reason.CHARGED
        clock.time += 1000 * 86_400
        account.expire()
        assert (left(account), state(account)) == (spent, "committed")
        assert account.charge("run", number + 1, Coin(True)).is_new

    def test_a_cancelled_run_never_returns(self, account: Account) -> None:
        account.reserve("run", plan(cost=COSTS), NOON + 60)
        account.cancel("run")
        before = (left(account), account.status())
        asks: list[Callable[[], Any]] = [
            lambda: account.reserve("run", plan(cost=COSTS), NOON + 60),
            lambda: account.charge("run", 1, never),
            lambda: account.resume("run", table().ids),
            lambda: account.store("run", 1, b"update"),
            lambda: account.stored("run", 1),
        ]
        for ask in asks:
            assert reason(ask) == Reason.CANCELLED
        assert (left(account), account.status()) == before

    def test_an_unknown_run_is_not_cancelled(self, account: Account) -> None:
        account.reserve("run", plan(), None)
        before = account.status()
        assert reason(lambda: account.cancel("another")) == Reason.RUN
        assert account.status() == before
        account.reserve("another", plan(), None)  # and can be held later

    def test_a_hold_expires_at_its_time_and_not_before(self, account: Account, clock: Clock) -> None:
        before = left(account)
        account.reserve("run", plan(cost=COSTS), NOON + 60)
        clock.time = NOON + 59.9
        account.expire()
        assert state(account) == "held"
        clock.time = NOON + 60
        account.expire()
        assert (state(account), left(account)) == ("expired", before)

    def test_a_charge_after_the_expiry_is_refused_and_draws_no_coin(self, account: Account, clock: Clock) -> None:
        before = left(account)
        account.reserve("run", plan(cost=COSTS), NOON + 60)
        clock.time = NOON + 61
        assert reason(lambda: account.charge("run", 1, never)) == Reason.CANCELLED
        assert (state(account), left(account), account.status().runs[0].announced) == ("expired", before, 0)

    def test_a_clock_that_steps_back_does_not_revive_an_expired_hold(self, account: Account, clock: Clock) -> None:
        account.reserve("run", plan(cost=COSTS), NOON + 60)
        clock.time = NOON + 86_400
        account.expire()
        clock.time = NOON
        for ask in (lambda: account.charge("run", 1, never), lambda: account.reserve("run", plan(), None)):
            assert reason(ask) == Reason.CANCELLED
        account.cancel("run")  # ended already
        assert state(account) == "expired"

    def test_without_an_expiry_a_hold_stays(self, account: Account, clock: Clock) -> None:
        account.reserve("run", plan(), None)
        clock.time += 1000 * 86_400
        account.expire()
        assert state(account) == "held"
        assert account.charge("run", 1, Coin(True)).is_new

    def test_an_expired_hold_makes_room_for_the_next_plan(self, account: Account, clock: Clock) -> None:
        """Whoever writes next books the end of the hold first."""
        before = left(account)
        account.reserve("run", plan(cost=COSTS), NOON + 60)
        clock.time = NOON + 61
        assert left(account) == before
        assert state(account) == "expired"

    def test_exactly_k_rounds_are_drawn_with_the_first_charge_and_never_again(self, account: Account) -> None:
        """Whichever round that is: a silo that was away draws from all T rounds, too."""
        account.reserve("run", plan(make_public(rounds=6, participations=3)), NOON + 60)
        drawn = Rounds(1, 4, 6)
        assert not account.charge("run", 2, never, drawn).joined
        joined = [account.charge("run", number, never, Rounds(3, 5, 6)).joined for number in (1, 2, 3, 4, 5, 6)]
        assert joined == [False, False, False, True, False, True]
        assert drawn.times == 1

    def test_a_cancelled_run_has_drawn_no_rounds(self, account: Account) -> None:
        account.reserve("run", plan(make_public(rounds=6, participations=3)), NOON + 60)
        account.cancel("run")
        drawn = Rounds(1, 2, 3)
        assert reason(lambda: account.charge("run", 1, never, drawn)) == Reason.CANCELLED
        assert drawn.times == 0
