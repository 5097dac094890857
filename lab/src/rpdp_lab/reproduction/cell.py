"""A cell: one computation of a suite, what it needs, and what it found."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from rpdp.errors import InputError
from rpdp.studies.user_code import digest_of_product

Profile = Literal["quick", "cpu", "full"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
"""From the smallest to the largest."""

Settings = Mapping[str, Any]
Numbers = dict[str, Any]
Work = Callable[[Settings, str], Numbers]
"""From settings and a device to numbers."""

FORMAT = "rpdp-reproduction/1"

_LAYERS = (
    "accounting",
    "baselines",
    "budgets",
    "experiments",
    "federation",
    "ledger",
    "planning",
    "reproduction/data",
    "reproduction/work",
    "runs",
    "sampling",
    "training",
)


@dataclass(frozen=True)
class Cell:
    """One computation.

    Attributes:
        suite: The suite it belongs to.
        part: What it is shown with: a panel of a figure, a row of panels, a table.
        name: Within the suite and the profile.
        work: "module:function" below `rpdp_lab.reproduction.work`; loaded when it is run.
        settings: Everything that the result depends on, as plain values.
        profile: For which it was made.
    """

    suite: str
    part: str
    name: str
    work: str
    settings: Settings = field(hash=False)
    profile: Profile = "quick"

    @property
    def key(self) -> str:
        """A hash of work, settings and code: what it stands for is computed once."""
        text = json.dumps([self.work, dict(self.settings), code_digest()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def home(self, directory: Path) -> Path:
        """Its file below a directory of results."""
        return directory / self.profile / self.suite / f"{self.name}.json"

    def load(self) -> Work:
        """The function that computes it."""
        module, _, function = self.work.partition(":")
        work: Work = getattr(importlib.import_module(f"rpdp_lab.reproduction.work.{module}"), function)
        return work

    def run(self, device: str) -> Numbers:
        """Compute it."""
        return self.load()(self.settings, device)


@dataclass(frozen=True)
class CellResult:
    """A cell that was run, or that could not be run because its data are missing.

    Attributes:
        suite: As in the cell, like the four that follow.
        part: What it is shown with.
        name: Of the cell.
        profile: Of the cell.
        settings: What it was computed from.
        numbers: What was found; empty when the cell was skipped.
        skipped: Why there is nothing, else None.
        seconds: How long it took.
        key: Of settings and code.
        code: The version of the code by itself.
        device: Where it was computed.
    """

    suite: str
    part: str
    name: str
    profile: Profile
    settings: Settings
    numbers: Numbers
    skipped: str | None
    seconds: float
    key: str
    code: str
    device: str

    def write(self, path: Path) -> None:
        """As JSON; a reader sees a whole file or none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(json.dumps({"format": FORMAT, **self.plain()}, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(path)

    def answers(self, cell: Cell) -> bool:
        """Whether it was found with the settings that the cell has now, by whatever code."""
        return json.dumps(dict(self.settings), sort_keys=True) == json.dumps(dict(cell.settings), sort_keys=True)

    def plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "settings": dict(self.settings)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> CellResult:
        """From what `plain` gave."""
        return cls(**{name: value for name, value in values.items() if name != "format"})

    @classmethod
    def read(cls, path: Path) -> CellResult | None:
        """From its file; None when there is none, or one that was damaged."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            return None
        return cls.of(values) if isinstance(values, dict) and values.get("format") == FORMAT else None


def code_digest() -> str:
    """A hash of the code that results depend on: what other code computed is computed again."""
    return digest_of_product()


def require_profile(name: str) -> Profile:
    """A profile by its name."""
    for profile in PROFILES:
        if profile == name:
            return profile
    raise InputError(f"--profile {name} is not a profile; there are {', '.join(PROFILES)}")
