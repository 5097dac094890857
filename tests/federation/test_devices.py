"""Where silos train: the device reaches every model, what leaves is on the CPU, what cannot work is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils import backend_registration

from rpdp import BudgetTable
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation import Policy, Silo, run_production, simulate
from rpdp.federation.devices import full_float32, known_device
from rpdp.federation.workers import default_workers
from rpdp.ledger import Ledger
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import FlatModel
from tests.federation.world import (
    admitted,
    announced,
    evaluation,
    make_ids,
    make_model,
    make_public,
    make_records,
    make_silo,
    outcome,
)

if TYPE_CHECKING:
    from torch import nn

PUBLIC = make_public(3, 2)
NAMES = ("north", "south")
CPU_0 = torch.device("cpu", 0)
"""A device object that is there, and is not equal to the default one."""


def federation(*devices: torch.device | str) -> list[Silo]:
    return [make_silo(name, PUBLIC, device=device) for name, device in zip(NAMES, devices, strict=True)]


def go(silos: list[Silo], **changes: Any) -> dict[str, Any]:
    settings = {"seed": 4, "evaluation": evaluation(NAMES), "workers": 1, **changes}
    return outcome(simulate(make_model(), binary_loss, silos, PUBLIC, **settings))


def test_the_device_of_the_silos_reaches_every_model_and_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    make = FlatModel.__init__

    def noted(self: FlatModel, module: nn.Module, device: torch.device | str = "left out", **more: Any) -> None:
        seen.append(device)
        make(self, module, "cpu" if device == "left out" else device, **more)

    usual = go(federation("cpu", "cpu"))
    monkeypatch.setattr(FlatModel, "__init__", noted)
    assert go(federation(CPU_0, CPU_0)) == usual
    # Two silos, a batch on which metrics are tried on the CPU, and the model that is measured.
    assert seen == [CPU_0, CPU_0, "left out", CPU_0]


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"), reason="torch without such devices"
)
def test_whole_runs_on_a_device_that_refuses_to_be_mixed_with_the_cpu() -> None:
    """Every kernel, noise in blocks, pieces, records that fail: the same bits, and no tensor on the wrong side."""
    command = [sys.executable, "-m", "tests.federation.other_device"]
    home = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) == 11
    assert [name for name, is_same in told.items() if not is_same] == []


def test_the_device_is_the_cpu_unless_another_is_wanted() -> None:
    assert make_silo("north", PUBLIC).device == torch.device("cpu")
    assert known_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize("device", ["mps", "meta", "gpu"])
def test_devices_whose_generators_are_not_watched_are_refused(device: str) -> None:
    with pytest.raises(InputError, match=f"device={device} must be one of cpu, cuda"):
        make_silo("north", PUBLIC, device=device)


def test_what_leaves_a_silo_is_moved_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[torch.Tensor] = []

    def noted(self: torch.Tensor) -> torch.Tensor:
        moved.append(self)
        return self

    monkeypatch.setattr(torch.Tensor, "cpu", noted)
    silo, told = admitted("north", PUBLIC), announced(PUBLIC, 1)
    assert silo.begin(told) is True
    trained = silo.train(told)
    assert any(trained.update.change is each for each in moved)


def test_silos_on_several_devices_are_refused_before_any_is_asked() -> None:
    silos = federation("cpu", "cuda")
    with pytest.raises(InputError, match="must share a device, but there are north on cpu, south on cuda"):
        go(silos)
    assert not any(silo.account.status().runs for silo in silos)


def test_a_gpu_is_not_shared_by_workers() -> None:
    silos = federation("cuda", "cuda")
    with pytest.raises(InputError, match="workers=2 with device cuda: forked processes cannot share a GPU"):
        go(silos, workers=2)
    assert not any(silo.account.status().runs for silo in silos)


def test_where_there_is_a_gpu_one_worker_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_workers(parameters=10**6, silos=64) == 1


def test_a_real_run_stays_on_the_cpu(tmp_path: Path) -> None:
    """A record that stops the device would stop the run: rule 12."""
    budgets = BudgetTable(make_ids(12, "north"), [1.0] * 12)
    with Ledger.create(tmp_path / "north.db", budgets, kind="production", lifetime_delta=0.01) as ledger:
        silo = Silo("north", make_records(12), budgets, policy=Policy.of(PUBLIC), account=ledger, device="cuda")
        with pytest.raises(PrivacyRefusal, match="silo north: device cuda is for simulations"):
            run_production(make_model(), binary_loss, [silo], PUBLIC, run="first", checkpoint=tmp_path / "server")
        assert not ledger.status().runs


def test_a_gpu_computes_in_full_float32_and_the_switches_are_put_back() -> None:
    def switches() -> tuple[bool, bool]:
        return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32

    before = switches()
    assert before == (True, False)  # torch's defaults
    with full_float32(torch.device("cpu")):
        assert switches() == before
    with full_float32(torch.device("cuda")):
        assert switches() == (False, False)
    assert switches() == before
