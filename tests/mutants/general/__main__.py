"""`python -m tests.mutants.general`: a sample of general mutants."""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.general.campaign import TESTS, Result, failing_untouched, run
from tests.mutants.general.changes import SCOPE, sample
from tests.mutants.general.page import page, read_results, summary, unexplained, write_results

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if every change was noticed or has a reason, 1 if not."""
    options = _parser().parse_args(arguments)
    changes = sample(options.sample, options.seed, options.scope or SCOPE)
    place = {change.name: number for number, change in enumerate(changes)}
    random.Random(options.seed).shuffle(changes)  # noqa: S311 what is reached in time is a random part, too
    done = 0

    def tell(result: Result) -> None:
        nonlocal done
        done += 1
        sys.stdout.write(f"{done:>4}/{len(changes)} {result.seconds:6.1f} s  {result.verdict:9} {result.name}\n")
        sys.stdout.flush()

    sys.stdout.write(f"{len(changes)} changes\n")
    before = {} if options.results is None else read_results(options.results)
    results = run(
        changes,
        options.log,
        tests=options.tests or TESTS,
        jobs=options.jobs,
        before=before,
        again=options.again,
        minutes=options.minutes,
        on_result=tell,
    )
    if done:
        results = _controlled(results, options)
    results.sort(key=lambda one: place[one.name])
    sys.stdout.write(f"{summary(results)}\n")
    if options.results is not None:
        write_results(options.results, results)
    if options.docs is not None:
        options.docs.write_text(page(results, options.seed, len(changes)), encoding="utf-8")
    left = unexplained(results)
    for result in left:
        sys.stdout.write(f"{result.verdict}: {result.name} (line {result.line})\n")
    return 1 if left or len(results) < len(changes) else 0


def _controlled(results: list[Result], options: argparse.Namespace) -> list[Result]:
    """What a test noticed that fails without a change, too, is not noticed; it is to be tried again."""
    killers = sorted({one.test for one in results if one.test})
    failing = failing_untouched(killers, options.log, options.tests or TESTS)
    sys.stdout.write(f"{len(failing)} of {len(killers)} tests that noticed a change fail without one\n")
    for test in failing:
        sys.stdout.write(f"  {test}\n")
    return [replace(one, verdict="survived", test="", error="") if one.test in failing else one for one in results]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.general", description=__doc__)
    parser.add_argument("--sample", type=int, default=1560, metavar="N", help="about so many")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--scope", action="append", metavar="PLACE", help="only here, under src/rpdp; may be repeated")
    parser.add_argument("--tests", action="append", metavar="PATH", help="only these tests; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="how many at the same time")
    parser.add_argument(
        "--log", type=Path, default=Path("build/mutation-sample.jsonl"), help="results of this call so far"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep all results there, as CSV")
    parser.add_argument("--minutes", type=float, metavar="N", help="begin no more changes after so long")
    parser.add_argument("--again", action="store_true", help="run again what survived and has no reason")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the page there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
