"""Twelve mistakes of new users: each is made here, and the page shows the one line that answers it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.cli.run import run
from tests.docs.console import DOCS, fences, matches
from tests.studies.patients import CLASSES, ONE_FILE, REST, table_study, write_hospitals

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = DOCS / "explanation" / "mistakes.md"

MODULE = """
import torch
from torch import nn
from torch.nn import functional

import rpdp


def data(seed):
    x = torch.randn(160, 4, generator=torch.Generator().manual_seed(seed))
    records, tests = rpdp.Records.of(x[:120], TARGETS(x[:120])), rpdp.Records.of(x[120:], TARGETS(x[120:]))
    return {"north": (records, [f"n{i}" for i in range(120)], tests)}


def model():
    return MODEL


def loss(outputs, targets):
    return LOSS
"""
CODE = '[task]\ndata = "mine:data"\nmodel = "mine:model"\nloss = "mine:loss"\n'
LINEAR, CLASS = "nn.Linear(4, 2)", "lambda x: (x[:, 0] > 0).long()"
NUMBERS = "lambda x: x[:, :1] * 3"
CROSS_ENTROPY = 'functional.cross_entropy(outputs, targets, reduction="none")'
SQUARES = "((outputs - targets) ** 2)[:, 0]"


def table(directory: Path, old: str = "", new: str = "", **parts: str) -> None:
    """A study of a table, with one piece of its text changed."""
    write_hospitals(directory, "north", "south")
    path = table_study(directory, **parts)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def code(
    directory: Path, *, targets: str = CLASS, model: str = LINEAR, loss: str = CROSS_ENTROPY, rest: str = ""
) -> None:
    """A study with code of one's own."""
    text = MODULE.replace("TARGETS", f"({targets})").replace("MODEL", model).replace("LOSS", loss)
    (directory / "mine.py").write_text(text, encoding="utf-8")
    (directory / "study.toml").write_text(CODE + REST + rest, encoding="utf-8")


def semicolons(directory: Path) -> None:
    table(directory)
    path = directory / "all.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(",", ";"), encoding="utf-8")


def no_budget_for_some(directory: Path) -> None:
    write_hospitals(directory, "north", "south")
    (directory / "north-budgets.csv").write_text("record,epsilon\nnorth-0,1.0\n", encoding="utf-8")
    files = 'files = { north = "north-budgets.csv" }\ndeclared = "ThreeLevels"'
    table_study(
        directory, table='files = { north = "north.csv" }', rest=REST.replace('distribution = "ThreeLevels"', files)
    )


MISTAKES: dict[str, Callable[[Path], None]] = {
    "A CSV with semicolons": semicolons,
    "A misspelled setting": lambda here: table(here, "clip_norm", "clip_nrom"),
    "A column that the table does not have": lambda here: table(here, "AGE = ", "age_years = "),
    "No range for a number": lambda here: table(here, ", range = [20, 100]", ""),
    "The target among the features": lambda here: table(here, "AGE = ", 'ILL = { kind = "yes_no" }\nAGE = '),
    "A class that nobody declared": lambda here: table(here, '"no", "yes"', '"no", "severe"', target=CLASSES),
    "The id of a person as the id of a record": lambda here: table(
        here, 'record = "PATIENT"', 'record = "HOSPITAL"', table='file = "all.csv"'
    ),
    "Records without a budget": no_budget_for_some,
    "A loss that is averaged": lambda here: code(here, loss="functional.cross_entropy(outputs, targets)"),
    "A layer that mixes records": lambda here: code(here, model="nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))"),
    "Accuracy for regression, or for several labels": lambda here: code(
        here, targets=NUMBERS, model="nn.Linear(4, 1)", loss=SQUARES, rest='[evaluation]\nmetrics = ["accuracy"]\n'
    ),
    "A real run by accident": lambda here: table(here, "seeds = 2", "", table=ONE_FILE),
}
"""What each does in an empty directory, before `rpdp train study.toml`."""


def answers() -> dict[str, str]:
    """The line that the page shows for each mistake."""
    sections = re.split(r"^## \d+\. (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {title: fences(body)[0].text for title, body in zip(sections[::2], sections[1::2], strict=True)}


def test_the_page_lists_these_twelve() -> None:
    assert list(answers()) == list(MISTAKES)
    assert len(MISTAKES) == 12


@pytest.mark.parametrize("title", MISTAKES)
def test_a_mistake_gets_one_good_line(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    MISTAKES[title](tmp_path)
    is_accident = title == "A real run by accident"  # doctor examines such a study as it is
    for command in (["train", "study.toml"], *([] if is_accident else [["doctor", "study.toml"]])):
        number = run(command)
        out, err = capsys.readouterr()
        assert number in (2, 3), (out, err)
        assert "Traceback" not in out + err
        if command[0] == "train":
            assert len(err.strip().splitlines()) == 1
            assert matches(answers()[title], err.replace(str(tmp_path) + "/", "")), err
    sys.modules.pop("mine", None)
