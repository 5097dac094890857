"""Canaries: made-up records, or persons with several. A fair coin puts each into the silo or not.

An attacker tries to tell which. All records of a canary person are in, or none, and all of them show on the person's
one coordinate: what is measured is what the person's records reveal together.
"""

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
MOST_RECORDS = 100
"""Of a canary person."""

MOST_GROUPS = 50


@dataclass(frozen=True)
class Canaries:
    """All canaries in the order of their coordinates, group after group. Each is a person, usually with one record.

    Attributes:
        groups: ε of each group.
        per_group: Canaries of a group, in and out.
        taken: For each canary whether its coin put it into the silo. The secret that an attacker guesses.
        records: How many records of the silo a canary that is in has.
    """

    groups: tuple[float, ...]
    per_group: int
    taken: NDArray[np.bool_]
    records: int = 1

    __repr__ = counts_repr

    @classmethod
    def flip(cls, groups: Sequence[float], per_group: int, randomness: Randomness, records: int = 1) -> Canaries:
        """A fair coin for every canary, which has so many records if it is in."""
        require_count("canaries", per_group, least=FEWEST, most=MOST)
        require_count("records_per_person", records, most=MOST_RECORDS)
        budgets = tuple(require_positive("groups", epsilon) for epsilon in groups)
        if not 1 <= len(budgets) <= MOST_GROUPS or len(set(budgets)) != len(budgets):
            raise InputError(f"groups={list(groups)} must be between 1 and {MOST_GROUPS} different budgets")
        taken = (randomness.words(len(budgets) * per_group) & np.uint64(1)).astype(bool)
        return cls(tuple(sorted(budgets)), per_group, taken, records)

    def __len__(self) -> int:
        return len(self.taken)

    def rows(self, group: int) -> slice:
        """The coordinates of a group."""
        return slice(group * self.per_group, (group + 1) * self.per_group)

    @property
    def members(self) -> NDArray[np.int64]:
        """The canaries that are in."""
        return np.flatnonzero(self.taken)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The canary of each record, in the order in which they are among the silo's records."""
        return np.repeat(self.members, self.records)

    @property
    def budgets(self) -> NDArray[np.float64]:
        """ε of each canary that is in, stated with each of its records."""
        return np.array(self.groups)[self.group_of(self.owners)]

    def group_of(self, canaries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The group of each canary."""
        return canaries // self.per_group


def canary_budgets(canaries: Canaries, budgets: NDArray[np.float64] | None = None) -> BudgetTable:
    """Budgets of the silo's records, and after them of the canaries that are in; by person if these have several."""
    own = np.zeros(0) if budgets is None else budgets
    persons = [f"record-{row}" for row in range(len(own))] + [f"canary-{number}" for number in canaries.owners.tolist()]
    epsilon = np.concatenate([own, canaries.budgets])
    if canaries.records == 1:
        return BudgetTable(persons, epsilon)
    ids = persons[: len(own)] + [f"{one}-{row % canaries.records}" for row, one in enumerate(persons[len(own) :])]
    return BudgetTable(ids, epsilon, subjects=persons)
