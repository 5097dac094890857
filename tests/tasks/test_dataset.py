"""Data sets check themselves, keep ids and notes through cuts, and pool again."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp.errors import InputError
from rpdp.tasks.dataset import Dataset, FederatedData, SiloData, concatenate


def make(rows: int = 4, prefix: str = "r", notes: tuple[str, ...] = ("a note",)) -> Dataset:
    return Dataset(
        name="small",
        features=np.arange(rows * 2, dtype=np.float32).reshape(rows, 2),
        labels=np.arange(rows) % 2,
        record_ids=np.array([f"{prefix}{row}" for row in range(rows)], dtype=np.str_),
        classes=2,
        notes=notes,
    )


def test_take_keeps_ids_and_notes() -> None:
    part = make().take(np.array([3, 1]))
    assert part.record_ids.tolist() == ["r3", "r1"]
    assert part.features[:, 0].tolist() == [6, 2]
    assert part.labels.tolist() == [1, 1]
    assert part.notes == ("a note",)


def test_first_checks_its_limit() -> None:
    assert len(make().first(2)) == 2
    assert len(make().first(None)) == 4
    with pytest.raises(InputError, match="limit=5 must lie between 1 and the 4 records"):
        make().first(5)


def test_wrong_contents_are_named() -> None:
    good = make()
    with pytest.raises(InputError, match="4 rows of features, 3 labels and 4 record ids"):
        Dataset("small", good.features, good.labels[:3], good.record_ids, 2)
    with pytest.raises(InputError, match="record ids are not unique"):
        Dataset("small", good.features, good.labels, np.array(["a", "b", "a", "c"]), 2)
    with pytest.raises(InputError, match="labels range from 0 to 1, but must lie between 0 and 0"):
        Dataset("small", good.features, good.labels, good.record_ids, 1)


def test_an_empty_data_set_is_allowed() -> None:
    assert len(make(0)) == 0


def test_pooling_keeps_the_order_of_silos() -> None:
    data = FederatedData(
        "two",
        {
            "z": SiloData(make(2, "z"), make(1, "zt")),
            "a": SiloData(make(3, "a", ("a note", "more")), make(1, "at")),
        },
    )
    pooled = data.pooled()
    assert pooled.train.record_ids.tolist() == ["z0", "z1", "a0", "a1", "a2"]
    assert pooled.test.record_ids.tolist() == ["zt0", "at0"]
    assert data.notes == pooled.train.notes == ("a note", "more")
    assert data.classes == 2


def test_records_shared_by_silos_are_refused_when_pooled() -> None:
    with pytest.raises(InputError, match="not unique"):
        concatenate([make(2), make(2)], "twice")


def test_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="no silo"):
        FederatedData("none", {})
    with pytest.raises(InputError, match="nothing to concatenate"):
        concatenate([], "none")
