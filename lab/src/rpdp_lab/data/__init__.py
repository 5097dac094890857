"""Data sets, how they are cut into silos, and where their files are found. Imports no torch."""

from __future__ import annotations

from rpdp.tasks.dataset import Dataset, FederatedData, SiloData, concatenate
from rpdp.tasks.embedded import load_breast_cancer, load_digits, load_mnist_5k
from rpdp.tasks.federate import federate, split_rows
from rpdp.tasks.partitions import ClassesPerSilo, Dirichlet, Iid, Partition
from rpdp.tasks.scaling import NOT_COVERED_BY_SILO, PublicRange, scale_by_ranges, standardise_by_silo
from rpdp_lab.data.cifar10 import CIFAR10_CLASSES, load_cifar10
from rpdp_lab.data.data_files import DATA_FILES, DataError, DataFile, cache_directory, find_file
from rpdp_lab.data.heart_disease import HOSPITALS, Standardisation, load_heart_disease, load_published_heart_disease
from rpdp_lab.data.mnist import load_mnist
from rpdp_lab.data.snli import SNLI_CLASSES, load_snli

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
