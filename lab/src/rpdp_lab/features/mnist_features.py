"""MNIST as scattering features, for study files: the same silos, splits and ids as the task "mnist", other features.

    [task]
    data = "rpdp_lab.features.mnist_features:mnist_iid"
    model = "rpdp_lab.features.mnist_features:linear_model"
    loss = "rpdp_lab.features.mnist_features:loss"

Features are computed once and kept in the cache directory. They are a function of each image alone (and of made-up
strokes, see `strokes`), and as private as the images.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from torch import nn

from rpdp.tasks.federate import federate
from rpdp.tasks.models.linear import logistic_regression
from rpdp.tasks.models.losses import cross_entropy
from rpdp.tasks.partitions import ClassesPerSilo, Iid, Partition
from rpdp_lab.data.mnist import load_mnist
from rpdp_lab.features import scattering, strokes
from rpdp_lab.features.array_cache import cached_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.tasks.dataset import Dataset, FederatedData

NOTE = "features: a fixed function of each image alone (scattering, in a basis of made-up strokes), made without data"

_FORMAT = "rpdp scattering 1"  # part of every file name; change it when the content would change
_PIECE = 5000

loss = cross_entropy


def mnist_iid(seed: int) -> FederatedData:
    """Ten silos with like classes."""
    return _federated(Iid(10), seed)


def mnist_five_classes(seed: int) -> FederatedData:
    """Ten silos with five classes each."""
    return _federated(ClassesPerSilo(10, 5), seed)


def linear_model(directions: int = strokes.DIRECTIONS) -> nn.Module:
    """A linear model that starts at zero."""
    return logistic_regression(directions, 10)


def scattered_mnist(split: Literal["train", "test"] = "train", directions: int = strokes.DIRECTIONS) -> Dataset:
    """MNIST with scattering features (records, directions) of length 1; the first call computes them, in some minutes.

    Where there is little signal, fewer directions are better: the noise of a step falls on the logits of a record by
    its length only, and the first directions hold most of what tells classes apart.
    """
    features = _cached(split)[:, :directions]
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return load_mnist(split).with_features(features / np.maximum(length, 1e-12), NOTE)


def _federated(partition: Partition, seed: int) -> FederatedData:
    return federate(scattered_mnist(), partition, seed=seed)


@lru_cache(maxsize=2)
def _cached(split: Literal["train", "test"]) -> NDArray[np.float32]:
    images = load_mnist(split).features
    digest = hashlib.sha256(_FORMAT.encode())
    digest.update(np.ascontiguousarray(images).data)
    return cached_array(f"scattering/mnist-{split}-{digest.hexdigest()[:16]}", lambda: _computed(images))


def _computed(images: NDArray[np.float32]) -> NDArray[np.float32]:
    basis = strokes.stroke_basis()
    pieces = range(0, len(images), _PIECE)
    return np.concatenate([basis.project(scattering.scatter(images[start : start + _PIECE])) for start in pieces])


def pixel_model() -> nn.Module:
    """A linear model on raw pixels, to see what the features bring."""
    return nn.Sequential(nn.Flatten(), logistic_regression(784, 10))
