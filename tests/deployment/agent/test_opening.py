"""What a silo file names is checked before an agent serves."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from rpdp.deployment.agent import opening
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Ledger
from rpdp.sampling import Secure, Seeded
from rpdp.tasks.models.losses import binary_loss
from tests.federation.world import FEATURES, make_model, make_records
from tests.ledger import small

TWO = make_records(2)


@pytest.mark.parametrize("given", ["text", (TWO,), (TWO, 5), ([1, 2], ["a", "b"]), (TWO, ["a", "b"], "more"), None])
def test_a_factory_returns_records_and_their_ids_or_is_refused(given: object, monkeypatch: pytest.MonkeyPatch) -> None:
    section = SimpleNamespace(task=None, table=None, factory="own:data")
    spec: Any = SimpleNamespace(data=section, path=Path("silo.toml"), directory=Path())
    monkeypatch.setattr(opening, "call_factory", lambda *_, **__: given)
    with pytest.raises(InputError, match=r"it must return \(records, their ids\)"):
        opening.record_ids(spec)
    monkeypatch.setattr(opening, "call_factory", lambda *_, **__: (TWO, [1, 2]))
    assert opening.record_ids(spec) == ["1", "2"]


def test_budgets_that_others_can_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "budgets.csv"
    small.budgets().write(path)
    tmp_path.chmod(0o755)
    path.chmod(0o644)
    with pytest.raises(PrivacyRefusal, match="others can read or write it"):
        opening._budgets(path)
    path.chmod(0o600)
    assert len(opening._budgets(path)) == 8
    path.chmod(0o644)
    tmp_path.chmod(0o700)  # then nobody gets there
    assert len(opening._budgets(path)) == 8


class Files:
    """A silo file beside a ledger for simulations, or a production one."""

    def __init__(self, directory: Path, kind: Literal["simulation", "production"] = "simulation") -> None:
        ledger = directory / "ledger.db"
        Ledger.create(ledger, small.budgets(), kind=kind, lifetime_delta=small.LIFETIME_DELTA).close()
        self.path = directory / "silo.toml"
        self.path.touch(mode=0o600)
        self.silo = SimpleNamespace(ledger=directory / "ledger.db", budgets="budgets.csv")
        self.policy = SimpleNamespace(lifetime_delta=1e-3)
        self.simulation: object | None = SimpleNamespace(seed=1)

    def file(self, path: str | Path) -> Path:
        return Path(path)


def test_the_ledger_that_a_silo_file_names(tmp_path: Path) -> None:
    spec: Any = Files(tmp_path)
    with opening._ledger(spec) as ledger:
        assert ledger.is_simulation
    spec.simulation = None
    with pytest.raises(PrivacyRefusal, match="is a simulation ledger"), opening._ledger(spec):
        pass
    spec.simulation = SimpleNamespace(seed=1)
    for file in (spec.path, tmp_path / "ledger.db", tmp_path / "ledger.db.key", tmp_path / "ledger.db.inbox"):
        mode = stat.S_IMODE(file.stat().st_mode)
        file.chmod(mode | 0o022)
        with pytest.raises(PrivacyRefusal, match="others can"), opening._ledger(spec):
            pass
        file.chmod(mode)
    spec.silo.ledger = tmp_path / "another.db"
    with pytest.raises(PrivacyRefusal, match="there is no ledger"), opening._ledger(spec):
        pass


def test_a_production_ledger_is_for_no_simulation(tmp_path: Path) -> None:
    """Seeded noise protects nobody, so nothing that a simulation releases may be booked as if it did."""
    spec: Any = Files(tmp_path, "production")
    with pytest.raises(PrivacyRefusal, match=r"is a production ledger, .* describes a simulation silo"):
        opening._ledger(spec).__enter__()
    spec.simulation = None
    with opening._ledger(spec) as ledger:
        assert not ledger.is_simulation


def test_randomness_is_secure_unless_a_silo_file_has_a_seed() -> None:
    spec: Any = SimpleNamespace(simulation=None, silo=SimpleNamespace(name="a"))
    assert isinstance(opening._randomness(spec)(), Secure)
    spec.simulation = SimpleNamespace(seed=5)
    drawn = [opening._randomness(spec)().integers(1 << 30, 4).tolist() for _ in range(2)]
    assert drawn == [Seeded(5).child("silo", "a").integers(1 << 30, 4).tolist()] * 2


def test_a_part_of_a_task_is_one_of_its_silos(monkeypatch: pytest.MonkeyPatch) -> None:
    held = SimpleNamespace(train=SimpleNamespace(record_ids=np.array(["n0", "n1"])))
    task = SimpleNamespace(load=lambda partition: SimpleNamespace(silos={"north": held, "south": held}))
    monkeypatch.setattr(opening, "task_named", lambda *_: task)
    monkeypatch.setattr(opening, "records_of", lambda _: TWO)
    section = SimpleNamespace(task="any", table=None, part="north", partition=None)
    spec: Any = SimpleNamespace(data=section, path=Path("silo.toml"), directory=Path())
    assert opening.record_ids(spec) == ["n0", "n1"]
    for part in (None, "west"):
        section.part = part
        with pytest.raises(InputError, match=f"data.part={part!r} must be one of north, south"):
            opening.record_ids(spec)


# Models


def silo_file(monkeypatch: pytest.MonkeyPatch, **models: object) -> Any:
    """A silo file whose model factories return these."""
    monkeypatch.setattr(opening, "call_factory", lambda name, *_, **__: models[name])
    monkeypatch.setattr(opening, "load_function", lambda *_: binary_loss)
    sections = {name: SimpleNamespace(task=None, network=None, model=name, loss="own:loss") for name in models}
    silo = SimpleNamespace(name="a", threads=1)
    return SimpleNamespace(models=sections, path=Path("silo.toml"), directory=Path(), silo=silo, simulation=None)


def test_two_models_that_a_plan_cannot_tell_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = silo_file(monkeypatch, one=make_model(), two=make_model())
    with pytest.raises(InputError, match=r"models.one and models.two have the same parameters"):
        opening._models(spec)
    spec = silo_file(monkeypatch, one=make_model(), two=torch.nn.Linear(FEATURES, 1, bias=False))
    assert len(opening._models(spec)) == 2


def test_a_model_is_a_torch_module(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"models.one: one\(\) returned function, not a model"):
        opening._models(silo_file(monkeypatch, one=make_model))


def test_a_model_that_does_not_fit_the_records_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name in the file, and before a server asks for it."""

    def scalar(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return binary_loss(output, targets).mean()

    spec = silo_file(monkeypatch, one=make_model())
    monkeypatch.setattr(opening, "load_function", lambda *_: scalar)
    trainer = opening._trainer(spec, opening._models(spec), make_records(3))
    with pytest.raises(InputError, match=r"silo\.toml: models.one: the loss returned a scalar"):
        trainer.__enter__()


def test_the_processes_that_train_end_even_if_there_is_no_agent_to_end_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold the records, and are made before the ledger is opened, which may be refused."""
    spec, before = silo_file(monkeypatch, one=make_model()), set(multiprocessing.active_children())
    with opening._trainer(spec, opening._models(spec), TWO):
        assert len(set(multiprocessing.active_children()) - before) == 1
    assert set(multiprocessing.active_children()) <= before


def test_a_silo_without_records_is_refused_before_a_process_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = silo_file(monkeypatch, one=make_model())
    monkeypatch.setattr(opening, "TrainingProcess", lambda *_, **__: pytest.fail("a process was made"))
    with pytest.raises(InputError, match=r"silo\.toml: silo a: it has no records"):
        opening._trainer(spec, opening._models(spec), make_records(0)).__enter__()


def test_an_agent_has_one_thread_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads do not survive the fork of the process that trains."""
    threads: list[int] = []

    def stop(_: object) -> None:
        threads.append(torch.get_num_threads())
        raise InputError("far enough")

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(opening, "_models", stop)
    spec: Any = Files(tmp_path)
    with pytest.raises(InputError, match="far enough"), opening.open_agent(spec):
        pass
    torch.set_num_threads(before)
    assert threads == [1]
