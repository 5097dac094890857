"""The table of all mutants for the docs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.runner import Outcome

_INTRODUCTION = """\
# Seeded privacy bugs

Made by `make mutants`; do not edit. Each row is a bug that was put into a copy of the source, alone, by a script
(`tests/mutants`): what is wrong then, which rule of [the promise](explanation/privacy.md) it breaks, in which file, and
the first test that noticed. Tests are those of the ordinary suite; on the untouched copy all of them pass. Seconds are
those of the tests, with torch and other large libraries loaded before, on a machine that had other work to do.

A bug counts as caught only by a test that fails in its own body; one that cannot be imported is an error of the
suite. `make test` runs ten of them, and checks that every one still applies to the source as it is.
"""


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line."""
    caught = sum(outcome.verdict == "caught" for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    return f"{caught} of {len(outcomes)} caught, in {seconds:,.0f} s"


def page(outcomes: Sequence[Outcome], before: str = "", names: Sequence[str] = ()) -> str:
    """The whole page: rows of these outcomes, and of the page as it was before for other mutants of these names."""
    fresh = {outcome.mutant.name: _row(outcome) for outcome in outcomes}
    rows = [(_rows_in(before) | fresh)[name] for name in names or fresh]
    cells = [[cell.strip() for cell in row.split(" | ")] for row in rows]
    caught, seconds = sum("**" not in each[3] for each in cells), sum(float(each[4].rstrip(" |")) for each in cells)
    audited = sum(each[3].startswith("audit: ") for each in cells)
    count = f"**{caught} of {len(rows)} caught, in {seconds:,.0f} s** ({audited} of them by the audit alone).\n"
    head = "| bug | breaks | file | caught by | seconds |\n|---|---|---|---|---|\n"
    return "\n".join([_INTRODUCTION, count, head + "\n".join(rows) + "\n"])


def names_in(text: str) -> list[str]:
    """The names of the mutants in a page."""
    return list(_rows_in(text))


def _rows_in(text: str) -> dict[str, str]:
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| bug")]
    return {row.split("|")[1].strip(): row for row in rows}


def _row(outcome: Outcome) -> str:
    mutant = outcome.mutant
    test = f"{'audit: ' if mutant.caught_by == 'audit' else ''}`{_shortened(outcome.test)}`"
    caught = test if outcome.verdict == "caught" else f"**{outcome.verdict}** {outcome.error}".strip()
    return f"| {mutant.name} | {mutant.rule} | `{mutant.file}` | {caught} | {outcome.seconds:.1f} |"


def _shortened(test: str) -> str:
    """Without the folder of all tests and the case, whose name may hold anything."""
    return test.removeprefix("tests/").partition("[")[0]
