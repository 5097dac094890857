"""Records from arrays, frames and data sets: the same tensors, with ids and subjects that travel with their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from rpdp import BudgetTable, Policy, PublicPlan, Schedule, Silo
from rpdp.errors import BudgetError, InputError
from rpdp.training import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
Y = np.array([0, 1, 1])
IDS = ["a", "b", "c"]
FRAME = {"id": IDS, "age": X[:, 0], "weight": X[:, 1], "ill": Y}


class HuggingFaceLike:
    """What a Hugging Face data set offers, as far as records need it."""

    column_names: ClassVar[list[str]] = list(FRAME)

    def with_format(self, kind: str) -> HuggingFaceLike:
        assert kind == "numpy"
        return self

    def __getitem__(self, rows: slice) -> dict[str, Any]:
        return {name: np.asarray(column)[rows] for name, column in FRAME.items()}


class Stream(IterableDataset[tuple[np.ndarray[Any, Any], int]]):
    def __iter__(self) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
        return iter([(row, int(y)) for row, y in zip(X, Y, strict=True)])


class Uneven(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(row + 1), 0


SOURCES: dict[str, Callable[[], Records]] = {
    "tensors": lambda: Records.of(torch.tensor(X, dtype=torch.float32), torch.tensor(Y), ids=IDS),
    "arrays": lambda: Records.of(X, Y, ids=np.array(IDS)),
    "a mapping of columns": lambda: Records.of(FRAME, "ill", ids="id"),
    "an Arrow table": lambda: Records.of(pa.table(FRAME), "ill", ids="id"),
    "a Hugging Face data set": lambda: Records.of(HuggingFaceLike(), "ill", ids="id"),
    "named columns": lambda: Records.of({**FRAME, "room": [7, 8, 9]}, "ill", ids="id", columns=["age", "weight"]),
    "a torch data set": lambda: Records.of(
        TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(Y)), ids=IDS
    ),
    "an iterable data set": lambda: Records.of(Stream(), ids=IDS),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_records(source: str) -> None:
    records = SOURCES[source]()
    assert torch.equal(records.inputs[0], torch.tensor(X, dtype=torch.float32))
    assert records.targets.tolist() == Y.tolist()
    assert records.targets.dtype == torch.int64
    assert records.ids is not None
    assert records.ids.tolist() == IDS


def test_columns_of_arrays_and_several_inputs() -> None:
    tokens = {"tokens": [[1, 2], [3, 4]], "label": [0.5, 1.5]}
    records = Records.of(tokens, "label")
    assert records.inputs[0].tolist() == [[1, 2], [3, 4]]
    assert records.targets.dtype == torch.float32
    both = Records.of((X, Y), Y)
    assert [tensor.shape for tensor in both.inputs] == [(3, 2), (3,)]


def test_truth_values_are_numbers() -> None:
    records = Records.of({"smokes": [True, False], "ill": [False, True]}, "ill")
    assert records.inputs[0].tolist() == [[1.0], [0.0]]
    assert records.targets.tolist() == [0, 1]


def test_ids_and_subjects_travel_with_their_rows() -> None:
    records = Records.of(X, Y, ids=IDS, subjects=["p", "q", "q"])
    for part in (records.select([0, 2]), records.to("cpu").select(torch.tensor([0, 2]))):
        assert part.ids is not None
        assert part.subjects is not None
        assert part.ids.tolist() == ["a", "c"]
        assert part.subjects.tolist() == ["p", "q"]
    last = list(records.chunks(2))[-1]
    assert last.ids is not None
    assert last.ids.tolist() == ["c"]


def test_a_silo_finds_budgets_by_the_ids_of_its_records() -> None:
    budgets = BudgetTable(["c", "a", "b"], [3.0, 1.0, 2.0])
    public = PublicPlan(
        Schedule(2, 2, participations=2), noise_multiplier=5.0, delta=1e-3, clip_norm=1.0, normaliser=1, weights=1.0
    )
    policy = Policy.of(public)
    assert Silo("north", Records.of(X, Y, ids=IDS), budgets, policy=policy).budgets.epsilon.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(BudgetError, match="'z'"):
        Silo("north", Records.of(X, Y, ids=["a", "b", "z"]), budgets, policy=policy)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Records.of(X), "targets is missing"),
        (lambda: Records.of(X, "ill"), "not a frame"),
        (lambda: Records.of(FRAME, "sick"), "no column 'sick'.*id, age, weight, ill"),
        (lambda: Records.of(FRAME, "ill"), "column 'id' has values of type.*not a number"),
        (lambda: Records.of({"ill": Y}, "ill"), "no column is left"),
        (lambda: Records.of(X, Y, columns=["age"]), "columns= is for a frame"),
        (lambda: Records.of(X, Y, ids=["a"]), "1 ids for 3 records"),
        (lambda: Records.of(X, Y, subjects=["a", None, "b"]), "subjects has None"),
        (lambda: Records.of(X, Y, ids=[1.0, float("nan"), 2.0]), "which is no id"),
        (lambda: Records.of({"t": [[1], [2]], "u": [1, 2], "y": [0, 1]}, "y"), "column 't' holds arrays"),
        (lambda: Records.of(Uneven()), "another shape from item to item"),
        (lambda: Records.of(TensorDataset(torch.zeros(0, 2), torch.zeros(0))), "data set is empty"),
        (lambda: Records.of(TensorDataset(torch.zeros(3, 2))), "must be \\(input, target\\)"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(make: Callable[[], Records], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()
