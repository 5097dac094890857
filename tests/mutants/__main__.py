"""`python -m tests.mutants`: all mutants, or some."""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.copies import WrongCopyError
from tests.mutants.mutant import StaleMutantError
from tests.mutants.report import names_in, page, summary
from tests.mutants.runner import ControlError, Outcome, run_mutants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.mutant import Mutant

NAMES = {mutant.name: mutant for mutant in CATALOGUE}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if every mutant was caught, 1 if not, 2 for wrong arguments or a suite that shows nothing."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        mutants = chosen(options.only, options.sample, options.seed)
    except ValueError as error:
        parser.error(str(error))
    before = ""
    if options.docs is not None:
        before = options.docs.read_text(encoding="utf-8") if options.docs.exists() else ""
        known = set(names_in(before))
        if options.new:
            mutants = [mutant for mutant in mutants if mutant.name not in known]
        if known.union(mutant.name for mutant in mutants) < NAMES.keys():
            parser.error("--docs is a table of all mutants, and those that are not run now have no row there yet")
    elif options.new:
        parser.error("--new: those without a row in which table? Give --docs")
    log = sys.stderr if options.json else sys.stdout
    done = 0

    def tell(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        by = outcome.test if outcome.verdict == "caught" else outcome.error
        log.write(
            f"{done:>3}/{len(mutants)} {outcome.seconds:6.1f} s  {outcome.verdict:8} {outcome.mutant.name}  {by}\n"
        )
        log.flush()

    log.write(f"{len(mutants)} mutants; first their tests on the untouched source\n")
    log.flush()
    try:
        outcomes = run_mutants(mutants, jobs=options.jobs, on_outcome=tell)
    except (ControlError, StaleMutantError, WrongCopyError) as error:
        log.write(f"nothing was shown: {error}\n")
        return 2
    log.write(f"{summary(outcomes)}\n")
    if options.json:
        sys.stdout.write(json.dumps([_facts(outcome) for outcome in outcomes]) + "\n")
    if options.docs is not None:
        options.docs.write_text(page(outcomes, before, list(NAMES)), encoding="utf-8")
    return 0 if all(outcome.verdict == "caught" for outcome in outcomes) else 1


def chosen(only: Sequence[str], sample: int | None, seed: int) -> list[Mutant]:
    """The mutants of these names, or a random sample, or all."""
    unknown = [name for name in only if name not in NAMES]
    if unknown:
        raise ValueError(f"there is no mutant {unknown[0]!r}")
    mutants = [NAMES[name] for name in only] if only else list(CATALOGUE)
    if sample is None:
        return mutants
    if not 1 <= sample <= len(mutants):
        raise ValueError(f"--sample {sample} must be between 1 and {len(mutants)}")
    return random.Random(seed).sample(mutants, sample)  # noqa: S311 which tests to run is no secret


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this one; may be repeated")
    parser.add_argument("--sample", type=int, metavar="N", help="so many, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    parser.add_argument("--jobs", type=int, default=1, help="how many at the same time")
    parser.add_argument("--json", action="store_true", help="outcomes as JSON on the last line; progress to stderr")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the table there; rows of others are kept")
    parser.add_argument("--new", action="store_true", help="those alone that the table in --docs does not have yet")
    return parser


def _facts(outcome: Outcome) -> dict[str, object]:
    mutant = outcome.mutant
    return {
        "name": mutant.name,
        "rule": mutant.rule,
        "file": mutant.file,
        "caught_by": mutant.caught_by,
        "verdict": outcome.verdict,
        "test": outcome.test,
        "error": outcome.error,
        "seconds": round(outcome.seconds, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
