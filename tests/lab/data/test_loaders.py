"""The real files decode to what their publishers published, with the counts of the data README."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from rpdp_lab.data.cifar10 import load_cifar10, read_cifar10_batch
from rpdp_lab.data.heart_disease import HOSPITALS, load_heart_disease, load_published_heart_disease
from rpdp_lab.data.mnist import load_mnist, read_mnist
from rpdp_lab.data.snli import load_snli

from rpdp.errors import InputError
from rpdp.tasks.federate import federate
from rpdp.tasks.partitions import ClassesPerSilo
from rpdp.tasks.scaling import NOT_COVERED_BY_SILO

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_data")


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_heart_disease_has_the_rows_and_features_of_the_convention() -> None:
    data = load_heart_disease()
    assert tuple(data.silos) == HOSPITALS
    sizes = [(len(silo.train), len(silo.test)) for silo in data.silos.values()]
    assert sizes == [(199, 104), (172, 89), (30, 16), (85, 45)]
    assert sum(map(sum, sizes)) == 740
    assert len(data.pooled().train) == 486  # the batch size of Filter in the paper's comparison
    assert data.pooled().train.features.shape[1:] == (13,)


def test_heart_disease_labels_and_ids() -> None:
    data = load_heart_disease("none", seed=4)
    diseased = [int(silo.train.labels.sum() + silo.test.labels.sum()) for silo in data.silos.values()]
    assert diseased == [139, 98, 45, 101]
    cleveland = data.silos["cleveland"]
    row = {
        record: features.tolist()
        for part in (cleveland.train, cleveland.test)
        for record, features in zip(part.record_ids, part.features, strict=True)
    }
    # Line 0 of the file: 63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0
    assert row["heart-cleveland-0000"] == pytest.approx([63, 1, 145, 233, 1, 150, 0, 2.3, 0, 0, 0, 0, 1])


def test_heart_disease_ids_are_line_numbers_of_the_original_file() -> None:
    """Hungarian lines with missing values leave gaps in the ids instead of moving later records."""
    hungarian = load_heart_disease().silos["hungarian"]
    numbers = {int(record[-4:]) for part in (hungarian.train, hungarian.test) for record in part.record_ids}
    assert len(numbers) == 261
    assert max(numbers) > 260


def test_the_published_split_of_heart_disease_stays_the_published_one() -> None:
    """Made with the arguments of Fed-Heart-Disease; the digest is our own and notices another random stream."""
    data = load_published_heart_disease()
    assert [(len(silo.train), len(silo.test)) for silo in data.silos.values()] == [
        (199, 104),
        (172, 89),
        (30, 16),
        (85, 45),
    ]
    ids = "\n".join(name for silo in data.silos.values() for name in silo.test.record_ids)
    assert hashlib.sha256(ids.encode()).hexdigest().startswith("215d85e4dd4ad826")


def test_heart_disease_scaling() -> None:
    covered, by_silo = load_heart_disease("public_ranges"), load_heart_disease("by_silo")
    assert np.abs(covered.pooled().train.features).max() == 1
    assert NOT_COVERED_BY_SILO not in covered.notes
    assert NOT_COVERED_BY_SILO in by_silo.notes
    assert abs(by_silo.silos["va"].train.features.mean()) < 1e-6
    assert np.array_equal(covered.silos["va"].train.record_ids, by_silo.silos["va"].train.record_ids)
    with pytest.raises(InputError, match="standardisation='global'"):
        load_heart_disease("global")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("split", "header", "images_md5", "labels_md5"),
    [
        ("train", 60_000, "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624"),
        ("test", 10_000, "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),
    ],
)
def test_mnist_is_the_published_content(
    split: Literal["train", "test"], header: int, images_md5: str, labels_md5: str
) -> None:
    pixels, labels = read_mnist(split)
    assert md5(struct.pack(">4i", 2051, header, 28, 28) + pixels.tobytes()) == images_md5
    assert md5(struct.pack(">2i", 2049, header) + labels.tobytes()) == labels_md5


def test_mnist_as_a_data_set_and_in_the_papers_partition() -> None:
    dataset = load_mnist()
    assert dataset.features.shape == (60_000, 1, 28, 28)
    assert (dataset.features.min(), dataset.features.max()) == (-1, 1)
    assert dataset.record_ids[17] == "mnist-train-00017"
    assert dataset.labels[:5].tolist() == [5, 0, 4, 1, 9]
    data = federate(dataset, ClassesPerSilo(10, 5))
    assert all(len(np.unique(silo.train.labels)) == 5 for silo in data.silos.values())
    sizes = [len(silo.train) + len(silo.test) for silo in data.silos.values()]
    assert 5_000 < min(sizes) <= max(sizes) < 7_000


OFFICIAL_BATCHES = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


def official_bytes(batch: str) -> bytes:
    pixels, labels = read_cifar10_batch(batch)
    return np.column_stack([labels, pixels.reshape(len(labels), -1)]).tobytes()


@pytest.mark.parametrize("batch", OFFICIAL_BATCHES)
def test_cifar10_is_the_published_content(batch: str) -> None:
    assert md5(official_bytes(batch)) == OFFICIAL_BATCHES[batch]


def test_cifar10_reads_the_official_binary_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = official_bytes("test_batch")
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "test_batch.bin").write_bytes(content)
    monkeypatch.setenv("RPDP_DATA", str(tmp_path))
    assert official_bytes("test_batch") == content


def test_cifar10_as_a_data_set() -> None:
    train, test = load_cifar10("train"), load_cifar10("test")
    assert train.features.shape == (20_000, 3, 32, 32)
    assert np.bincount(test.labels).tolist() == [1000] * 10
    assert train.record_ids[-1] == "cifar10-train-19999"
    assert "CIFAR-10: 20,000 of the 50,000 training images" in train.notes


def test_snli_counts() -> None:
    train, dev, test = load_snli("train"), load_snli("dev"), load_snli("test")
    assert np.bincount(train.labels).tolist() == [37_029, 33_382, 26_207]
    assert (len(train), len(dev), len(test)) == (96_618, 9_842, 9_824)
    assert train.features.shape == (96_618, 2)
    assert all(isinstance(text, str) for text in test.features[0])
    assert "not a uniform sample" in train.notes[0]


def test_snli_limit_is_a_prefix() -> None:
    part, whole = load_snli("dev", limit=10), load_snli("dev")
    assert part.record_ids.tolist() == whole.record_ids[:10].tolist()
    assert np.array_equal(part.features, whole.features[:10])
    with pytest.raises(InputError, match="limit=0 must be at least 1"):
        load_snli("dev", limit=0)
