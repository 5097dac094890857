"""docs/reproduction.md and its figures, made from results of cells. The page is never edited by hand."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp_lab.reproduction.cell import PROFILES, CellResult
from rpdp_lab.reproduction.cell_files import bundle_text, read_bundles, read_result
from rpdp_lab.reproduction.markdown import table
from rpdp_lab.reproduction.suites import SUITES
from rpdp_lab.reproduction.summary import summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rpdp_lab.reproduction.cell import Cell, Profile
    from rpdp_lab.reproduction.suite import PageSection, Suite

    Key = tuple[Profile, str, str]

PAGE, FIGURES = "reproduction.md", "reproduction"
HEAD = (
    "<!-- Made by `rpdp-lab reproduce render` from lab/cells; do not edit. -->",
    "# The paper's tables and figures, and beyond",
    "",
)


@dataclass(frozen=True)
class RenderedPage:
    """The files that were written, and the suites without any result."""

    files: tuple[Path, ...]
    empty: tuple[str, ...]


def render(results: Path, docs: Path, bundles: Path) -> RenderedPage:
    """Write the page from the results of `results` and of `bundles`, and keep all of them in `bundles`.

    Where both have a result for a cell, that of `results` wins.
    """
    known = _known_results(results, bundles)
    sections, files = dict[str, "PageSection"](), list["Path"]()
    for suite in SUITES.values():
        chosen = chosen_results(suite, known)
        if any(result.skipped is None for result in chosen):
            section = sections[suite.name] = suite.section(chosen)
            files += [_write(docs / FIGURES / name, figure) for name, figure in section.figures.items()]
    by_suite = defaultdict[str, list[CellResult]](list)
    for result in known.values():
        by_suite[result.suite].append(result)
    files += [_write(bundles / f"{name}.json", bundle_text(listed)) for name, listed in sorted(by_suite.items())]
    empty = [name for name in SUITES if name not in sections]
    files.append(_write(docs / PAGE, _page(sections, empty)))
    return RenderedPage(tuple(files), tuple(empty))


def chosen_results(suite: Suite, known: Mapping[Key, CellResult]) -> list[CellResult]:
    """For each part of the suite, the results of the largest profile that has all of it; else of the smallest."""
    best = dict[str, list[CellResult]]()
    for profile in PROFILES:
        parts = defaultdict[str, list[CellResult | None]](list)
        for cell in suite.cells(profile):
            parts[cell.part].append(known.get((profile, cell.suite, cell.name)))
        for part, entries in parts.items():
            there = [entry for entry in entries if entry is not None]
            whole = len(there) == len(entries) and any(entry.skipped is None for entry in there)
            if there and (whole or part not in best):
                best[part] = there
    return [result for results in best.values() for result in results]


def _known_results(results: Path, bundles: Path) -> dict[Key, CellResult]:
    """All results that have the settings of a cell of today; those of other settings are left behind."""
    cells: dict[Key, Cell] = {
        (profile, cell.suite, cell.name): cell
        for suite in SUITES.values()
        for profile in PROFILES
        for cell in suite.cells(profile)
    }
    fresh = (read_result(cell.path(results)) for cell in cells.values())
    listed = [*read_bundles(bundles), *(result for result in fresh if result is not None)]
    keyed = (((result.profile, result.suite, result.name), result) for result in listed)
    return {key: result for key, result in keyed if key in cells and result.has_settings_of(cells[key])}


def _page(sections: dict[str, PageSection], empty: Sequence[str]) -> str:
    lines = [*HEAD, *summary(sections, empty)]
    for name, section in sections.items():
        lines += [f"## {SUITES[name].title}", "", *section.lines]
    lines += ["## How to make this page again", "", *_how_to(), ""]
    return "\n".join(lines).rstrip() + "\n"


def _how_to() -> list[str]:
    rows = [[f"`{suite.name}`", *(f"{suite.minutes[profile]:g}" for profile in PROFILES)] for suite in SUITES.values()]
    return [
        "The command `rpdp-lab` comes with a clone of the repository. Data files are looked for below the directory "
        "that `RPDP_DATA` names, then below `data/` in the cache directory (`~/.cache/rpdp`). A cell without its data "
        "is skipped, and says which file is missing.",
        "",
        "```console",
        "$ pip install . ./lab",
        "$ rpdp-lab reproduce list",
        "$ rpdp-lab reproduce table-2 --profile cpu",
        "$ rpdp-lab reproduce all --profile quick --jobs 2",
        "$ rpdp-lab reproduce render",
        "```",
        "",
        "Cells are kept by their settings and a results version, which is raised by hand when numbers change; so the "
        "same command continues after an interruption. JSON of every cell: `lab/cells/`. Rough minutes on two cores "
        "(`full` is meant for a GPU machine):",
        "",
        *table(["suite", *PROFILES], rows),
    ]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
