"""Data sets that come with packages, and that importing the data part loads neither torch nor them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from rpdp.tasks.embedded import load_breast_cancer, load_digits, load_mnist_5k


def test_breast_cancer() -> None:
    dataset = load_breast_cancer()
    assert dataset.features.shape == (569, 30)
    assert np.bincount(dataset.labels).tolist() == [357, 212], "label 1 is malignant"
    assert dataset.features.min() >= -1
    assert dataset.features.max() < 1, "no value is clipped"
    assert dataset.record_ids[3] == "breast-cancer-0003"


def test_digits() -> None:
    dataset = load_digits()
    assert dataset.features.shape == (1797, 64)
    assert (dataset.features.min(), dataset.features.max()) == (-1, 1)
    assert len(np.unique(dataset.labels)) == 10


def test_mnist_5k() -> None:
    dataset = load_mnist_5k()
    assert dataset.features.shape == (5000, 1, 28, 28)
    assert (dataset.features.min(), dataset.features.max()) == (-1, 1)
    assert np.bincount(dataset.labels).tolist() == [500] * 10


def test_data_and_tasks_import_no_torch() -> None:
    check = (
        "import sys, rpdp_lab.data, rpdp.tasks.registry;"
        "loaded = {'torch', 'sklearn', 'mlxtend', 'safetensors'} & set(sys.modules);"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
