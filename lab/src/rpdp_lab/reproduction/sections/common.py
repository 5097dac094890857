"""What sections share: tables in Markdown, means over seeds, and the line that says what was run."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rpdp_lab.reproduction.cell import CellResult

DASH = "–"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def image(name: str, words: str) -> list[str]:
    """A figure of the page."""
    return [f"![{words}](reproduction/{name})", ""]


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard deviation, a lone value as it is, a dash for nothing."""
    if not values:
        return DASH
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def spread_of_seeds(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard deviation, and of how many seeds."""
    return f"{spread(values, digits)} ({len(values)} seed{'s' * (len(values) != 1)})"


def mean(values: Sequence[float]) -> float | None:
    """The mean, or None of nothing."""
    return statistics.fmean(values) if values else None


def run(findings: Iterable[CellResult]) -> list[CellResult]:
    """Those that were not skipped."""
    return [finding for finding in findings if finding.skipped is None]


def grouped(findings: Iterable[CellResult], *keys: str) -> Mapping[tuple[Any, ...], list[CellResult]]:
    """By the values of some settings, in the order of their first appearance."""
    groups = defaultdict[tuple[Any, ...], list["CellResult"]](list)
    for finding in findings:
        groups[tuple(finding.settings.get(key) for key in keys)].append(finding)
    return groups


def numbers(findings: Iterable[CellResult], name: str) -> list[float]:
    """One number of each finding that has it."""
    return [finding.numbers[name] for finding in findings if finding.numbers.get(name) is not None]


def footnote(findings: Sequence[CellResult]) -> str:
    """The same in a few words, for the foot of a figure."""
    done = run(findings)
    seeds = {finding.settings["seed"] for finding in done if "seed" in finding.settings}
    told = f", {len(seeds)} seed{'s' * (len(seeds) != 1)}" if seeds else ", no randomness"
    return f"profile {', '.join(sorted({finding.profile for finding in done}))}{told}"


def provenance(findings: Sequence[CellResult]) -> list[str]:
    """Which profile, how many cells and seeds, how long; and what was skipped."""
    done = run(findings)
    lines = []
    if done:
        profiles = ", ".join(sorted({finding.profile for finding in done}))
        seeds = sorted({finding.settings["seed"] for finding in done if "seed" in finding.settings})
        seconds = sum(finding.seconds for finding in done)
        told = f"; {len(seeds)} seed{'s' * (len(seeds) != 1)}" if seeds else ""
        devices = ", ".join(sorted({finding.device for finding in done}))
        versions = len({finding.code for finding in done})
        code = "" if versions == 1 else f"; {versions} versions of the code"
        lines = [f"*Profile {profiles}; {len(done)} cells{told}; {seconds:,.0f} s in all ({devices}){code}.*", ""]
    missing = [finding for finding in findings if finding.skipped is not None]
    lines += [f"*Skipped: {finding.part} ({finding.name}): {reason(finding)}*" for finding in missing[:3]]
    if len(missing) > 3:
        lines.append(f"*… and {len(missing) - 3} more cells for the same kind of reason.*")
    return [*lines, ""] if missing else lines


def reason(finding: CellResult) -> str:
    """Why a cell was skipped, without names of directories of the machine it ran on."""
    return str(finding.skipped).split("; looked in", maxsplit=1)[0]
