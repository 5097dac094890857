"""Heart-Disease: four hospitals, 740 patients, one record each (the Fed-Heart-Disease convention of FLamby).

UCI "Heart Disease" (Janosi, Steinbrunn, Pfisterer, Detrano; doi 10.24432/C52P4X), 14 columns. The convention
drops columns 10, 11 and 12, which most hospitals do not record, then every row with a missing value: 303,
261, 46 and 130 rows are left. Chest pain (column 2, four kinds) and the resting electrocardiogram (column 6,
three kinds) become indicators without the first level: 13 features, so a logistic regression has 14
parameters. The paper's table of data sets says 20 parameters; 14 is what follows from its own 13 features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rpdp.errors import InputError
from rpdp.tasks.dataset import Dataset, FederatedData, SiloData
from rpdp.tasks.federate import TRAIN_SHARE, split_dataset
from rpdp.tasks.scaling import SCALED_BY_RANGES, PublicRange, scale_by_ranges, standardise_by_silo
from rpdp_lab.data.data_files import find_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

Standardisation = Literal["public_ranges", "by_silo", "none"]

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
_DROPPED_COLUMNS = (10, 11, 12)
_PUBLISHED_SEED = 43
_FEWEST_TO_STRATIFY = 2
_CATEGORICAL = {
    2: (2.0, 3.0, 4.0),
    6: (1.0, 2.0),
}  # column → levels that get an indicator; the first level has none

# Usual clinical ranges of adults, declared and not computed from these records; what lies beyond is clipped.
PUBLIC_RANGES = (
    PublicRange("age in years", 25, 80),
    PublicRange("sex", 0, 1),
    PublicRange("resting blood pressure in mm Hg", 90, 180),
    PublicRange("serum cholesterol in mg/dl", 100, 400),
    PublicRange("fasting blood sugar above 120 mg/dl", 0, 1),
    PublicRange("maximum heart rate", 70, 200),
    PublicRange("exercise induced angina", 0, 1),
    PublicRange("ST depression by exercise", 0, 4),
    PublicRange("chest pain: atypical angina", 0, 1),
    PublicRange("chest pain: non-anginal", 0, 1),
    PublicRange("chest pain: asymptomatic", 0, 1),
    PublicRange("electrocardiogram: ST-T abnormality", 0, 1),
    PublicRange("electrocardiogram: hypertrophy", 0, 1),
)


def load_heart_disease(
    standardisation: Standardisation = "public_ranges", *, train_share: float = TRAIN_SHARE, seed: int = 0
) -> FederatedData:
    """The four hospitals in the order of `HOSPITALS`; label 1 is disease of any degree.

    Args:
        standardisation: "public_ranges" scales by declared ranges and is covered by the promise; "by_silo"
            uses mean and deviation of each hospital's training records, as FLamby does, and is noted as not
            covered; "none" leaves the raw values.
        train_share: Share of training records; the split is stratified by label where a hospital has at least
            three records of each, as in FLamby, and is 199/104, 172/89, 30/16 and 85/45 at the default.
        seed: Of the split.
    """
    if standardisation not in ("public_ranges", "by_silo", "none"):
        raise InputError(f"standardisation={standardisation!r} must be 'public_ranges', 'by_silo' or 'none'")
    silos = {
        hospital: split_dataset(
            _hospital(hospital, standardisation), train_share=train_share, seed=(seed, number), stratify=True
        )
        for number, hospital in enumerate(HOSPITALS)
    }
    data = FederatedData("heart_disease", silos)
    return standardise_by_silo(data) if standardisation == "by_silo" else data


def load_published_heart_disease() -> FederatedData:
    """The four hospitals as Fed-Heart-Disease itself splits them, 486 and 254 patients; scaled by public ranges.

    FLamby takes scikit-learn's `train_test_split` with its seed 43 in each hospital. The paper names this data set and
    no split of its own, so it is the likeliest one behind its tables; every split of 66 % has these sizes.
    """
    from sklearn.model_selection import train_test_split

    silos = {}
    for hospital in HOSPITALS:
        dataset = _hospital(hospital, "public_ranges")
        stratify = dataset.labels if np.bincount(dataset.labels).min() > _FEWEST_TO_STRATIFY else None
        train, test = train_test_split(
            np.arange(len(dataset)), train_size=TRAIN_SHARE, random_state=_PUBLISHED_SEED, stratify=stratify
        )
        silos[hospital] = SiloData(dataset.take(np.sort(train)), dataset.take(np.sort(test)))
    return FederatedData("heart_disease", silos)


def _hospital(hospital: str, standardisation: Standardisation) -> Dataset:
    path = find_file(f"heart_disease/processed.{hospital}.data")
    table = np.delete(np.genfromtxt(path, delimiter=",", missing_values="?"), _DROPPED_COLUMNS, axis=1)
    complete = np.flatnonzero(~np.isnan(table).any(axis=1))
    features = _features(table[complete, :-1])
    dataset = Dataset(
        name=f"heart_disease-{hospital}",
        features=features.astype(np.float32),
        labels=(table[complete, -1] > 0).astype(np.int64),
        record_ids=np.array([f"heart-{hospital}-{row:04d}" for row in complete], dtype=np.str_),
        classes=2,
    )
    if standardisation == "public_ranges":
        return dataset.with_features(scale_by_ranges(features, PUBLIC_RANGES), SCALED_BY_RANGES)
    return dataset


def _features(table: NDArray[Any]) -> NDArray[np.float64]:
    """Eight numbers, then the indicators of chest pain and electrocardiogram."""
    numeric = np.delete(table, list(_CATEGORICAL), axis=1)
    indicators = [table[:, column] == level for column, levels in _CATEGORICAL.items() for level in levels]
    return np.column_stack([numeric, *indicators]).astype(np.float64)
