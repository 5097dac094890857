"""Turns one data set into a federation: divide it among silos, and split each silo into training and test records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError
from rpdp.tasks.dataset import Dataset, FederatedData, SiloData

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.tasks.partitions import Partition

TRAIN_SHARE = 0.66  # the paper's table of data sets: 66 % / 34 %
_PARTITION_STREAM, _SPLIT_STREAM = 0, 1


def federate(
    dataset: Dataset, partition: Partition, *, train_share: float = TRAIN_SHARE, seed: int = 0
) -> FederatedData:
    """Divide `dataset` among silos "silo-00", "silo-01", … and split each into training and test records.

    The same seed gives the same federation. Records keep their ids.
    """
    generator = np.random.default_rng((seed, _PARTITION_STREAM))
    rows_by_silo = partition.assign(dataset.labels, generator)
    return FederatedData(
        dataset.name,
        {
            f"silo-{number:02d}": split_dataset(dataset.take(rows), train_share=train_share, seed=(seed, number))
            for number, rows in enumerate(rows_by_silo)
        },
    )


def split_dataset(
    dataset: Dataset, *, train_share: float = TRAIN_SHARE, seed: tuple[int, int], stratify: bool = False
) -> SiloData:
    """The training and test records of one silo; `seed` is (seed of the experiment, number of the silo)."""
    generator = np.random.default_rng((seed[0], _SPLIT_STREAM, seed[1]))
    train, test = split_rows(dataset.labels, train_share, generator, stratify=stratify)
    return SiloData(dataset.take(train), dataset.take(test))


def split_rows(
    labels: NDArray[np.int64], train_share: float, generator: np.random.Generator, *, stratify: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random training and test rows, both ascending; ⌊train_share · N⌋ rows are for training.

    With `stratify`, classes keep their shares (to within one record). If a class has fewer than three records, the
    split is not stratified, as in Fed-Heart-Disease.
    """
    if not 0 < train_share < 1:
        raise InputError(f"train_share={train_share} must lie strictly between 0 and 1")
    count = int(train_share * len(labels))
    order = generator.permutation(len(labels))
    if stratify and np.unique(labels, return_counts=True)[1].min(initial=len(labels)) >= 3:
        order = order[np.argsort(_quantile_in_class(labels[order]), kind="stable")]
    return np.sort(order[:count]), np.sort(order[count:])


def _quantile_in_class(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each row, its relative rank within its class, in (0, 1). Sorting by it interleaves the classes evenly."""
    quantiles = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        quantiles[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return quantiles
