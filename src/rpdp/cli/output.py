"""Output of commands: tables and sentences for people on a terminal, one JSON object for machines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from rpdp.cli.unicode_fallback import has_unicode, spelled
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Ids and file names are data: no markup, no emoji codes, nothing coloured by guess.
console = Console(highlight=False, markup=False, emoji=False)
notes = Console(highlight=False, markup=False, emoji=False, stderr=True)


INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 + SIGINT, the shells' convention."""

_GAP = 2
"""Between two columns: a space of padding and one of the box."""


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    text = json.dumps(value, indent=2, ensure_ascii=not has_unicode(), allow_nan=False)
    sys.stdout.write(text + "\n")


def say(text: str, style: str | None = None) -> None:
    """Print a sentence, wrapped between words."""
    console.print(spelled(text), style=style)


def say_line(text: str, style: str | None = None) -> None:
    """Print a line without wrapping it, because it names a file."""
    console.print(spelled(text), style=style, soft_wrap=True)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, numbers on the right. Headers wrap on a narrow terminal; values are never cut."""
    say_line(title, style="bold")
    table = Table(
        box=box.SIMPLE_HEAD if has_unicode() else box.ASCII, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
    )
    cells = [[spelled(cell) for cell in row] for row in rows]
    needed = _GAP * (len(columns) - 1)
    for index, column in enumerate(columns):
        longest = max(len(text) for text in (*spelled(column).split(" "), *(row[index] for row in cells)))
        table.add_column(spelled(column), justify="left" if index == 0 else "right", min_width=longest)
        needed += longest
    for row in cells:
        table.add_row(*row)
    console.print(table, width=max(console.width, needed), crop=False)


def report_error(message: str, kind: str, exit_code: int, *, as_json: bool) -> int:
    """Print an error, as JSON on standard output or as a line on standard error; return the exit code."""
    if as_json:
        print_json({"error": message, "kind": kind, "exit_code": exit_code})
    else:
        notes.print("error: ", style="bold red", end="")
        notes.print(message, soft_wrap=True)
    return exit_code


def report_interruption(message: str, command: str | None, *, as_json: bool) -> None:
    """After Ctrl-C: say what is kept, and which command resumes it."""
    if as_json:
        print_json({"error": message, "kind": "Interrupted", "exit_code": INTERRUPTED, "resume": command})
        return
    notes.print(message, soft_wrap=True)
    if command is not None:
        notes.print(f"  {command}", soft_wrap=True)


def refuse_overwriting(files: Iterable[Path | None], *, force: bool) -> None:
    """Refuse to overwrite a file without --force, and to write a file where a directory is."""
    for file in files:
        if file is None:
            continue
        if file.is_dir():
            raise InputError(f"{file} is a directory; give the name of a file")
        if file.exists() and not force:
            raise InputError(f"{file} exists and is not overwritten; choose another name, or add --force")
