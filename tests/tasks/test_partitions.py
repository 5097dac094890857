"""Every record lands in exactly one silo, with the classes and sizes that the partition promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp.errors import InputError
from rpdp.tasks.partitions import ClassesPerSilo, Dirichlet, Iid, Partition

if TYPE_CHECKING:
    from numpy.typing import NDArray

LABELS: NDArray[np.int64] = np.random.default_rng(1).integers(10, size=3000)
ALL = [Iid(7), ClassesPerSilo(10, 5), ClassesPerSilo(7, 3), ClassesPerSilo(2, 10), Dirichlet(10, 0.3)]


def assign(partition: Partition, seed: int = 0) -> list[NDArray[np.int64]]:
    return partition.assign(LABELS, np.random.default_rng(seed))


@pytest.mark.parametrize("partition", ALL, ids=repr)
def test_every_record_exactly_once(partition: Partition) -> None:
    silos = assign(partition)
    assert np.array_equal(np.sort(np.concatenate(silos)), np.arange(len(LABELS)))
    assert all(np.array_equal(rows, np.sort(rows)) for rows in silos)


@pytest.mark.parametrize("partition", ALL, ids=repr)
def test_a_seed_fixes_the_partition(partition: Partition) -> None:
    first, again, other = assign(partition, 3), assign(partition, 3), assign(partition, 4)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_iid_sizes_differ_by_at_most_one() -> None:
    sizes = [len(rows) for rows in assign(Iid(7))]
    assert max(sizes) - min(sizes) <= 1
    assert all(len(np.unique(LABELS[rows])) == 10 for rows in assign(Iid(7)))


@pytest.mark.parametrize("partition", [ClassesPerSilo(10, 5), ClassesPerSilo(7, 3), ClassesPerSilo(4, 5)], ids=repr)
def test_exactly_k_classes_per_silo_and_balanced_holders(partition: ClassesPerSilo) -> None:
    silos = assign(partition)
    assert [len(np.unique(LABELS[rows])) for rows in silos] == [partition.classes] * partition.silos
    holders = [sum(label in LABELS[rows] for rows in silos) for label in range(10)]
    assert max(holders) - min(holders) <= 1


def test_silos_hold_different_classes() -> None:
    """With 252 ways to choose five of ten classes, ten silos hardly agree; before mixing there are two."""
    assert len({tuple(np.unique(LABELS[rows])) for rows in assign(ClassesPerSilo(10, 5))}) >= 5


def test_dirichlet_follows_alpha() -> None:
    """The deviation of class shares across silos falls with alpha; the minimum of records holds."""

    def spread(alpha: float) -> float:
        silos = assign(Dirichlet(5, alpha))
        counts = np.array([np.bincount(LABELS[rows], minlength=10) for rows in silos])
        return float((counts / counts.sum(axis=0)).std())

    assert spread(0.1) > 2 * spread(10.0)
    assert spread(1000.0) < 0.01
    assert min(map(len, assign(Dirichlet(10, 0.1, minimum_records=50)))) >= 50


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (Iid(0), "silos=0 must lie between 1"),
        (Iid(3001), "silos=3001 must lie between 1 and the number of records, 3000"),
        (ClassesPerSilo(10, 11), "classes=11 per silo"),
        (ClassesPerSilo(3, 3), "cannot hold all 10 classes; use at least 4 silos"),
        (Dirichlet(10, 0.0), "alpha=0.0 must be positive"),
        (Dirichlet(10, 1.0, minimum_records=301), "minimum_records=301 in each of 10 silos exceeds the 3000 records"),
        (Dirichlet(10, 1e-3, minimum_records=300), "use a larger alpha or fewer silos"),
    ],
    ids=repr,
)
def test_impossible_partitions_are_refused(partition: Partition, message: str) -> None:
    with pytest.raises(InputError, match=message):
        assign(partition)


def test_a_class_too_small_for_its_silos_is_named() -> None:
    labels = np.array([0] * 20 + [1])
    with pytest.raises(InputError, match="class 1 has 1 records for the 4 silos"):
        ClassesPerSilo(4, 2).assign(labels, np.random.default_rng(0))
