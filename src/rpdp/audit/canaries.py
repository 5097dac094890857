"""Canaries: made-up records. A fair coin puts each into the silo or not, and an attacker tries to tell which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets import BudgetTable
from rpdp.checks import require_count, require_positive
from rpdp.display import counts_repr
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.sampling import Randomness

FEWEST = 100
"""Canaries of a group below which nothing can be said."""

MOST = 10_000_000
MOST_GROUPS = 50


@dataclass(frozen=True)
class Canaries:
    """All canaries in the order of their coordinates, group after group.

    Attributes:
        groups: ε of each group.
        per_group: Canaries of a group, in and out.
        taken: For each canary whether its coin made it a record of the silo. The secret that an attacker guesses.
    """

    groups: tuple[float, ...]
    per_group: int
    taken: NDArray[np.bool_]

    __repr__ = counts_repr

    @classmethod
    def flip(cls, groups: Sequence[float], per_group: int, randomness: Randomness) -> Canaries:
        """A fair coin for every canary."""
        require_count("canaries", per_group, least=FEWEST, most=MOST)
        budgets = tuple(require_positive("groups", epsilon) for epsilon in groups)
        if not 1 <= len(budgets) <= MOST_GROUPS or len(set(budgets)) != len(budgets):
            raise InputError(f"groups={list(groups)} must be between 1 and {MOST_GROUPS} different budgets")
        taken = (randomness.words(len(budgets) * per_group) & np.uint64(1)).astype(bool)
        return cls(tuple(sorted(budgets)), per_group, taken)

    def __len__(self) -> int:
        return len(self.taken)

    def rows(self, group: int) -> slice:
        """The coordinates of a group."""
        return slice(group * self.per_group, (group + 1) * self.per_group)

    @property
    def members(self) -> NDArray[np.int64]:
        """The canaries that are records, in the order in which they are among the silo's records."""
        return np.flatnonzero(self.taken)

    @property
    def budgets(self) -> NDArray[np.float64]:
        """ε of each member."""
        return np.repeat(np.array(self.groups), self.per_group)[self.taken]

    def group_of(self, canaries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The group of each canary."""
        return canaries // self.per_group


def canary_budgets(canaries: Canaries, budgets: NDArray[np.float64] | None = None) -> BudgetTable:
    """Budgets of the silo's records, and after them of the canaries that are in."""
    own = np.zeros(0) if budgets is None else budgets
    ids = [f"record-{row}" for row in range(len(own))] + [f"canary-{number}" for number in canaries.members.tolist()]
    return BudgetTable(ids, np.concatenate([own, canaries.budgets]))
