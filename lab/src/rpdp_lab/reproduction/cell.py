"""A cell: one computation of a table or figure, and the result that is kept of it.

A result stands for a cell if it has the cell's settings and the current results version. Code and file names are no
part of that, so results survive moves and renames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from rpdp.errors import InputError

RESULTS_VERSION = 2
"""Raise this by hand whenever a change of the code changes the numbers of any cell: another bound from an accountant,
another draw, another kernel, other features. Leave it when code is moved, renamed or made faster. A slow test computes
a random sample of the committed cells again; if it fails, the version should have been raised."""

Profile = Literal["quick", "cpu", "full"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
"""From the smallest to the largest."""

Settings = Mapping[str, Any]
Numbers = dict[str, Any]
Work = Callable[[Settings, str], Numbers]
"""From settings and a device to numbers."""


@dataclass(frozen=True)
class Cell:
    """One computation.

    Attributes:
        suite: The suite it belongs to.
        part: What it is shown with: a panel of a figure, a row of panels, a table.
        name: Unique within suite and profile.
        work: The function that computes it. It imports torch when it is called, not before.
        settings: Everything that the numbers depend on, as plain values. Data, models and tasks have stable names here
            (see `suites.task_names`), never those of modules.
        profile: The profile it was listed for.
    """

    suite: str
    part: str
    name: str
    work: Work = field(repr=False, compare=False)
    settings: Settings = field(hash=False)
    profile: Profile = "quick"

    def path(self, directory: Path) -> Path:
        """Its file below a directory of results."""
        return directory / self.profile / self.suite / f"{self.name}.json"


@dataclass(frozen=True)
class CellResult:
    """The numbers of a cell, or the reason why there are none.

    Attributes:
        suite: Of the cell, like the next four.
        part: Of the cell.
        name: Of the cell.
        profile: Of the cell.
        settings: Of the cell when it was run.
        numbers: What was computed; empty if the cell was skipped.
        skipped: Why the cell was skipped (its data files are missing), else None.
        seconds: How long it took.
        device: Where it ran.
        results_version: `RESULTS_VERSION` when it was run.
        rpdp_version: The version of rpdp it was run with.
    """

    suite: str
    part: str
    name: str
    profile: Profile
    settings: Settings
    numbers: Numbers
    skipped: str | None
    seconds: float
    device: str
    results_version: int
    rpdp_version: str

    def has_settings_of(self, cell: Cell) -> bool:
        """Whether it was computed from the settings that the cell has now."""
        return dict(self.settings) == dict(cell.settings)

    @property
    def is_current(self) -> bool:
        """Whether it has the current results version."""
        return self.results_version == RESULTS_VERSION


def require_profile(name: str) -> Profile:
    """A profile by its name."""
    for profile in PROFILES:
        if profile == name:
            return profile
    raise InputError(f"--profile {name} is not a profile; there are {', '.join(PROFILES)}")
