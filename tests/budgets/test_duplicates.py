"""The finder of repeated ids against the plain way with a set."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rpdp.budgets import BudgetTable
from rpdp.budgets import duplicate_ids as duplicates
from rpdp.budgets.duplicate_ids import repeated_ids
from rpdp.errors import BudgetError

TEXTS = st.lists(st.text(alphabet="ab\0é😀", min_size=1, max_size=20), max_size=30)


def repeated_by_sets(ids: list[str]) -> list[str]:
    seen: set[str] = set()
    twice = {text for text in ids if text in seen or seen.add(text)}  # type: ignore[func-returns-value]
    return [text for text in dict.fromkeys(ids) if text in twice]


@settings(deadline=None)  # the machine may be busy
@given(chunks=st.lists(TEXTS, min_size=1, max_size=4), large=st.booleans(), skipped=st.integers(0, 3))
@example(chunks=[["x", "a"], [], ["b", "a"]], large=False, skipped=1)
@example(chunks=[["a" * 8, "a" * 16, "a" * 8]], large=True, skipped=0)
def test_finds_what_a_set_finds(chunks: list[list[str]], large: bool, skipped: int) -> None:
    kind = pa.large_string() if large else pa.string()
    ids = pa.chunked_array(chunks, type=kind).slice(skipped)  # a slice starts inside a buffer
    assert repeated_ids(ids) == repeated_by_sets(ids.to_pylist())


def test_colliding_hashes_are_no_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "_MULTIPLIER", np.uint64(0))  # every hash is 0
    assert repeated_ids(pa.chunked_array([["a", "b", "c"]])) == []
    assert repeated_ids(pa.chunked_array([["a", "b", "a"]])) == ["a"]


def test_one_duplicate_among_many_rows_and_across_chunks() -> None:
    chunks = [[f"r-{number}" for number in range(start, start + 50_000)] for start in (0, 50_000, 100_000)]
    chunks[2][40_000] = "r-17"
    ids = pa.chunked_array(chunks)
    with pytest.raises(BudgetError, match="record id 'r-17' occurs in row 18 and again in row 140001"):
        BudgetTable(ids, [1.0] * len(ids))


def test_very_long_ids_take_little_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "_BYTES_AT_ONCE", 64)
    ids = [letter * 1000 for letter in "abcab"]
    assert repeated_ids(pa.chunked_array([ids])) == ["a" * 1000, "b" * 1000]
