"""Which records of a table are for testing: by a column, or by a keyed hash of the record's id.

A hash decides for each record alone, so adding a record moves no other one. All records of a person are on one side.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial

from rpdp.checks import require_least
from rpdp.errors import InputError
from rpdp.setting_fields import setting, text
from rpdp.tables.table_columns import level_or_levels


def _share(name: str, value: object) -> float:
    share = partial(require_least, least=0.0)(name, value)
    if not share < 1.0:
        raise InputError(f"{name}={value!r} must be at least 0 and below 1: some records must be left to train on")
    return share


@dataclass(frozen=True)
class TableSplit:
    """`[split]`: by a column, or by a share and a key.

    Attributes:
        column: The column that says which records are for testing.
        test: With column: the values that mean it.
        test_share: Instead of column: the share of records for testing.
        key: With test_share: any public text; another one gives another split.
    """

    column: str | None = setting(text, None)
    test: tuple[str, ...] | None = setting(level_or_levels, None)
    test_share: float | None = setting(_share, None)
    key: str = setting(text, "rpdp")

    def __post_init__(self) -> None:
        if (self.column is None) == (self.test_share is None) or (self.column is None) != (self.test is None):
            raise InputError('split needs either test_share = 0.2, or column = "SPLIT" with test = "test"')

    def is_test(self, unit: str, cell: str, seed: int) -> bool:
        """Whether a record is for testing: from its id (or its person's), its cell in `column`, and a public seed."""
        if self.test is not None:
            return cell in self.test
        assert self.test_share is not None
        digest = hashlib.sha256(f"rpdp-split/1\n{self.key}\n{seed}\n{unit}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < self.test_share * 2**64
