"""docs/reproduction.md, its figures and the JSON of every cell, made from findings. Never edited by hand."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp_lab.reproduction.cell import FORMAT, PROFILES, CellResult
from rpdp_lab.reproduction.sections.common import table
from rpdp_lab.reproduction.sections.summary import summary
from rpdp_lab.reproduction.suites import SUITES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rpdp_lab.reproduction.cell import Profile
    from rpdp_lab.reproduction.suite import Section, Suite

PAGE, FOLDER, CELLS = "reproduction.md", "reproduction", "cells"
HEAD = (
    "<!-- Made by `rpdp reproduce render` from docs/reproduction/cells; do not edit. -->",
    "# The paper's tables and figures, and beyond",
    "",
)


@dataclass(frozen=True)
class Rendered:
    """The files that were written, and suites without any result."""

    files: tuple[Path, ...]
    empty: tuple[str, ...]


def render(results: Path, docs: Path) -> Rendered:
    """Write the page from the cells in `results` and those that the docs hold already; newer ones win."""
    bundles = docs / FOLDER / CELLS
    files, sections, empty = [], dict[str, "Section"](), []
    for suite in SUITES.values():
        known = {**_from_bundle(bundles / f"{suite.name}.json", suite), **_from_results(results, suite)}
        chosen = chosen_findings(suite, known)
        if not any(finding.skipped is None for finding in chosen):
            empty.append(suite.name)
            continue
        sections[suite.name] = suite.section(chosen)
        files.append(_write(bundles / f"{suite.name}.json", _bundle(known.values())))
        for name, figure in sections[suite.name].figures.items():
            files.append(_write(docs / FOLDER / name, figure))
    files.append(_write(docs / PAGE, _page(sections, empty)))
    return Rendered(tuple(files), tuple(empty))


Key = tuple["Profile", str, str]


def chosen_findings(suite: Suite, known: dict[Key, CellResult]) -> list[CellResult]:
    """For each part of the suite the findings of the largest profile that has all of it; else of the fullest."""
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
    return [finding for findings in best.values() for finding in findings]


def _from_results(directory: Path, suite: Suite) -> dict[Key, CellResult]:
    read = ((cell, CellResult.read(cell.home(directory))) for profile in PROFILES for cell in suite.cells(profile))
    return {_key(finding): finding for cell, finding in read if finding is not None and finding.answers(cell)}


def _from_bundle(path: Path, suite: Suite) -> dict[Key, CellResult]:
    """What the docs hold, as far as it still answers a cell of the suite."""
    if not path.is_file():
        return {}
    listed = [CellResult.of(values) for values in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    cells = {(profile, cell.suite, cell.name): cell for profile in PROFILES for cell in suite.cells(profile)}
    return {_key(each): each for each in listed if _key(each) in cells and each.answers(cells[_key(each)])}


def _key(finding: CellResult) -> Key:
    return finding.profile, finding.suite, finding.name


def _bundle(findings: Iterable[CellResult]) -> str:
    """One cell a line, in a fixed order, so that a change shows as the cells that changed."""
    ordered = sorted(findings, key=lambda finding: (finding.profile, finding.suite, finding.part, finding.name))
    lines = ",\n".join(json.dumps(finding.plain(), ensure_ascii=False, sort_keys=True) for finding in ordered)
    return f'{{"format": "{FORMAT}", "cells": [\n{lines}\n]}}\n'


def _page(sections: dict[str, Section], empty: Sequence[str]) -> str:
    lines = [*HEAD, *summary(sections, empty)]
    for name, section in sections.items():
        lines += [f"## {SUITES[name].title}", "", *section.lines]
    lines += ["## How to make this page again", "", *_how_to(), ""]
    return "\n".join(lines).rstrip() + "\n"


def _how_to() -> list[str]:
    rows = [[f"`{suite.name}`", *(f"{suite.minutes[profile]:g}" for profile in PROFILES)] for suite in SUITES.values()]
    return [
        "```console",
        "$ rpdp reproduce list",
        "$ rpdp reproduce all --profile quick --jobs 2",
        "$ rpdp reproduce render",
        "```",
        "",
        "Cells are kept by settings and code version, so the same command goes on after an interruption. JSON of every "
        "cell: `docs/reproduction/cells/`. Rough minutes on two cores (`full` is meant for a GPU machine):",
        "",
        *table(["suite", *PROFILES], rows),
    ]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
