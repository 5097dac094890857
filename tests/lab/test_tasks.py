"""The paper's tasks: its schedules, and data, model and loss that fit together."""

from __future__ import annotations

import pytest
from rpdp_lab import tasks
from rpdp_lab.tasks import task

from rpdp.errors import InputError
from tests.tasks.fitting import assert_fits


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


def test_data_that_come_in_silos_take_no_partition() -> None:
    with pytest.raises(InputError, match="already come in silos"):
        task("heart_disease").load("iid")


def test_an_unknown_task_is_named_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"task 'imagenet' is not known; there are .*heart_disease, mnist, cifar10"):
        task("imagenet")
