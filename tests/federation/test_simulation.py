"""The simulator: the same bits whatever the number of workers, what a run says of itself, and what goes wrong in it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation import Policy, RoundLog, Silo, simulate
from rpdp.federation.local_training import LocalTraining
from rpdp.federation.workers import WorkerError
from rpdp.ledger import MemoryAccount
from rpdp.planning import BACKBONES, Recipe
from rpdp.tasks.models.losses import binary_loss, cross_entropy
from rpdp.training import Records
from tests.federation.references import SETTINGS
from tests.federation.simulations import MIXED, NAMES, Interrupt, federation, run
from tests.federation.world import (
    FEATURES,
    evaluation,
    is_correct,
    make_model,
    make_public,
    make_recipe,
    make_records,
    make_silo,
    outcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable


# The same bits


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_number_of_workers_changes_no_bit(backbone: str) -> None:
    public = make_public(4, 2, participation=0.7, recipe=make_recipe(backbone, **SETTINGS[backbone]))
    results = [outcome(run(public, workers=workers)) for workers in (1, 2, 3)]
    assert results[0] == results[1] == results[2]
    assert outcome(run(public, seed=5))["values"] != results[0]["values"]


class Small(nn.Sequential):
    """A convolution and a linear layer for 8 × 8 pixels."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


def test_the_number_of_workers_changes_no_bit_of_a_convolutional_model() -> None:
    """Micro-batches of 16 of about 40 drawn records, whatever torch's own number of threads."""

    def images(count: int, seed: int) -> Records:
        generator = torch.Generator().manual_seed(seed)
        pixels = torch.randn(count, 1, 8, 8, generator=generator)
        return Records.of(pixels, torch.randint(3, (count,), generator=generator))

    public = make_public(2, 3, recipe=Recipe(learning_rate=0.3, micro_batch=16))
    results = []
    for workers, threads in ((1, 1), (1, 2), (2, 2), (3, 1)):
        torch.set_num_threads(threads)
        silos = [make_silo(name, public, records=images(80, place)) for place, name in enumerate(NAMES)]
        made = simulate(Small(), cross_entropy, silos, public, seed=1, workers=workers)
        assert torch.get_num_threads() == threads
        results.append(outcome(made))
    assert all(result == results[0] for result in results)
    assert any(results[0]["values"])


def test_the_order_of_silos_changes_no_bit() -> None:
    silos = federation(MIXED)
    assert outcome(run(silos=silos[::-1])) == outcome(run())


def test_measuring_accuracy_changes_no_bit_of_the_model() -> None:
    measured, unmeasured = run(), run(evaluation=None)
    assert torch.equal(measured.values, unmeasured.values)
    assert unmeasured.score is None
    assert measured.score is not None
    assert measured.score.accuracy == measured.rounds[-1].score.accuracy  # type: ignore[union-attr]
    assert all(view.correct is None for view in unmeasured.silos.values())


# What a run says of itself


def test_results_are_marked_as_simulations_and_complete() -> None:
    seen: list[RoundLog] = []
    result = run(on_round=seen.append)
    assert result.is_simulation
    assert result.seed == 4
    assert list(result.rounds) == seen
    assert [log.round for log in seen] == [1, 2, 3, 4, 5]
    joined = {name: tuple(log.round for log in seen if name in log.joined) for name in NAMES}
    assert joined == {name: view.joined for name, view in result.silos.items()}
    for place, name in enumerate(NAMES):
        view = result.silos[name]
        assert len(view.draws) == 10 + 4 * place
        np.testing.assert_allclose(view.expected_draws, 0.5 * 2 * len(view.joined))
        assert view.correct is not None
        assert view.correct.shape == view.draws.shape


def test_the_view_of_training_records_is_that_of_the_final_model() -> None:
    result = run()
    weight, bias = result.values[:FEATURES], result.values[FEATURES]
    for place, name in enumerate(NAMES):
        records = make_records(10 + 4 * place, place)
        expected = ((records.inputs[0] @ weight + bias > 0).long() == records.targets).numpy()
        correct = result.silos[name].correct
        assert correct is not None
        assert correct.tolist() == expected.tolist()


def test_the_model_given_is_not_changed() -> None:
    model = make_model()
    run(model=model, evaluation=None)
    assert all((value == 0.0).all() for value in model.parameters())


def test_every_silo_is_charged_for_every_round() -> None:
    silos = federation(MIXED)
    run(silos=silos)
    assert [silo.account.status().runs[0].announced for silo in silos] == [5, 5, 5]


# Refusals


def test_no_silo_and_equal_names_are_refused_before_anything_is_reserved() -> None:
    with pytest.raises(InputError, match="silos=\\[\\] is empty"):
        simulate(make_model(), binary_loss, [], MIXED, seed=1)
    silos = federation(MIXED, ("north", "west", "north"))
    with pytest.raises(InputError, match="not unique: north, north, west"):
        run(silos=silos)
    assert all(silo.account.status().runs == () for silo in silos)


def test_one_silo_that_does_not_admit_stops_the_run_before_its_first_round() -> None:
    silos = federation(MIXED)
    silos[1].policy = replace(Policy.of(MIXED), max_rounds=4)
    with pytest.raises(PrivacyRefusal, match="rounds=5"):
        run(silos=silos)
    assert all(run.announced == 0 for silo in silos for run in silo.account.status().runs)


def test_a_simulation_can_be_repeated_as_a_notebook_cell_is() -> None:
    silos = federation(MIXED)
    first, again, other = run(silos=silos), run(silos=silos), run(silos=silos, seed=1234)
    assert torch.equal(again.values, first.values)
    assert not torch.equal(other.values, first.values)
    for name, view in first.silos.items():
        np.testing.assert_array_equal(again.silos[name].draws, view.draws)
        np.testing.assert_array_equal(other.silos[name].plan.q, view.plan.q)


def test_a_silo_with_an_account_to_keep_cannot_be_run_twice_on_one_budget() -> None:
    silos = [
        make_silo(name, MIXED, 10 + 4 * place, seed=place, account=MemoryAccount(10 + 4 * place))
        for place, name in enumerate(NAMES)
    ]
    first = run(silos=silos)
    reserved = [silo.account.left(silo.budgets, 0.5).epsilon.copy() for silo in silos]
    again = run(silos=silos)  # the very same run: the same bytes, at no further cost
    assert torch.equal(again.values, first.values)
    for silo, before in zip(silos, reserved, strict=True):
        np.testing.assert_array_equal(silo.account.left(silo.budgets, 0.5).epsilon, before)
    with pytest.raises(PrivacyRefusal, match="runs=2"):
        run(silos=silos, seed=1234)


# Workers


def is_gone(process: int) -> bool:
    """Not even a zombie is left: those still answer to signal 0."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


class Elsewhere:
    """A loss that notes the processes it runs in, and does something else outside of this one."""

    def __init__(self, notes: Path, act: Callable[[], None]) -> None:
        self.home, self.notes, self.act = os.getpid(), notes, act

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        if os.getpid() != self.home:
            with self.notes.open("a") as file:
                file.write(f"{os.getpid()}\n")
            self.act()
        return binary_loss(output, targets)

    def processes(self) -> set[int]:
        return {int(line) for line in self.notes.read_text().split()}


def die() -> None:
    os._exit(1)


def fail() -> None:
    raise MemoryError("no such thing")


def refuse() -> None:
    raise PrivacyRefusal("not this one")


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (die, WorkerError, "a worker process died"),
        (fail, WorkerError, "MemoryError: no such thing"),
        (refuse, PrivacyRefusal, "not this one"),
    ],
    ids=["dies", "fails", "refuses"],
)
def test_what_goes_wrong_in_a_worker_is_told_and_no_process_stays(
    act: Callable[[], None], kind: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of model and loss, whose errors count as a record's own."""
    loss = Elsewhere(tmp_path / "processes", lambda: None)
    monkeypatch.setattr(LocalTraining, "_shift", lambda *_: act())
    with pytest.raises(kind, match=words):
        run(make_public(), loss=loss, workers=2)
    assert loss.processes()
    assert all(is_gone(process) for process in loss.processes())


def test_no_process_stays_after_a_run_or_an_interruption(tmp_path: Path) -> None:
    loss = Elsewhere(tmp_path / "processes", lambda: None)
    run(make_public(), loss=loss, workers=2)
    with pytest.raises(KeyboardInterrupt):
        run(make_public(), loss=loss, workers=2, on_round=Interrupt(2))
    assert 2 <= len(loss.processes()) <= 4
    assert os.getpid() not in loss.processes()
    assert all(is_gone(process) for process in loss.processes())


@pytest.mark.parametrize("workers", [0, -1, 1.5])
def test_an_impossible_number_of_workers_is_refused(workers: Any) -> None:
    with pytest.raises(InputError, match=f"workers={workers}"):
        run(workers=workers)


def test_withdrawals_reach_the_workers() -> None:
    """A record withdrawn after round 1 is not drawn again, whatever process trains."""
    drawn = []
    for workers in (1, 2):
        public = make_public(3, 2)
        silos = [make_silo(name, public, 6, q=1.0) for name in NAMES]

        def withdraw(log: RoundLog, silos: list[Silo] = silos) -> None:
            if log.round == 1:
                for silo in silos:
                    silo.account.switch_off(np.array([2]))  # type: ignore[attr-defined]

        result = simulate(make_model(), binary_loss, silos, public, seed=1, workers=workers, on_round=withdraw)
        drawn.append([result.silos[name].draws.tolist() for name in NAMES])
    assert drawn[0] == drawn[1] == [[6, 6, 2, 6, 6, 6]] * 3


def test_accuracy_is_measured_on_the_averaged_model() -> None:
    result = run(make_public(4, 3, recipe=Recipe(learning_rate=1.0, averaged_rounds=4)))
    tests = evaluation(NAMES)
    hits = 0
    for records in tests.test.values():
        output = records.inputs[0] @ result.values[:FEATURES] + result.values[FEATURES]
        hits += int(is_correct(output, records.targets).sum())
    assert result.score is not None
    assert result.score.accuracy == hits / 120


# Progress


def test_progress_is_shown_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(silos=federation(MIXED))
    assert capsys.readouterr().err == ""  # no terminal here
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    run(silos=federation(MIXED))
    assert "rounds" in capsys.readouterr().err
    seen: list[int] = []
    run(silos=federation(MIXED), on_round=lambda log: seen.append(log.round))
    assert seen == [1, 2, 3, 4, 5]
    assert capsys.readouterr().err == ""
