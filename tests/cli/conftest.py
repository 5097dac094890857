from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from rpdp.cli.run import run

THREE_LEVELS = "record,epsilon\n" + "".join(f"r-{i:03d},{0.1 if i < 70 else 1 if i < 90 else 5}\n" for i in range(100))


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as one JSON object, with nothing beside it."""
        assert self.err == ""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


class Command(Protocol):
    def __call__(self, *arguments: object) -> Outcome: ...


@pytest.fixture
def rpdp(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Run a command line in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return command


@pytest.fixture
def budgets(tmp_path: Path) -> Path:
    """70 records with ε = 0.1, 20 with 1, 10 with 5."""
    path = tmp_path / "budgets.csv"
    path.write_text(THREE_LEVELS)
    return path
