"""A suite: the cells of one table or figure, and how its section of the page is written from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rpdp_lab.reproduction.cell import Cell, CellResult, Profile


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        lines: Markdown below the heading.
        figures: SVG by file name.
        verdicts: For the summary at the top of the page: (what, the goal, what was found, whether it was met).
    """

    lines: Sequence[str]
    figures: Mapping[str, str] = field(default_factory=dict)
    verdicts: Sequence[Verdict] = ()


@dataclass(frozen=True)
class Verdict:
    """One line of the summary.

    Attributes:
        what: The number in question, with its goal.
        published: By the paper or in the authors' files.
        ours: What was found.
        met: Whether the goal was reached; None when there is none.
        better: Whether reaching it is better than what was published, not just the same.
        why: If it was missed: the reason.
        other_model: Whether it was reached with another model, or another start, than the paper's.
    """

    what: str
    published: str
    ours: str
    met: bool | None
    better: bool = True
    why: str = ""
    other_model: bool = False


@dataclass(frozen=True)
class Suite:
    """A named table or figure.

    Attributes:
        name: On the command line.
        title: Its heading.
        cells: What to compute for a profile.
        section: From findings to its part of the page; each part comes from one profile.
        minutes: A rough time for each profile, on two cores.
    """

    name: str
    title: str
    cells: Callable[[Profile], Sequence[Cell]]
    section: Callable[[Sequence[CellResult]], Section]
    minutes: Mapping[Profile, float]
