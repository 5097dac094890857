"""Run `rpdp-lab` in this process, in an empty directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from rpdp_lab.cli.app import app

from rpdp.cli.run import run


@dataclass(frozen=True)
class LabOutcome:
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


class LabCommand(Protocol):
    def __call__(self, *arguments: object) -> LabOutcome: ...


@pytest.fixture
def rpdp_lab(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LabCommand:
    monkeypatch.chdir(tmp_path)

    def command(*arguments: object) -> LabOutcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments], app)
        shown = capsys.readouterr()
        return LabOutcome(code, shown.out, shown.err)

    return command
