from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp.errors import InputError, PlanError, PrivacyRefusal
from rpdp.ledger import Account, MemoryAccount, PublicHead
from tests.ledger.account_suite import RECORDS, AccountSuite, plan

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TestMemoryAccount(AccountSuite):
    def make(self, records: int = RECORDS) -> Account:
        return MemoryAccount(records)

    def switch_off(self, account: Account, positions: NDArray[np.int64]) -> None:
        assert isinstance(account, MemoryAccount)
        account.switch_off(positions)

    def test_it_is_for_simulations(self) -> None:
        assert MemoryAccount(1).is_simulation

    def test_a_plan_for_more_records_is_refused(self) -> None:
        account = MemoryAccount(RECORDS - 1)
        with pytest.raises(PlanError, match="the plan has 4 records and the account has 3"):
            account.reserve("run", plan(), None)
        assert account.status().runs == ()

    def test_a_server_that_knows_a_ledger_is_refused(self) -> None:
        """What the ledger has booked is not in this account: to go on with it would forget it."""
        with pytest.raises(PrivacyRefusal, match="expects ledger 'abc', but this account is kept in memory"):
            MemoryAccount(RECORDS).acknowledge(PublicHead("abc", 3, "00"))

    @pytest.mark.parametrize("position", [-1, RECORDS])
    def test_records_that_do_not_exist_cannot_be_withdrawn(self, position: int) -> None:
        account = MemoryAccount(RECORDS)
        with pytest.raises(InputError, match="between 0 and 3"):
            account.switch_off(np.array([position]))
        assert account.switched_off().size == 0
