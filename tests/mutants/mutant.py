"""A seeded bug: one piece of text in one file, and what it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src/rpdp")


class StaleMutantError(Exception):
    """The source has changed under a mutant: its text is not there, or not once."""


class Applicable(Protocol):
    """What a copy can put into one of its files."""

    def path(self, root: Path) -> Path:
        """The file in a copy of the repository."""
        ...

    def applied(self, text: str) -> str:
        """The mutated text of the file."""
        ...


@dataclass(frozen=True)
class Mutant:
    """One privacy bug.

    Attributes:
        name: What is wrong in the mutated source, in a few words with hyphens.
        rule: What it breaks in docs/explanation/privacy.md: "rule 5" of section 5, or "section 4".
        file: Under src/rpdp.
        find: Text that occurs exactly once there.
        replace: What stands there instead.
        tests: Tests that catch it: small ones, the quickest first.
        caught_by: Whether those are tests of the code, or of the audit, which sees only what the code releases.
    """

    name: str
    rule: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    caught_by: Literal["tests", "audit"] = "tests"

    def path(self, root: Path) -> Path:
        """The file in a copy of the repository."""
        return root / PACKAGE / self.file

    def applied(self, text: str) -> str:
        """The mutated text of the file; refuses a text in which the place is not there exactly once."""
        found = text.count(self.find)
        if found != 1:
            raise StaleMutantError(
                f"{self.name}: its text occurs {found} times in {self.file}, not once: {self.find!r}"
            )
        return text.replace(self.find, self.replace)
