"""What sections of the page share: Markdown tables, means over seeds, and the line that says what was run."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from rpdp.spread import Spread
from rpdp_lab.reproduction.cell import RESULTS_VERSION

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


def image(name: str, description: str) -> list[str]:
    """A figure of the page."""
    return [f"![{description}](reproduction/{name})", ""]


def count(number: int, noun: str) -> str:
    """A number and its noun.

    >>> count(1, "seed"), count(5, "seed")
    ('1 seed', '5 seeds')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard deviation; a single value alone, a dash for none."""
    found = Spread.of(values)
    return DASH if found is None else found.text(digits)


def spread_of_seeds(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard deviation, and the number of seeds."""
    return f"{spread(values, digits)} ({count(len(values), 'seed')})"


def mean(values: Sequence[float]) -> float | None:
    """The mean, or None if there are no values."""
    return statistics.fmean(values) if values else None


def finished(results: Iterable[CellResult]) -> list[CellResult]:
    """Results that were not skipped."""
    return [result for result in results if result.skipped is None]


def grouped(results: Iterable[CellResult], *keys: str) -> Mapping[tuple[Any, ...], list[CellResult]]:
    """Results by the values of some settings, in the order of their first appearance."""
    groups = defaultdict[tuple[Any, ...], list["CellResult"]](list)
    for result in results:
        groups[tuple(result.settings.get(key) for key in keys)].append(result)
    return groups


def numbers(results: Iterable[CellResult], name: str) -> list[float]:
    """One number of each result that has it."""
    return [result.numbers[name] for result in results if result.numbers.get(name) is not None]


def seeds_of(results: Iterable[CellResult]) -> set[int]:
    """The seeds of results that have one."""
    return {result.settings["seed"] for result in results if "seed" in result.settings}


def footnote(results: Sequence[CellResult]) -> str:
    """Profile and number of seeds, for the foot of a figure."""
    done = finished(results)
    seeds = seeds_of(done)
    return f"profile {_listed(result.profile for result in done)}, " + (
        count(len(seeds), "seed") if seeds else "no randomness"
    )


def provenance(results: Sequence[CellResult]) -> list[str]:
    """Profile, number of cells and seeds, time and device; then the cells that were skipped."""
    done = finished(results)
    lines = []
    if done:
        seeds = seeds_of(done)
        parts = [
            f"Profile {_listed(result.profile for result in done)}",
            f"{len(done)} cells",
            *([count(len(seeds), "seed")] if seeds else []),
            f"{sum(result.seconds for result in done):,.0f} s in all ({_listed(result.device for result in done)})",
        ]
        if not all(result.is_current for result in done):
            versions = _listed(str(result.results_version) for result in done)
            parts.append(f"results version {versions} (current: {RESULTS_VERSION})")
        lines = [f"*{'; '.join(parts)}.*", ""]
    missing = [result for result in results if result.skipped is not None]
    lines += [f"*Skipped: {result.part} ({result.name}): {_reason(result)}*" for result in missing[:3]]
    if len(missing) > 3:
        lines.append(f"*… and {len(missing) - 3} more cells for the same kind of reason.*")
    return [*lines, ""] if missing else lines


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def _reason(result: CellResult) -> str:
    """Why a cell was skipped, without directories of the machine it ran on."""
    return str(result.skipped).split("; looked in", maxsplit=1)[0]
