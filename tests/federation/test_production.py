"""Real runs on one machine: ledgers under the silos, secure randomness, and nothing charged twice after a crash."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from rpdp import BudgetTable
from rpdp.errors import PrivacyRefusal
from rpdp.federation import Announcement, Policy, RoundLog, RunResult, Silo, run_production, simulate
from rpdp.federation.heads import read_heads
from rpdp.ledger import Ledger, MemoryAccount
from rpdp.sampling import Secure
from rpdp.tasks.models.losses import binary_loss
from tests.federation.world import evaluation, make_ids, make_model, make_public, make_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rpdp.planning import PublicPlan

NAMES = ("north", "south")
PUBLIC = make_public(6, 3, participation=0.6)
POLICY = replace(Policy.of(PUBLIC), max_runs=3, max_participation=1.0, lifetime_delta=0.01, max_share_per_run=0.5)


def budgets(name: str) -> BudgetTable:
    return BudgetTable(make_ids(30, name), np.tile([0.5, 1.0, 4.0], 10))


@contextmanager
def silos(folder: Path) -> Iterator[list[Silo]]:
    """Two silos on their ledgers, which are made at the first call and opened at later ones."""
    with ExitStack() as stack:
        made = []
        for seed, name in enumerate(NAMES):
            path = folder / f"{name}.db"
            if path.exists():
                ledger = Ledger.open(path)
            else:
                ledger = Ledger.create(path, budgets(name), kind="production", lifetime_delta=0.01, account="sums")
            account = stack.enter_context(ledger)
            made.append(Silo(name, make_records(30, seed), budgets(name), policy=POLICY, account=account))
        yield made


def go(
    made: Sequence[Silo], folder: Path, run: str = "first", public: PublicPlan = PUBLIC, **more: object
) -> RunResult:
    return run_production(
        make_model(), binary_loss, made, public, run=run, checkpoint=folder / f"server-{run}",
        evaluation=evaluation(NAMES), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def booked(folder: Path) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Announced and joined rounds by silo, after checking the whole ledger."""
    found = {}
    for name in NAMES:
        with Ledger.read(folder / f"{name}.db") as ledger:
            assert ledger.verify().is_good
            found[name] = (ledger.status().runs[0].announced, ledger.status().runs[0].joined)
    return found


def test_a_real_run_is_no_simulation_and_is_booked(tmp_path: Path) -> None:
    with silos(tmp_path) as made:
        result = go(made, tmp_path)
    assert not result.is_simulation
    assert [view.overdrawn for view in result.silos.values()] == [0, 0]
    for name, (announced, joined) in booked(tmp_path).items():
        assert announced == 6
        assert joined == result.silos[name].joined
    with silos(tmp_path) as made:
        for silo in made:
            left = silo.account.left(silo.budgets, 0.01).epsilon
            np.testing.assert_allclose(left, silo.budgets.epsilon - result.silos[silo.name].plan.cost, atol=1e-9)


def test_two_real_runs_differ(tmp_path: Path) -> None:
    """The control for a seed that crept in: nobody can repeat a real run."""
    values = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with silos(folder) as made:
            values.append(go(made, folder).values)
    assert not torch.equal(values[0], values[1])


class Stop(Exception):
    """As if the process had died."""


@pytest.mark.parametrize("after", [1, 3, 5])
def test_an_interrupted_run_goes_on_and_charges_nothing_twice(tmp_path: Path, after: int) -> None:
    def stop(log: RoundLog) -> None:
        if log.round == after:
            raise Stop

    with silos(tmp_path) as made, pytest.raises(Stop):
        go(made, tmp_path, on_round=stop)
    before = booked(tmp_path)
    assert all(announced == after for announced, _ in before.values())
    with silos(tmp_path) as made:
        result = go(made, tmp_path)
    assert len(result.rounds) == 6
    for name, (announced, joined) in booked(tmp_path).items():
        assert announced == 6
        assert joined[: len(before[name][1])] == before[name][1]


def test_a_round_that_was_charged_and_not_finished_sits_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = make_public(2, 3, participations=2)  # both rounds are joined for certain
    with silos(tmp_path) as made:
        monkeypatch.setattr(made[1], "compute", _die)
        with pytest.raises(Stop):
            go(made, tmp_path, public=public)
    with silos(tmp_path) as made:
        result = go(made, tmp_path, public=public)
    assert [log.joined for log in result.rounds] == [("north",), ("north", "south")]
    assert booked(tmp_path) == {"north": (2, (1, 2)), "south": (2, (1, 2))}  # the lost round counts as joined


def _die(*_: object) -> None:
    raise Stop


# Two phases


def left(made: Sequence[Silo]) -> list[list[float]]:
    return [silo.account.left(silo.budgets, 0.01).epsilon.tolist() for silo in made]


class FullDisk(PrivacyRefusal):
    """What SQLite's FULL becomes."""


def _no_space(*_: object, **__: object) -> None:
    raise FullDisk("the disk is full")


@pytest.mark.parametrize("failure", ["policy", "full disk", "a fault"])
def test_a_silo_that_does_not_admit_costs_nobody_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    """The first silo has reserved already when the second one refuses, fails or finds its disk full."""
    with silos(tmp_path) as made:
        before = left(made)
        with monkeypatch.context() as broken:
            if failure == "policy":
                made[1].policy = replace(POLICY, max_rounds=5)
            else:
                broken.setattr(made[1].account, "reserve", _no_space if failure == "full disk" else _fault)
            with pytest.raises((PrivacyRefusal, ZeroDivisionError)) as raised:
                go(made, tmp_path)
        assert left(made) == before
        said = str(raised.value) + "".join(getattr(raised.value, "__notes__", []))
        assert "Nobody is charged: run 'first' is cancelled at north. A cancelled run never returns" in said
        made[1].policy = POLICY
        with pytest.raises(PrivacyRefusal, match="'first' was cancelled before its first round"):
            go(made, tmp_path)
        assert len(go(made, tmp_path, run="second").rounds) == 6
    for name in NAMES:
        with Ledger.read(tmp_path / f"{name}.db") as ledger:
            assert ledger.verify().is_good


def _fault(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a fault in somebody's code")


def test_a_run_that_has_begun_is_not_cancelled(tmp_path: Path) -> None:
    """Its rounds are charged at one silo; the other one, which has not begun, must be there to go on."""
    with silos(tmp_path) as made:
        for silo in made:
            silo.admit("first", PUBLIC, make_model(), binary_loss, Secure())
        made[0].begin(Announcement("first", PUBLIC.fingerprint, 1, torch.zeros(5)))
        made[0].policy = replace(POLICY, max_rounds=5)
        with pytest.raises(PrivacyRefusal, match="policy"):
            go(made, tmp_path)
        assert [silo.account.status().runs[0].state for silo in made] == ["committed", "held"]
        made[0].policy = POLICY
        assert len(go(made, tmp_path).rounds) == 6


def test_a_run_that_was_held_when_the_process_died_goes_on(tmp_path: Path) -> None:
    with silos(tmp_path) as made:
        made[0].admit("first", PUBLIC, make_model(), binary_loss, Secure())
    with silos(tmp_path) as made:
        assert made[0].holds("first")
        assert len(go(made, tmp_path).rounds) == 6


def test_a_changed_plan_needs_a_new_name(tmp_path: Path) -> None:
    with silos(tmp_path) as made:
        go(made, tmp_path)
        with pytest.raises(PrivacyRefusal, match="a changed plan is a new run"):
            go(made, tmp_path, public=replace(PUBLIC, normaliser=PUBLIC.normaliser + 1.0))


def test_a_second_run_is_planned_from_what_is_left(tmp_path: Path) -> None:
    with silos(tmp_path) as made:
        for silo in made:
            silo.policy = replace(POLICY, max_share_per_run=0.8)
        first = go(made, tmp_path)
        second = go(made, tmp_path, run="second")
    for name in NAMES:
        plans = first.silos[name].plan, second.silos[name].plan
        assert (plans[0].cost + plans[1].cost <= budgets(name).epsilon + 1e-9).all()
        assert (plans[0].cost <= 0.8 * budgets(name).epsilon).all()
        assert (plans[0].delta + plans[1].delta <= 0.01).all()
        assert 0.0 < plans[1].q.sum() < 0.5 * plans[0].q.sum()  # the first one took most of it


def test_seeds_and_ledgers_of_production_do_not_mix(tmp_path: Path) -> None:
    with silos(tmp_path) as made, pytest.raises(PrivacyRefusal, match="seeded runs are simulations"):
        simulate(make_model(), binary_loss, made, PUBLIC, seed=1)
    with silos(tmp_path) as made:
        made[0].account = MemoryAccount(30)
        with pytest.raises(PrivacyRefusal, match="production ledger"):
            go(made, tmp_path)


def test_a_ledger_put_back_from_a_backup_is_refused_by_the_servers_heads(tmp_path: Path) -> None:
    """The whole directory of the silo is restored, with everything that lies beside the ledger."""
    home, backup = tmp_path / "silos", tmp_path / "backup"
    home.mkdir()

    def stop(log: RoundLog) -> None:
        if log.round == 2:
            raise Stop

    with silos(home):
        pass
    shutil.copytree(home, backup)
    with silos(home) as made, pytest.raises(Stop):
        go(made, tmp_path, on_round=stop)
    kept = read_heads(tmp_path / "server-first" / "heads.json")
    assert sorted(kept) == list(NAMES)
    shutil.rmtree(home)
    shutil.copytree(backup, home)
    with silos(home) as made, pytest.raises(PrivacyRefusal, match="silo north: this ledger is older than its acknow"):
        go(made, tmp_path)
    assert all(not Ledger.read(home / f"{name}.db").status().runs for name in NAMES)  # nobody was asked anything


def test_a_silo_cannot_come_back_with_a_new_ledger(tmp_path: Path) -> None:
    home = tmp_path / "silos"
    home.mkdir()
    with silos(home) as made:
        go(made, tmp_path)
    shutil.rmtree(home)
    home.mkdir()
    with silos(home) as made, pytest.raises(PrivacyRefusal, match="the acknowledged head belongs to ledger"):
        go(made, tmp_path)
