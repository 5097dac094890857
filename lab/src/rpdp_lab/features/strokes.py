"""A public basis for scattering features, from made-up pen strokes instead of data.

Scattering features of any ink on paper share a large common part and vary mostly along a few directions; a linear
model that starts from raw features spends its noisy steps on that. So 4,000 images of one to three random curved
strokes are drawn (fixed seed, no real image involved), and their features give a mean and principal directions.
Features are centred by that mean, expressed in the first 500 directions, and those that vary less are amplified
(by variance^(−0.2) each, some way to whitening). All of it is made without any record; the two numbers were chosen by
results on MNIST, seeds from 1001 up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp_lab.features.scattering import scatter

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMAGES = 4000
DIRECTIONS = 500
POWER = 0.2
_SEED = 0
_SIDE = 28
_POINTS = 24
_MOST_STROKES = 3
_CONTINUES = 0.7  # how often a stroke starts where the last one ended
_PEN = (0.7, 1.5)  # half widths in pixels
_FIELD = (5.0, 23.0)  # where strokes start and end
_BEND = (3.0, 25.0)  # where their control points lie


@dataclass(frozen=True)
class StrokeBasis:
    """A mean, and directions scaled by the spread along them."""

    mean: NDArray[np.float32]
    directions: NDArray[np.float32]

    def project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features (records, 500) of length 1."""
        found = (features - self.mean) @ self.directions
        length = np.linalg.norm(found, axis=1, keepdims=True)
        projected: NDArray[np.float32] = (found / np.maximum(length, 1e-12)).astype(np.float32)
        return projected


def stroke_basis() -> StrokeBasis:
    """The basis; takes some seconds."""
    features = scatter(draw_strokes(IMAGES, _SEED)).astype(np.float64)
    mean = features.mean(axis=0)
    centred = features - mean
    variance, vectors = np.linalg.eigh(centred @ centred.T / IMAGES)  # as many images as needed, not as features
    largest = np.argsort(variance)[::-1][:DIRECTIONS]
    variance = variance[largest]
    directions = centred.T @ vectors[:, largest] / np.sqrt(variance * IMAGES)
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(DIRECTIONS)])
    return StrokeBasis(mean.astype(np.float32), (directions * signs * variance**-POWER).astype(np.float32))


def draw_strokes(count: int, seed: int) -> NDArray[np.float32]:
    """Images (count, 1, 28, 28) with background −1, ink up to 1, their centre of mass in the middle."""
    generator = np.random.default_rng(seed)
    images = np.stack([_centred(_one(generator)) for _ in range(count)])
    drawn: NDArray[np.float32] = (2.0 * images[:, None] - 1.0).astype(np.float32)
    return drawn


def _one(generator: np.random.Generator) -> NDArray[np.float64]:
    rows, columns = np.mgrid[0:_SIDE, 0:_SIDE].astype(np.float64)
    time = np.linspace(0.0, 1.0, _POINTS)[:, None]
    ink = np.zeros((_SIDE, _SIDE))
    pen, end = generator.uniform(*_PEN), generator.uniform(*_FIELD, 2)
    for _ in range(generator.integers(1, _MOST_STROKES + 1)):
        start = end if generator.random() < _CONTINUES else generator.uniform(*_FIELD, 2)
        bend, end = generator.uniform(*_BEND, 2), generator.uniform(*_FIELD, 2)
        path = (1 - time) ** 2 * start + 2 * time * (1 - time) * bend + time**2 * end
        square = (rows - path[:, 0, None, None]) ** 2 + (columns - path[:, 1, None, None]) ** 2
        ink = np.maximum(ink, np.clip(1.5 - np.sqrt(square.min(axis=0)) / pen, 0.0, 1.0))
    return ink


def _centred(ink: NDArray[np.float64]) -> NDArray[np.float64]:
    middle, total = (_SIDE - 1) / 2, ink.sum()
    places = [float((ink.sum(axis=1 - axis) * np.arange(_SIDE)).sum() / total) for axis in (0, 1)]
    shift = (round(middle - places[0]), round(middle - places[1]))
    return np.roll(ink, shift, axis=(0, 1))
