"""Federations keep every record and its id; scaling is covered or says that it is not."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp.errors import InputError
from rpdp.tasks.dataset import Dataset
from rpdp.tasks.federate import federate, split_rows
from rpdp.tasks.partitions import ClassesPerSilo, Iid, Partition
from rpdp.tasks.scaling import NOT_COVERED_BY_SILO, PublicRange, scale_by_ranges, standardise_by_silo


def digits(rows: int = 1000) -> Dataset:
    generator = np.random.default_rng(5)
    return Dataset(
        name="digits",
        features=np.column_stack([generator.normal(3, 2, (rows, 2)), np.ones(rows)]).astype(np.float32),
        labels=np.arange(rows) % 10,
        record_ids=np.array([f"d-{row:04d}" for row in range(rows)], dtype=np.str_),
        classes=10,
    )


@pytest.mark.parametrize("partition", [Iid(4), ClassesPerSilo(4, 5)], ids=repr)
def test_every_record_once_with_its_own_row(partition: Partition) -> None:
    dataset = digits()
    rows = {record: row for row, record in enumerate(dataset.record_ids)}
    data = federate(dataset, partition, seed=9)
    assert list(data.silos) == ["silo-00", "silo-01", "silo-02", "silo-03"]
    parts = [part for silo in data.silos.values() for part in (silo.train, silo.test)]
    assert sorted(record for part in parts for record in part.record_ids) == sorted(rows)
    for part in parts:
        original = dataset.take(np.array([rows[record] for record in part.record_ids]))
        assert np.array_equal(part.features, original.features)
        assert np.array_equal(part.labels, original.labels)


def test_the_split_has_the_stated_share_and_follows_the_seed() -> None:
    first, again, other = (federate(digits(), Iid(4), seed=seed).silos["silo-02"] for seed in (1, 1, 2))
    assert (len(first.train), len(first.test)) == (165, 85)
    assert np.array_equal(first.train.record_ids, again.train.record_ids)
    assert not np.array_equal(first.train.record_ids, other.train.record_ids)


def test_stratified_splits_keep_the_shares() -> None:
    labels = np.array([0] * 90 + [1] * 10)
    for seed in range(20):
        train, test = split_rows(labels, 0.66, np.random.default_rng(seed), stratify=True)
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(100))
        assert len(train) == 66
        assert abs(labels[train].sum() - 6.6) <= 1


def test_a_tiny_class_is_split_plainly() -> None:
    labels = np.array([0] * 45 + [1])
    train, test = split_rows(labels, 0.66, np.random.default_rng(0), stratify=True)
    assert (len(train), len(test)) == (30, 16)


def test_a_wrong_share_is_named() -> None:
    with pytest.raises(InputError, match=r"train_share=1\.0 must lie strictly"):
        split_rows(np.zeros(3, dtype=np.int64), 1.0, np.random.default_rng(0))


def test_standardising_by_silo_uses_training_records_only_and_is_noted() -> None:
    plain = federate(digits(), Iid(4))
    data = standardise_by_silo(plain)
    for name, silo in data.silos.items():
        raw = plain.silos[name]
        assert np.allclose(silo.train.features.mean(axis=0), 0, atol=1e-5)
        assert np.allclose(silo.train.features[:, :2].std(axis=0, ddof=1), 1, atol=1e-5)
        assert not silo.train.features[:, 2].any(), "a constant feature is only centred"
        column = raw.train.features[:, 0]
        expected = (raw.test.features[:, 0] - column.mean()) / column.std(ddof=1)
        assert np.allclose(silo.test.features[:, 0], expected, atol=1e-5)
        assert NOT_COVERED_BY_SILO in silo.train.notes
    assert NOT_COVERED_BY_SILO in data.notes
    assert NOT_COVERED_BY_SILO not in plain.notes


def test_public_ranges_clip_and_do_not_look_at_the_data() -> None:
    ranges = [PublicRange("a", 0, 10), PublicRange("b", -1, 1)]
    features = np.array([[0.0, -5.0], [10.0, 0.5], [99.0, 1.0]])
    scaled = scale_by_ranges(features, ranges)
    assert scaled.tolist() == [[-1, -1], [1, 0.5], [1, 1]]
    assert np.array_equal(scale_by_ranges(features[1:2], ranges), scaled[1:2])
    with pytest.raises(InputError, match="2 features and 1 ranges"):
        scale_by_ranges(features, ranges[:1])
    with pytest.raises(InputError, match=r"range of a: low=1 must be below high=1"):
        PublicRange("a", 1, 1)
