"""Real runs that were killed, and files put back or lost: nothing is charged twice, no older state is believed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.budgets import BudgetTable
from rpdp.federation import Silo
from rpdp.ledger import Ledger
from rpdp.planning import Status
from rpdp.studies import read_result
from tests.studies.steward import SILOS

if TYPE_CHECKING:
    import pytest

    from tests.studies.steward import Steward
    from tests.studies.toy import Change


def _until(log: Path, rounds: int) -> None:
    deadline = time.monotonic() + 300
    while not (log.exists() and log.read_text().count("\n") >= rounds) and time.monotonic() < deadline:
        time.sleep(0.01)


def _killed(steward: Steward, *changes: Change) -> Path:
    """A run that was killed after some rounds."""
    path = steward.writes(("schedule.rounds", "60"), ("privacy.noise_multiplier", "8"), *changes)
    code = "from rpdp.cli import main; main()"
    process = subprocess.Popen([sys.executable, "-c", code, "train", str(path)], cwd=steward.home)
    _until(steward.home / "study" / "spring" / "rounds.jsonl", 3)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    return path


def _account(steward: Steward, silo: str) -> tuple[str, int, Any]:
    with Ledger.read(steward.home / silo / "ledger.db") as ledger:
        status = ledger.status().runs[0]
        table = BudgetTable.read(steward.home / f"{silo}.csv")
        return status.run, status.announced, ledger.left(table, 1e-3).amount.tolist()


def test_a_killed_run_goes_on(steward: Steward) -> None:
    steward.creates()
    path = _killed(steward)
    before = {silo: _account(steward, silo) for silo in SILOS}
    assert all(3 <= announced < 60 for _, announced, _ in before.values())
    assert steward.types("train", path) == 2
    assert "(--resume)" in steward.err
    assert steward.types("train", path, "--resume") == 0
    for silo in SILOS:
        assert steward.runs(silo) == [("spring", 60)]
        assert _account(steward, silo)[2] == before[silo][2]  # what is booked was booked once
    assert len(Path("study/spring/rounds.jsonl").read_text().splitlines()) == 60
    assert steward.types("report", "study/spring", "--out", "again.html") == 0


def test_a_run_that_goes_on_reports_the_same_budgets(steward: Steward, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an earlier run, a withdrawal and a lowered budget; what happens after admission changes nothing of it."""
    steward.creates()
    winter = steward.writes(("run.id", '"winter"'), ("privacy.noise_multiplier", "20"), name="winter.toml")
    assert steward.types("train", winter) == 0
    assert steward.types("ledger", "withdraw", "a/ledger.db", "a-7") == 0
    assert steward.types("ledger", "lower", "a/ledger.db", "a-3", "--epsilon", "2") == 0
    assert steward.types("ledger", "lower", "a/ledger.db", "a-5", "--delta", "1.5e-4") == 0
    whole = shutil.copytree(steward.home, steward.home.with_name("whole"))
    path = _killed(steward)
    assert steward.types("ledger", "withdraw", "a/ledger.db", "a-11") == 0
    assert steward.types("ledger", "lower", "a/ledger.db", "a-13", "--epsilon", "0.01") == 0
    assert steward.types("train", path, "--resume") == 0
    resumed = read_result(Path("study/spring"))
    for made in steward.home.glob("*toy*.py"):
        shutil.copy(made, whole)
    shutil.copy(path, whole)
    monkeypatch.chdir(whole)
    assert steward.types("train", "run.toml") == 0
    undisturbed = read_result(Path("study/spring"))
    for silo in SILOS:
        one, other = resumed.silos[silo].plan, undisturbed.silos[silo].plan
        for column in ("budget", "q", "cost", "status"):
            assert getattr(one, column).tolist() == getattr(other, column).tolist(), column
    plan = resumed.silos["a"].plan
    assert (Status(plan.status[7]).name, plan.q[7]) == ("BUDGET_TOO_SMALL", 0.0)  # withdrawn
    assert 0.0 < plan.q[5] < plan.q[1]  # a smaller δ is a smaller Rényi account
    assert (plan.cost < plan.budget).sum() > 30  # the control: budgets are not what was reserved
    assert len(set(plan.budget.tolist())) > 3


def test_ctrl_c_in_the_first_round(steward: Steward, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is on the server's side yet; the ledgers know of the run."""
    steward.creates()
    path = steward.writes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Silo.training, "run", interrupted)
        assert steward.types("train", path) == 130
    assert f"Continue with: rpdp train {path} --resume" in steward.err
    assert not Path("study").exists()
    assert steward.types("train", path) == 2
    assert "continue that run (--resume)" in steward.err
    assert steward.types("train", path, "--resume") == 0
    assert [log.joined for log in read_result(Path("study/spring")).rounds] == [(), SILOS, SILOS]
    assert steward.runs("a") == [("spring", 3)]


def test_a_used_ledger_that_the_server_does_not_know_is_refused(steward: Steward) -> None:
    """Without its memory the server could not tell a restored backup; with it, the same run goes through."""
    steward.creates()
    assert steward.types("train", steward.writes()) == 0
    kept = Path("study/heads.json").rename("kept.json")
    later = steward.writes(("run.id", '"summer"'), name="later.toml")
    assert steward.types("train", later) == 3
    assert "silo a: its ledger has earlier runs (spring)" in steward.err
    assert steward.runs("a") == [("spring", 3)]
    kept.rename("study/heads.json")
    assert steward.types("train", later) == 0


def test_a_run_whose_heads_are_lost_does_not_go_on(steward: Steward) -> None:
    """The ledger remembers that a server has acknowledged something; with the file put back the run goes on."""
    steward.creates()
    path = _killed(steward)
    kept = Path("study/heads.json").rename("kept.json")
    before = steward.runs("a")
    assert steward.types("train", path, "--resume") == 3
    assert "silo a: a server has acknowledged" in steward.err
    assert "heads.json has no head of it" in steward.err
    assert steward.runs("a") == before
    kept.rename("study/heads.json")
    assert steward.types("train", path, "--resume") == 0
    assert steward.runs("a") == [("spring", 60)]


def test_a_backup_put_back_is_refused(steward: Steward) -> None:
    steward.creates()
    shutil.copytree("a", "backup")
    assert steward.types("train", steward.writes()) == 0
    shutil.rmtree("a")
    shutil.copytree("backup", "a")
    later = steward.writes(("run.id", '"summer"'), name="later.toml")
    for command in (["train", later], ["train", later, "--resume"]):
        assert steward.types(*command) == 3
        assert "silo a: this ledger is older than its acknowledged state" in steward.err
    assert not Path("study/summer").exists()
    assert steward.runs("b") == [("spring", 3)]
