"""Data sets, how they are cut into silos, and where their files are found. Imports no torch."""

from __future__ import annotations

from rpdp.experiments.data.cifar10 import CIFAR10_CLASSES, load_cifar10
from rpdp.experiments.data.dataset import Dataset, FederatedData, SiloData, concatenate
from rpdp.experiments.data.embedded import load_breast_cancer, load_digits, load_mnist_5k
from rpdp.experiments.data.federate import federate, split_rows
from rpdp.experiments.data.files import DATA_FILES, DataError, DataFile, cache_directory, find_file
from rpdp.experiments.data.heart_disease import (
    HOSPITALS,
    Standardisation,
    load_heart_disease,
    load_published_heart_disease,
)
from rpdp.experiments.data.mnist import load_mnist
from rpdp.experiments.data.partitions import ClassesPerSilo, Dirichlet, Iid, Partition
from rpdp.experiments.data.scaling import (
    NOT_COVERED_BY_SILO,
    PublicRange,
    scale_by_ranges,
    standardise_by_silo,
)
from rpdp.experiments.data.snli import SNLI_CLASSES, load_snli

__all__ = [
    "CIFAR10_CLASSES",
    "DATA_FILES",
    "HOSPITALS",
    "NOT_COVERED_BY_SILO",
    "SNLI_CLASSES",
    "ClassesPerSilo",
    "DataError",
    "DataFile",
    "Dataset",
    "Dirichlet",
    "FederatedData",
    "Iid",
    "Partition",
    "PublicRange",
    "SiloData",
    "Standardisation",
    "cache_directory",
    "concatenate",
    "federate",
    "find_file",
    "load_breast_cancer",
    "load_cifar10",
    "load_digits",
    "load_heart_disease",
    "load_mnist",
    "load_mnist_5k",
    "load_published_heart_disease",
    "load_snli",
    "scale_by_ranges",
    "split_rows",
    "standardise_by_silo",
]
