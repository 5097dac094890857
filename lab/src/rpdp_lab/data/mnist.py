"""MNIST: 60,000 training and 10,000 test images of digits, 28×28 grey values (LeCun, Cortes, Burges)."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Literal

import numpy as np

from rpdp.tasks.dataset import Dataset, numbered_ids
from rpdp.tasks.scaling import SCALED_PIXELS, scale_pixels
from rpdp_lab.data.data_files import find_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IMAGE_HEADER, _LABEL_HEADER = 16, 8  # bytes before the content of an idx file
_PUBLISHED_NAME = {"train": "train", "test": "t10k"}


def load_mnist(split: Literal["train", "test"] = "train") -> Dataset:
    """The images of one split as float32 (records, 1, 28, 28) in [−1, 1]; ids are like "mnist-train-00017".

    The paper cuts the 60,000 training images into ten silos and splits each 66 % / 34 % into training and
    test.
    """
    pixels, labels = read_mnist(split)
    return Dataset(
        name="mnist",
        features=scale_pixels(pixels[:, None], 255),
        labels=labels.astype(np.int64),
        record_ids=numbered_ids(f"mnist-{split}", len(labels)),
        classes=10,
        notes=(SCALED_PIXELS,),
    )


def read_mnist(split: Literal["train", "test"]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The bytes as published: pixels (records, 28, 28) and labels."""
    name = _PUBLISHED_NAME[split]
    images = gzip.decompress(find_file(f"mnist/{name}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress(find_file(f"mnist/{name}-labels-idx1-ubyte.gz").read_bytes())
    return (
        np.frombuffer(images, np.uint8, offset=_IMAGE_HEADER).reshape(-1, 28, 28),
        np.frombuffer(labels, np.uint8, offset=_LABEL_HEADER),
    )
