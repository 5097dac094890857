"""The registry of example tasks: data, model and loss that fit together."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp.errors import InputError
from rpdp.tasks import TASKS, Dirichlet, Task, task
from tests.tasks.fitting import assert_fits


@pytest.mark.parametrize("entry", TASKS.values(), ids=lambda entry: entry.name)
def test_embedded_tasks_need_no_file(entry: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RPDP_DATA", raising=False)
    assert_fits(entry, entry.load())


def test_partitions_by_name_or_own() -> None:
    entry = task("digits")
    by_name = entry.load("five_classes")
    assert all(len(np.unique(silo.train.labels)) == 5 for silo in by_name.silos.values())
    assert len(entry.load(Dirichlet(3, 1.0)).silos) == 3
    with pytest.raises(InputError, match="partition='sorted' must be one of iid, five_classes for task digits"):
        entry.load("sorted")


def test_seeds_fix_data_and_model() -> None:
    entry = task("digits")
    first, again, other = (entry.load(seed=seed).silos["silo-00"].train.record_ids for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_unknown_task_is_named_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"task 'imagenet' is unknown; choose one of breast_cancer, digits, mnist_5k"):
        task("imagenet")
