"""What a silo file names is checked before an agent serves."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rpdp.deployment.agent import opening
from rpdp.errors import InputError, PrivacyRefusal
from tests.federation.world import make_records
from tests.ledger import small

TWO = make_records(2)


@pytest.mark.parametrize("given", ["text", (TWO,), (TWO, 5), ([1, 2], ["a", "b"]), (TWO, ["a", "b"], "more"), None])
def test_a_factory_returns_records_and_their_ids_or_is_refused(given: object, monkeypatch: pytest.MonkeyPatch) -> None:
    section = SimpleNamespace(task=None, factory="own:data")
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
    """A silo file beside a ledger for simulations."""

    def __init__(self, directory: Path) -> None:
        small.make(directory).close()
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
