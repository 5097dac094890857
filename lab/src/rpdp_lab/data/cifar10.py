"""CIFAR-10: colour images 32×32 in ten classes (Krizhevsky, Nair, Hinton, 2009).

The data at hand are training batches 1 and 2, 20,000 of the 50,000 training images, and the whole test batch,
so results are not comparable with those on the full set; a note says so. Files are either the official binary
batches or the project's `.npz`, which hold the same bytes as differences (green taken off red and blue, then
differences along x and y, modulo 256).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rpdp.tasks.dataset import Dataset, numbered_ids
from rpdp.tasks.scaling import SCALED_PIXELS, scale_pixels
from rpdp_lab.data.data_files import find_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_BATCHES = {"train": ("data_batch_1", "data_batch_2"), "test": ("test_batch",)}
_PART_OF_TRAINING = "CIFAR-10: 20,000 of the 50,000 training images"


def load_cifar10(split: Literal["train", "test"] = "train") -> Dataset:
    """The images of one split as float32 (records, 3, 32, 32) in [−1, 1], ids "cifar10-train-00017"."""
    batches = [read_cifar10_batch(batch) for batch in _BATCHES[split]]
    labels = np.concatenate([labels for _, labels in batches]).astype(np.int64)
    return Dataset(
        name="cifar10",
        features=scale_pixels(np.concatenate([pixels for pixels, _ in batches]), 255),
        labels=labels,
        record_ids=numbered_ids(f"cifar10-{split}", len(labels)),
        classes=10,
        notes=(SCALED_PIXELS, *([_PART_OF_TRAINING] if split == "train" else [])),
    )


def read_cifar10_batch(batch: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pixels (records, 3, 32, 32), red, green, blue, and labels of one official batch in its order."""
    path = find_file(f"cifar10/{batch}.npz", f"cifar10/{batch}.bin")
    return _read_differences(path) if path.suffix == ".npz" else _read_binary(path)


def _read_differences(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    with np.load(path) as stored:
        labels = stored["y"]
        pixels = np.cumsum(np.cumsum(stored["x"], -1, dtype=np.uint8), -2, dtype=np.uint8)
    pixels[:, 0] += pixels[:, 1]
    pixels[:, 2] += pixels[:, 1]
    return pixels, labels


def _read_binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    rows = np.fromfile(path, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]
