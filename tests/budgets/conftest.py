from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from rpdp.budgets import BudgetTable
from rpdp.errors import BudgetError


class Refuses(Protocol):
    def __call__(self, content: str | bytes, name: str = "budgets.csv") -> str: ...


@pytest.fixture
def refuses(tmp_path: Path) -> Refuses:
    """Write a file, read it as budgets, and return the message of the refusal without the path in front."""

    def read(content: str | bytes, name: str = "budgets.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(BudgetError) as caught:
            BudgetTable.read(path)
        opening, _, message = str(caught.value).partition(f"{path}: ")
        assert opening == ""
        return message

    return read
