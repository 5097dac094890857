"""rPDP-SGD compared with its rivals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rpdp_lab.central import METHODS, compare

from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp_lab.central import CentralComparison


@pytest.fixture(scope="module")
def found() -> CentralComparison:
    return compare("breast_cancer", [100, 101], quick=True)


def test_every_method_runs_and_beats_guessing(found: CentralComparison) -> None:
    assert [row.method for row in found.rows] == list(METHODS)
    assert all(0.6 < row.accuracy <= 1.0 for row in found.rows)
    assert all(len(row.accuracies) == 2 and row.milliseconds_per_step > 0 for row in found.rows)


def test_batches_are_as_large_as_announced(found: CentralComparison) -> None:
    sampled = [row for row in found.rows if row.method != "Filter"]
    assert all(20 < row.gradients_per_step < 40 for row in sampled)
    (filtered,) = [row for row in found.rows if row.method == "Filter"]
    assert filtered.gradients_per_step == found.records


def test_the_same_seeds_give_the_same_accuracies(found: CentralComparison) -> None:
    again = compare("breast_cancer", [100, 101], quick=True, methods=["rPDP-SGD (certified)"])
    assert again.rows[0].accuracies == found.rows[0].accuracies


def test_the_table_names_delta_and_what_is_not_covered(found: CentralComparison) -> None:
    text = found.to_text()
    assert "δ = 0.001" in text
    assert "simulation" in text
    assert "tuned on other seeds" in text


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(InputError, match="at least one seed"):
        compare("breast_cancer", [])
    with pytest.raises(InputError, match="method 'magic' is not known"):
        compare("breast_cancer", [0], methods=["magic"])
    with pytest.raises(InputError, match="task 'cifar' is not known"):
        compare("cifar", [0])
