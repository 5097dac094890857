from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp.errors import InputError
from rpdp.ledger import Account, MemoryAccount
from tests.ledger.account_suite import RECORDS, AccountSuite

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

    @pytest.mark.parametrize("position", [-1, RECORDS])
    def test_records_that_do_not_exist_cannot_be_withdrawn(self, position: int) -> None:
        account = MemoryAccount(RECORDS)
        with pytest.raises(InputError, match="between 0 and 3"):
            account.switch_off(np.array([position]))
        assert account.switched_off().size == 0
