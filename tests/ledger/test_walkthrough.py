"""The walk-through in docs/ledger.md, typed as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.cli.run import run

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"


def test_it_works_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(console|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {}
    said = ""
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line.removeprefix("$ "))
            assert program == "rpdp"
            assert run(arguments) == 0, (line, capsys.readouterr())
            said += capsys.readouterr().out
    said = " ".join(said.split())
    for words in ("300 records", "Run spring", "Run summer", "withdrawn, booked", "it sat out", "ledger.db: good."):
        assert words in said
    assert len((tmp_path / "accounts.csv").read_text().splitlines()) == 301
