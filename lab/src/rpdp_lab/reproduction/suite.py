"""A suite: the cells of one table or figure, and how they become its section of the page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rpdp_lab.reproduction.cell import Cell, CellResult, Profile


@dataclass(frozen=True)
class Verdict:
    """One row of the summary at the top of the page.

    Attributes:
        what: The number in question, with its goal.
        published: The number of the paper, or of the authors' files.
        ours: Our number.
        met: Whether the goal was reached; None if there is no goal.
        better: Whether reaching it means better than published, not just the same.
        why: The reason, if the goal was missed.
        other_model: Whether our model, or its start, is not the paper's.
    """

    what: str
    published: str
    ours: str
    met: bool | None
    better: bool = True
    why: str = ""
    other_model: bool = False


@dataclass(frozen=True)
class PageSection:
    """A section of the page.

    Attributes:
        lines: Markdown below the heading.
        figures: SVG by file name.
        verdicts: For the summary.
    """

    lines: Sequence[str]
    figures: Mapping[str, str] = field(default_factory=dict)
    verdicts: Sequence[Verdict] = ()


@dataclass(frozen=True)
class Suite:
    """A named table or figure.

    Attributes:
        name: On the command line.
        title: Its heading on the page.
        cells: The cells of a profile.
        section: Writes the section from results. All results of one part have the same profile.
        minutes: A rough time for each profile, on two cores.
    """

    name: str
    title: str
    cells: Callable[[Profile], Sequence[Cell]]
    section: Callable[[Sequence[CellResult]], PageSection]
    minutes: Mapping[Profile, float]
