"""Withdrawals and lowered budgets reach the process that trains at the very next step (privacy.md, section 8)."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from rpdp import BudgetTable
from rpdp.errors import PrivacyRefusal
from rpdp.federation import model_fingerprint
from rpdp.federation.local_training import LocalTraining
from rpdp.federation.silo import TooLate
from rpdp.federation.training_process import TrainingProcess
from rpdp.ledger import Action, Ledger, MemoryAccount
from rpdp.ledger.stewardship import directory_watch
from rpdp.sampling import Seeded
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import FlatModel, make_kernel
from tests.federation.world import admit, announced, make_ids, make_model, make_public, make_silo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rpdp.federation import Silo
    from rpdp.ledger import Account
    from rpdp.ledger.stewardship.actions import ActionKind
    from rpdp.training import NoisyStep, Records

RECORDS, STEPS, AT, WHO = 12, 40, 7, 3
PUBLIC = make_public(rounds=3, local_steps=STEPS, model_fingerprint=model_fingerprint(make_model()))
ALL = [STEPS] * RECORDS
WITHOUT = [AT if record == WHO else STEPS for record in range(RECORDS)]
"""Drawn in all steps before it was withdrawn, and in none after."""

SECOND = 10**9


class Asked(Ledger):
    """Counts the questions."""

    times = 0

    def switched_off(self, run: str | None = None) -> NDArray[np.int64]:
        self.times += 1
        return super().switched_off(run)


class AskedMemory(MemoryAccount):
    """Counts the questions. A record is withdrawn in the agent's process, after some steps."""

    times = 0

    def switched_off(self, run: str | None = None) -> NDArray[np.int64]:
        if self.times == AT:
            self.switch_off(np.array([WHO]))
        self.times += 1
        return super().switched_off(run)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Asked]:
    """Nothing has arrived in its inbox for a while."""
    table = BudgetTable(make_ids(RECORDS, "a"), np.ones(RECORDS))
    with Asked.create(tmp_path / "ledger.db", table, kind="simulation", lifetime_delta=0.01) as made:
        change_stamp(inbox_of(tmp_path), 10 * SECOND)
        yield made


def inbox_of(folder: Path) -> Path:
    return folder / "ledger.db.inbox"


def change_stamp(directory: Path, ago: int) -> None:
    then = time.time_ns() - ago
    os.utime(directory, ns=(then, then))


def stop_time(monkeypatch: pytest.MonkeyPatch, inbox: Path, ago: int) -> None:
    """From now on the inbox has changed so long ago, whatever arrives: as within one tick of its file system.

    Before the training process is made, which inherits it.
    """
    status, stat = inbox.stat(), Path.stat
    clock = SimpleNamespace(time_ns=lambda: status.st_mtime_ns + ago)
    monkeypatch.setattr(directory_watch, "time", clock)
    monkeypatch.setattr(Path, "stat", lambda path, **more: status if path == inbox else stat(path, **more))


@contextmanager
def trained_elsewhere(account: Account, after_step: Callable[[], object]) -> Iterator[Silo]:
    """A silo that draws every record in every step, and a process that does something after step `AT` of each round.

    Its steps compute nothing, so that the next one begins within microseconds.
    """

    class Interrupted(LocalTraining):
        done = 0

        def _release(self, step: NoisyStep, records: Records, drawn: NDArray[np.int64]) -> None:
            self._kernel.model.values.grad = torch.zeros_like(self._kernel.model.values.data)
            self.done += 1
            if self.done == AT:
                after_step()

    silo = make_silo("a", PUBLIC, RECORDS, q=1.0, account=account)
    admit(silo, PUBLIC)
    kernel = make_kernel(FlatModel(make_model()), binary_loss, silo.records)
    kernels = {str(PUBLIC.model_fingerprint): kernel}
    silo.trainer = TrainingProcess(kernels, silo.records, lambda: Seeded(1).child("a"), training=Interrupted)
    try:
        yield silo
    finally:
        silo.trainer.close()


def draws(silo: Silo, number: int) -> list[int]:
    assert silo.begin(announced(PUBLIC, number)) is True
    drawn: list[int] = silo.train(announced(PUBLIC, number)).draws.tolist()
    return drawn


class Courier:
    """Brings an action that a steward has prepared to the inbox, from any process and without a pause."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self._ledger = ledger
        self._folder = folder

    def prepare(self, kind: ActionKind) -> None:
        """Withdraw a record, or lower its budget of 1 below the 0.1 that the run has booked."""
        epsilon = np.array([np.nan if kind == "withdraw" else 0.05])
        record = self._ledger.key.record(f"a{WHO}").reshape(1, 2)
        action = Action(kind, self._ledger.id, record, epsilon, np.array([np.nan]))
        (self._folder / f"{1:020d}-{action.name}.action").write_bytes(action.to_bytes())

    def bring(self) -> None:
        for prepared in self._folder.glob("*.action"):
            prepared.rename(inbox_of(self._folder) / prepared.name)


@pytest.mark.parametrize("kind", ["withdraw", "lower"])
@pytest.mark.parametrize("stamp", ["new", "same"])
def test_what_arrives_between_two_steps_is_in_force_at_the_next(
    ledger: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: ActionKind, stamp: str
) -> None:
    """Also if the directory changed a second ago and has no new time stamp. The control is the first round."""
    if stamp == "same":
        stop_time(monkeypatch, inbox_of(tmp_path), ago=SECOND)
    courier = Courier(ledger, tmp_path)
    with trained_elsewhere(ledger, courier.bring) as silo:
        assert draws(silo, 1) == ALL
        courier.prepare(kind)
        assert draws(silo, 2) == WITHOUT


def test_without_the_wait_for_a_time_stamp_to_settle_it_would_be_missed(
    ledger: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the one above: a time stamp that stays the same although it has settled hides the arrival."""
    stop_time(monkeypatch, inbox_of(tmp_path), ago=10 * SECOND)
    courier = Courier(ledger, tmp_path)
    courier.prepare("withdraw")
    with trained_elsewhere(ledger, courier.bring) as silo:
        assert draws(silo, 1) == ALL


def test_a_quiet_round_costs_one_question(ledger: Asked) -> None:
    with trained_elsewhere(ledger, lambda: None) as silo:
        draws(silo, 1)
        assert ledger.times == 1
        draws(silo, 2)
        assert ledger.times == 2


def test_a_round_soon_after_an_arrival_asks_at_every_step(
    ledger: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the one above: the count sees every question."""
    stop_time(monkeypatch, inbox_of(tmp_path), ago=SECOND)
    with trained_elsewhere(ledger, lambda: None) as silo:
        draws(silo, 1)
        assert ledger.times == STEPS


def test_the_inbox_has_one_path_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a ledger that was opened by a relative one: another process may have another working directory."""
    monkeypatch.chdir(tmp_path)
    table = BudgetTable(make_ids(RECORDS, "a"), np.ones(RECORDS))
    with Ledger.create("ledger.db", table, kind="simulation", lifetime_delta=0.01) as ledger:
        assert ledger.inbox_directory == inbox_of(tmp_path)


def replace_by_a_file(inbox: Path) -> None:
    inbox.rmdir()
    inbox.touch()
    change_stamp(inbox, 10 * SECOND)


@pytest.mark.parametrize("gone", [Path.rmdir, replace_by_a_file], ids=["missing", "a file"])
def test_an_inbox_that_goes_between_two_steps_ends_the_round(
    ledger: Asked, tmp_path: Path, gone: Callable[[Path], None]
) -> None:
    """A withdrawal could not take effect. The control: once it is back, the next round is trained."""
    going = tmp_path / "going"
    going.touch()

    def go() -> None:
        if going.exists():
            gone(inbox_of(tmp_path))

    with trained_elsewhere(ledger, go) as silo:
        with pytest.raises(PrivacyRefusal, match="so a withdrawal could not take effect"):
            draws(silo, 1)
        going.unlink()
        inbox_of(tmp_path).unlink(missing_ok=True)
        inbox_of(tmp_path).mkdir()
        assert draws(silo, 2) == ALL


def test_an_account_in_memory_is_asked_at_every_step() -> None:
    """Another process cannot see what happens in it."""
    account = AskedMemory(RECORDS)
    assert account.inbox_directory is None
    with trained_elsewhere(account, lambda: None) as silo:
        assert draws(silo, 1) == WITHOUT
        assert account.times == STEPS


def test_a_result_that_comes_just_after_the_time_is_not_used() -> None:
    """It may come between two looks at the clock."""
    with trained_elsewhere(MemoryAccount(RECORDS), lambda: None) as silo:
        for number, is_late in ((1, True), (2, False)):
            asked = itertools.count()

            def in_time(is_late: bool = is_late, asked: Iterator[int] = asked) -> bool:
                return not is_late or next(asked) < STEPS  # once before each step, then when the result is there

            assert silo.begin(announced(PUBLIC, number)) is True
            if is_late:
                with pytest.raises(TooLate):
                    silo.train(announced(PUBLIC, number), in_time)
            else:
                silo.train(announced(PUBLIC, number), in_time)  # the process that trains is still there


def test_a_round_for_which_no_process_is_there_in_time_sits_out() -> None:
    """Whatever keeps the next one from being made. The control: the round after it is trained."""
    with trained_elsewhere(MemoryAccount(RECORDS), lambda: None) as silo:
        assert silo.trainer is not None
        draws(silo, 1)
        keeper = silo.trainer._keeper.pid
        assert keeper is not None
        os.kill(keeper, signal.SIGSTOP)
        try:
            silo.trainer._end_trainer()
            looks = itertools.count()
            assert silo.begin(announced(PUBLIC, 2)) is True
            with pytest.raises(TooLate):
                silo.train(announced(PUBLIC, 2), lambda: next(looks) < 3)
        finally:
            os.kill(keeper, signal.SIGCONT)
        assert draws(silo, 3) == ALL


def test_what_torch_loads_late_is_loaded_before_the_first_round() -> None:
    """In a round it would take a second, of every trainer anew: answers would be late."""
    program = (
        "import sys\n"
        "from rpdp.federation import training_process\n"
        "print('torch._dynamo' in sys.modules)\n"
        "training_process._warm_up()\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert shown.stdout.split() == ["False", "True"]
