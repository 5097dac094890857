from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.studies.steward import Steward

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def steward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Steward:
    monkeypatch.chdir(tmp_path)
    return Steward(tmp_path, capsys)
