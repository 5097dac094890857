"""The published numbers, with their sources. Nothing here is computed.

`PAPER` numbers are from the text and tables of "Cross-silo Federated Learning with Record-level Personalized
Differential Privacy" (CCS'24, doi 10.1145/3658644.3670351); `AUTHORS` numbers are from the result files that its
authors published (https://github.com/Emory-AIMS/rPDP-FL), means over five seeds of the accuracy over all silos' test
records. The paper prints no numbers of figures 2, 5, 6, 7, 8 and 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class PublishedRow:
    """A row of table 2."""

    batch: str
    accuracy: float
    seconds_per_step: float


PAPER_TABLE_2 = MappingProxyType(
    {
        ("heart", "Filter"): PublishedRow("486", 0.7717, 0.0128),
        ("heart", "SCF"): PublishedRow("32 (expected)", 0.8189, 0.0050),
        ("mnist", "Filter"): PublishedRow("60000", 0.8411, 7.1016),
        ("mnist", "SCF"): PublishedRow("64 (expected)", 0.9477, 2.1824),
    }
)

PAPER_TABLE_3 = MappingProxyType(
    {
        ("group-3", "binary_search"): (0.7274, 1.69),
        ("group-3", "scf"): (0.7240, 13.11),
        ("group-100", "binary_search"): (0.8135, 52.50),
        ("group-100", "scf"): (0.8134, 13.32),
        ("individual-1000", "binary_search"): (0.6858, 597.82),
        ("individual-1000", "scf"): (0.6861, 14.10),
    }
)
"""Test accuracy, and seconds to obtain the probabilities."""

CLASS_BUDGETS = (0.5, 0.75, 2.0, 2.6, 4.1, 2.1, 2.05, 3.0, 3.1, 6.1)
"""Table 4: ε of the MNIST classes 0 … 9 (after Boenisch et al. 2023)."""

PAPER_TABLE_4 = MappingProxyType(
    {
        "rPDP-SGD": (93.49, 95.9, 87.45, 90.83, 95.1, 90.37, 94.74, 92.13, 88.62, 92.64, 92.55),
        "DP-SGD (ε = 0.5)": (93.63, 95.81, 87.26, 87.18, 89.67, 85.89, 93.73, 88.71, 85.74, 82.19, 89.08),
        "DP-SGD (ε = 3.0)": (94.24, 96.09, 89.75, 89.71, 92.01, 89.37, 94.54, 90.5, 84.78, 85.2, 90.69),
        "SGD": (99.1, 99.6, 97.11, 98.33, 99.1, 98.65, 98.27, 99.07, 95.87, 94.1, 98.06),
    }
)
"""Per cent for classes 0 … 9, and overall."""

AUTHORS_FIGURE_8 = MappingProxyType(
    {
        "heart": {
            "rpdp": (0.7296, 0.7270, 0.7310),
            "minimum": (0.6709, 0.6725, 0.6835),
            "dropout": (0.7068, 0.6131, 0.6919),
            "privacy_free": (0.7504, 0.7504, 0.7504),
        },
        "mnist-iid": {
            "rpdp": (0.8689, 0.8502, 0.8666),
            "minimum": (0.5183, 0.5228, 0.4907),
            "dropout": (0.7396, 0.4387, 0.7242),
            "privacy_free": (0.9804, 0.9804, 0.9804),
        },
        "mnist-non-iid": {
            "rpdp": (0.6851, 0.6270, 0.6702),
            "minimum": (0.4211, 0.4207, 0.3694),
            "dropout": (0.5316, 0.3809, 0.5556),
            "privacy_free": (0.9595, 0.9595, 0.9595),
        },
    }
)
"""By data set and method, for ThreeLevels, BoundedPareto, BoundedMixGauss."""
