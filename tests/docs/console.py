"""Runs a page of the documentation as a reader would: saves its files, types its commands, compares what is printed.

A fence is an instruction by its first line:

| fence                | what is done                                                                             |
|----------------------|------------------------------------------------------------------------------------------|
| ```` ```toml NAME ````, ```` ```python NAME ```` | saved as the file NAME                                        |
| ```` ```console ````  | each line after `$` is run and must succeed; if lines follow it, it must print them      |
| ```` ```console like ```` | the same, but any number stands for any number                                       |
| ```` ```console slow ```` | the same, but only if slow commands are wanted                                       |
| ```` ```console all ```` | the same, and standard error is compared, too, before standard output                 |
| ```` ```console refused ```` | like `all`, but each command must be refused for privacy (exit code 3)            |
| ```` ```console not-run ```` | shown, not run                                                                    |

In what is printed, white space is alike and "…" stands for anything. `>>>` examples are run by pytest's own doctests.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.cli.run import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"\d[\d.,e-]*")
_PROMPT = "$ "


@dataclass(frozen=True)
class Fence:
    """A block of code: the words of its first line, and its text."""

    words: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        """The name to save it under."""
        return self.words[1] if len(self.words) == 2 and "." in self.words[1] else None

    @property
    def is_console(self) -> bool:
        """Whether it shows commands to run."""
        return self.words[:1] == ("console",) and "not-run" not in self.words

    @property
    def exit_code(self) -> int:
        """The code with which its commands end."""
        return 3 if "refused" in self.words else 0

    @property
    def shows_errors(self) -> bool:
        """Whether it shows what goes to standard error, too."""
        return "all" in self.words or "refused" in self.words

    @property
    def is_slow(self) -> bool:
        """Whether its commands take long."""
        return "slow" in self.words


def fences(text: str) -> list[Fence]:
    """All fences of a page."""
    return [Fence(tuple(words.split()), body) for words, body in _FENCE.findall(text)]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, with the lines that it must print."""
    command, printed = "", ""
    for line in [*text.splitlines(), _PROMPT]:
        if not line.startswith(_PROMPT):
            printed += line + "\n"
            continue
        if command:
            yield command, printed
        command, printed = line.removeprefix(_PROMPT), ""


def matches(expected: str, printed: str, *, any_number: bool = False) -> bool:
    """Whether this was printed; "…" stands for anything."""
    if any_number:
        expected, printed = (_NUMBER.sub("0", text) for text in (expected, printed))
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
    return re.fullmatch(pattern, " ".join(printed.split()), re.DOTALL) is not None


def run_page(text: str, capsys: pytest.CaptureFixture[str], *, slow: bool = False) -> str:
    """Run a page in the current directory, and return all that it prints."""
    everything = ""
    for fence in fences(text):
        if fence.file is not None:
            Path(fence.file).write_text(fence.text, encoding="utf-8")
        if not fence.is_console or (fence.is_slow and not slow):
            continue
        for command, expected in commands(fence.text):
            capsys.readouterr()
            code = _run(command)
            out, err = capsys.readouterr()
            assert code == fence.exit_code, f"$ {command}\nends with {code}:\n{out}{err}"
            shown = err + out if fence.shows_errors else out
            same = matches(expected, shown, any_number="like" in fence.words)
            assert same or not expected, f"$ {command}\nprints\n{shown}\nand the page says\n{expected}"
            everything += out
    return everything


def _run(command: str) -> int:
    program, *arguments = shlex.split(command, comments=True)
    if program == "rpdp":
        return run(arguments)
    assert program == "python", f"$ {command}: pages run rpdp and python; mark the block not-run"
    before = sys.argv
    try:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
    finally:
        sys.argv = before
    return 0
