"""The table of results, and the page in the docs."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.general.campaign import Result
from tests.mutants.general.equivalent import EQUIVALENT, REASONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.general.campaign import Verdict

_INTRODUCTION = """\
# A random sample of small changes

Made by `make mutation-sample`; do not edit. [The catalogue](mutants.md) has bugs that somebody thought of. Here a tool
changed the code on which the promise rests, at random: operators, comparisons, numbers, conditions, removed statements,
in a sample that is spread over all files in proportion to the places that can be changed (seed {seed}). For each change
the tests that run the changed line were run. A change that survives needs a new test or a reason why it changes
nothing that matters; the reasons are in `tests/mutants/general/equivalent.py`, all results in
`tests/mutants/general/results.csv`.

The sample is drawn from the code as it is. A result stands as long as the line that was changed, so some are older than
others. Those of the first sample, on the code before Rényi accounts, requests and shared persons came, are kept in
`tests/mutants/general/earlier.csv`: {earlier}.
"""

EARLIER = Path(__file__).with_name("earlier.csv")


def unexplained(results: Sequence[Result]) -> list[Result]:
    """What nobody noticed and nobody explained."""
    return [one for one in results if one.verdict in ("survived", "uncovered") and one.name not in EQUIVALENT]


def summary(results: Sequence[Result]) -> str:
    """One line."""
    found = Counter(_class(one) for one in results)
    parts = ", ".join(f"{found[name]} {name}" for name in ("killed", "timeout", "explained", "survived"))
    return f"{len(results):,} changes: {parts}"


def write_results(path: Path, results: Sequence[Result]) -> None:
    """All results, a row each."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["file", "operator", "before", "after", "verdict", "test", "error"])
        for one in results:
            rows.writerow([*one.name.split(" | ", 3), _class(one), one.test, one.error])


def read_results(path: Path) -> dict[str, Result]:
    """The results that an earlier call wrote, by the name of the change: they stand as long as their lines do."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    kept = {}
    for *place, found, test, error in rows:
        verdict: Verdict = found if found in ("killed", "timeout") else "survived"  # type: ignore[assignment]
        name = " | ".join(place)
        kept[name] = Result(name, 0, verdict, test, error, tests=0, left_out=0, seconds=0.0)
    return kept


def page(results: Sequence[Result], seed: int, sampled: int) -> str:
    """The whole page."""
    lines = [_INTRODUCTION.format(seed=seed, earlier=_earlier()), f"**{summary(results)}**\n"]
    if len(results) < sampled:
        first = read_results(EARLIER)
        standing = sum(one.name in first for one in results)
        lines.append(
            f"{len(results):,} of the {sampled:,} sampled changes have a result: {standing:,} from the first sample, "
            f"in lines that still stand, and {len(results) - standing:,} newer ones; the others were not reached.\n"
        )
    lines += ["| code | changes | killed | timeout | explained | survived |", "|---|---|---|---|---|---|"]
    for area in sorted({_area(one) for one in results}):
        here = Counter(_class(one) for one in results if _area(one) == area)
        counts = " | ".join(str(here[name]) for name in ("killed", "timeout", "explained", "survived"))
        lines.append(f"| `{area}` | {here.total()} | {counts} |")
    reasons = Counter(EQUIVALENT[one.name] for one in results if _class(one) == "explained")
    lines += ["", "| why a survivor does not matter | changes |", "|---|---|"]
    lines += [f"| {REASONS[reason]} | {count} |" for reason, count in sorted(reasons.items())]
    return "\n".join(lines) + "\n"


def _earlier() -> str:
    with EARLIER.open(encoding="utf-8", newline="") as file:
        found = Counter(row["verdict"] for row in csv.DictReader(file))
    return f"{found.total():,} changes, " + ", ".join(f"{count:,} {verdict}" for verdict, count in found.most_common())


def _class(result: Result) -> str:
    if result.verdict in ("killed", "timeout"):
        return result.verdict
    return "explained" if result.name in EQUIVALENT else "survived"


def _area(result: Result) -> str:
    parts = result.name.partition(" | ")[0].split("/")
    return "/".join(parts[:2]) if parts[0] in ("federation", "deployment") else parts[0]
