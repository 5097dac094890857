"""Data sets of records with stable ids, and federations of silos that hold such data sets.

A record gets its id when the data set is read and keeps it through every partition and split, so a budget table always
matches the same records. `notes` are statements about the data for the report of a run, above all about what was
computed from private records outside the mechanism and is not covered by the promise (privacy.md, rule 13).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records: one row of features, one label and one id each.

    Attributes:
        name: Name of the data set in messages and reports.
        features: One row per record: numbers, or for texts an object array of strings with one column per text.
        labels: Class numbers 0 … classes − 1.
        record_ids: Stable unique strings that do not depend on any partition.
        classes: The number of classes. It is public and must not be derived from the records.
        notes: Sentences for the report.
    """

    name: str
    features: NDArray[Any]
    labels: NDArray[np.int64]
    record_ids: NDArray[np.str_]
    classes: int
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = len(self.labels)
        if not rows == len(self.features) == len(self.record_ids):
            raise InputError(
                f"data set {self.name}: {len(self.features)} rows of features, {rows} labels and "
                f"{len(self.record_ids)} record ids; all three must have the same length"
            )
        if len(np.unique(self.record_ids)) != rows:
            raise InputError(f"data set {self.name}: record ids are not unique; give every record its own")
        if rows and not 0 <= self.labels.min() <= self.labels.max() < self.classes:
            raise InputError(
                f"data set {self.name}: labels range from {self.labels.min()} to {self.labels.max()}, but must lie "
                f"between 0 and {self.classes - 1}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self)} records, features {self.features.shape[1:]})"

    def take(self, rows: NDArray[np.int64]) -> Dataset:
        """Copies of the records at the given positions, with their ids and notes."""
        return replace(self, features=self.features[rows], labels=self.labels[rows], record_ids=self.record_ids[rows])

    def first(self, limit: int | None) -> Dataset:
        """The first `limit` records; all of them if `limit` is None."""
        if limit is None:
            return self
        if not 0 < limit <= len(self):
            raise InputError(f"limit={limit} must lie between 1 and the {len(self)} records of {self.name}")
        return self.take(np.arange(limit))

    def with_features(self, features: NDArray[Any], *notes: str) -> Dataset:
        """The same records with other features and further notes."""
        return replace(self, features=features, notes=_without_repeats((*self.notes, *notes)))


@dataclass(frozen=True)
class SiloData:
    """The data of one silo: training records, which the promise protects, and test records, which it does not.

    Test records held by silos count as public in simulations only (privacy.md, rule 13).
    """

    train: Dataset
    test: Dataset


@dataclass(frozen=True)
class FederatedData:
    """Silos by id, in a fixed order, over one set of classes.

    Attributes:
        name: Name of the federation in messages and reports.
        silos: Training and test records by silo id.
    """

    name: str
    silos: Mapping[str, SiloData]

    def __post_init__(self) -> None:
        if not self.silos:
            raise InputError(f"federated data {self.name}: there is no silo; give at least one")

    @property
    def classes(self) -> int:
        """The number of classes."""
        return next(iter(self.silos.values())).train.classes

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all silos' data, without repeats."""
        return _without_repeats([note for silo in self.silos.values() for note in silo.train.notes])

    def pooled(self) -> SiloData:
        """Copies of all training and all test records in one place, in the order of the silos."""
        return SiloData(
            concatenate([silo.train for silo in self.silos.values()], f"{self.name}-train"),
            concatenate([silo.test for silo in self.silos.values()], f"{self.name}-test"),
        )


def concatenate(datasets: Sequence[Dataset], name: str) -> Dataset:
    """One data set with the records of several data sets of the same kind, in order."""
    if not datasets:
        raise InputError(f"data set {name}: nothing to concatenate; give at least one data set")
    return Dataset(
        name=name,
        features=np.concatenate([dataset.features for dataset in datasets]),
        labels=np.concatenate([dataset.labels for dataset in datasets]),
        record_ids=np.concatenate([dataset.record_ids for dataset in datasets]),
        classes=datasets[0].classes,
        notes=_without_repeats([note for dataset in datasets for note in dataset.notes]),
    )


def numbered_ids(prefix: str, rows: int, digits: int = 5) -> NDArray[np.str_]:
    """Record ids that consist of a prefix and the row number in the original file, e.g. "mnist-train-00017"."""
    return np.array([f"{prefix}-{row:0{digits}d}" for row in range(rows)], dtype=np.str_)


def _without_repeats(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(notes))
