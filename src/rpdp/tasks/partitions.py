"""Partitions of one data set among silos: IID, k classes per silo, Dirichlet.

A partition is part of the public description of an experiment. It is made from a seed before any release, and every
record goes to exactly one silo. "k classes per silo" is the non-IID setting of McMahan et al. (arXiv 1602.05629,
section 3) as the paper uses it, with 5 classes per silo on MNIST. There, records sorted by label are cut into shards,
and a shard may contain two classes. Here every silo holds exactly k classes, and the number of silos per class is as
equal as possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SWAP_ATTEMPTS_PER_CELL = 20  # random swaps that mix the table "silo holds class"; far more than it has cells
_DIRICHLET_ATTEMPTS = 1000


class Partition(Protocol):
    """A way to divide records among silos."""

    def assign(self, labels: NDArray[np.int64], generator: np.random.Generator) -> list[NDArray[np.int64]]:
        """The row numbers of each silo, ascending; every row occurs exactly once."""
        ...


@dataclass(frozen=True)
class Iid:
    """Random records in silos of equal size (to within one record)."""

    silos: int = 10

    def assign(self, labels: NDArray[np.int64], generator: np.random.Generator) -> list[NDArray[np.int64]]:
        """See `Partition.assign`."""
        _check_silos(self.silos, len(labels))
        return [np.sort(rows) for rows in np.array_split(generator.permutation(len(labels)), self.silos)]


@dataclass(frozen=True)
class ClassesPerSilo:
    """Every silo holds exactly `classes` classes. A class is divided equally among the silos that hold it."""

    silos: int = 10
    classes: int = 5

    def assign(self, labels: NDArray[np.int64], generator: np.random.Generator) -> list[NDArray[np.int64]]:
        """See `Partition.assign`."""
        _check_silos(self.silos, len(labels))
        present = np.unique(labels)
        self._check_classes(len(present))
        holds = _random_holdings(self.silos, len(present), self.classes, generator)
        shares: list[list[NDArray[np.int64]]] = [[] for _ in range(self.silos)]
        for column, label in enumerate(present):
            holders = np.flatnonzero(holds[:, column])
            rows = generator.permutation(np.flatnonzero(labels == label))
            if len(rows) < len(holders):
                raise InputError(
                    f"class {label} has {len(rows)} records for the {len(holders)} silos that hold it; "
                    "use fewer silos or fewer classes per silo"
                )
            for silo, share in zip(holders, np.array_split(rows, len(holders)), strict=True):
                shares[silo].append(share)
        return [np.sort(np.concatenate(share)) for share in shares]

    def _check_classes(self, present: int) -> None:
        if not 1 <= self.classes <= present:
            raise InputError(f"classes={self.classes} per silo must lie between 1 and the {present} classes present")
        if self.silos * self.classes < present:
            raise InputError(
                f"{self.silos} silos with {self.classes} classes each cannot hold all {present} classes; "
                f"use at least {-(-present // self.classes)} silos"
            )


@dataclass(frozen=True)
class Dirichlet:
    """Each class is divided in proportions drawn from Dirichlet(alpha). A small alpha makes silos differ more.

    Proportions are drawn again until every silo has at least `minimum_records`.
    """

    silos: int = 10
    alpha: float = 0.5
    minimum_records: int = 10

    def assign(self, labels: NDArray[np.int64], generator: np.random.Generator) -> list[NDArray[np.int64]]:
        """See `Partition.assign`."""
        _check_silos(self.silos, len(labels))
        if not self.alpha > 0:
            raise InputError(f"alpha={self.alpha} must be positive")
        if self.silos * self.minimum_records > len(labels):
            raise InputError(
                f"minimum_records={self.minimum_records} in each of {self.silos} silos exceeds the {len(labels)} "
                "records of the data set; use fewer silos or a smaller minimum"
            )
        for _ in range(_DIRICHLET_ATTEMPTS):
            silos = self._draw(labels, generator)
            if min(map(len, silos)) >= self.minimum_records:
                return silos
        raise InputError(
            f"alpha={self.alpha}: none of {_DIRICHLET_ATTEMPTS} draws gave each of {self.silos} silos at least "
            f"minimum_records={self.minimum_records}; use a larger alpha or fewer silos"
        )

    def _draw(self, labels: NDArray[np.int64], generator: np.random.Generator) -> list[NDArray[np.int64]]:
        shares: list[list[NDArray[np.int64]]] = [[] for _ in range(self.silos)]
        for label in np.unique(labels):
            rows = generator.permutation(np.flatnonzero(labels == label))
            proportions = generator.dirichlet(np.full(self.silos, self.alpha))
            cuts = np.rint(np.cumsum(proportions)[:-1] * len(rows)).astype(np.int64)
            for share, part in zip(shares, np.split(rows, cuts), strict=True):
                share.append(part)
        return [np.sort(np.concatenate(share)) for share in shares]


def _check_silos(silos: int, records: int) -> None:
    if not 1 <= silos <= records:
        raise InputError(f"silos={silos} must lie between 1 and the number of records, {records}")


def _random_holdings(silos: int, classes: int, per_silo: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """A random table "silo holds class" with `per_silo` classes per row and column sums that differ by at most one.

    It starts from the cyclic table, which has these sums, and mixes it by swaps that preserve them.
    """
    holds = np.zeros((silos, classes), dtype=np.bool_)
    dealt = np.arange(silos * per_silo)
    holds[dealt // per_silo, dealt % classes] = True
    for _ in range(_SWAP_ATTEMPTS_PER_CELL * silos * classes):
        rows, columns = generator.integers(silos, size=2), generator.integers(classes, size=2)
        corner = holds[np.ix_(rows, columns)]
        if corner[0, 0] and corner[1, 1] and not corner[0, 1] and not corner[1, 0]:
            holds[np.ix_(rows, columns)] = ~corner
    return holds[:, generator.permutation(classes)]
