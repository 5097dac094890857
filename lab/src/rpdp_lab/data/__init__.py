"""The paper's four data sets, and where their files are found. Imports no torch."""

from __future__ import annotations

from rpdp_lab.data.cifar10 import CIFAR10_CLASSES, load_cifar10
from rpdp_lab.data.data_files import DATA_FILES, DataError, DataFile, cache_directory, find_file
from rpdp_lab.data.heart_disease import HOSPITALS, Standardisation, load_heart_disease, load_published_heart_disease
from rpdp_lab.data.mnist import load_mnist
from rpdp_lab.data.snli import SNLI_CLASSES, load_snli

__all__ = [
    "CIFAR10_CLASSES",
    "DATA_FILES",
    "HOSPITALS",
    "SNLI_CLASSES",
    "DataError",
    "DataFile",
    "Standardisation",
    "cache_directory",
    "find_file",
    "load_cifar10",
    "load_heart_disease",
    "load_mnist",
    "load_published_heart_disease",
    "load_snli",
]
