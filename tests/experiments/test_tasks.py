"""The registry: the paper's schedules, and data, model and loss that fit together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rpdp.errors import InputError
from rpdp.experiments import tasks
from rpdp.experiments.data import Dirichlet, FederatedData
from rpdp.experiments.tasks import TASKS, Task, task

EMBEDDED = [entry for entry in TASKS.values() if entry.embedded]


def assert_fits(entry: Task, data: FederatedData) -> None:
    part = next(iter(data.silos.values())).train.take(np.arange(4))
    losses = entry.loss(entry.model()(torch.from_numpy(part.features)), torch.from_numpy(part.labels))
    assert losses.shape == (4,)
    assert torch.isfinite(losses).all()


@pytest.mark.parametrize(
    ("name", "rounds", "local_steps", "participation", "delta"),
    [
        ("heart_disease", 15, 10, 1.0, 1e-3),
        ("mnist", 15, 50, 0.5, 1e-4),
        ("cifar10", 30, 50, 0.5, 1e-4),
        ("snli", 15, 50, 0.5, 1e-4),
    ],
)
def test_schedules_of_the_paper(name: str, rounds: int, local_steps: int, participation: float, delta: float) -> None:
    schedule = task(name).schedule
    assert (schedule.rounds, schedule.local_steps) == (rounds, local_steps)
    assert (schedule.participation, schedule.delta) == (participation, delta)


@pytest.mark.parametrize("entry", EMBEDDED, ids=lambda entry: entry.name)
def test_embedded_tasks_need_no_file(entry: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RPDP_DATA", raising=False)
    assert_fits(entry, entry.load())


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("name", ["heart_disease", "mnist", "cifar10"])
def test_tasks_of_the_paper_fit_together(name: str) -> None:
    entry = task(name)
    data = entry.load(seed=3)
    assert len(data.silos) == (4 if name == "heart_disease" else 10)
    assert_fits(entry, data)


@pytest.mark.usefixtures("real_data")
def test_snli_fits_together_and_says_what_the_encoder_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SNLI_RECORDS", 200)
    entry = task("snli")
    data = entry.load()
    assert len(data.silos) == 10
    assert any("was trained on SNLI" in note for note in data.notes)
    assert_fits(entry, data)


def test_partitions_by_name_or_own() -> None:
    entry = task("digits")
    by_name = entry.load("five_classes")
    assert all(len(np.unique(silo.train.labels)) == 5 for silo in by_name.silos.values())
    assert len(entry.load(Dirichlet(3, 1.0)).silos) == 3
    with pytest.raises(InputError, match="partition='sorted' must be one of iid, five_classes for task digits"):
        entry.load("sorted")
    with pytest.raises(InputError, match="come in silos already"):
        task("heart_disease").load("iid")


def test_seeds_fix_data_and_model() -> None:
    entry = task("digits")
    first, again, other = (entry.load(seed=seed).silos["silo-00"].train.record_ids for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_unknown_task_is_named_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"task 'imagenet' is not known; there are heart_disease, mnist, cifar10"):
        task("imagenet")
