"""The command of the comparison."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rpdp.errors import RpdpError
from rpdp_lab.central.comparison import compare
from rpdp_lab.central.methods import METHODS
from rpdp_lab.central.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTION = "Centralised rPDP-SGD beside Filter, IDP-SGD and others. Every run is seeded, so a simulation."


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m rpdp_lab.central", description=DESCRIPTION)
    parser.add_argument("--task", choices=list(SETTINGS), default="breast_cancer")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds, from 0 on")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help=f"some of: {', '.join(METHODS)}")
    parser.add_argument("--vary-split", action="store_true", help="another split into training and test for each seed")
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    given = parser.parse_args(arguments)
    try:
        found = compare(
            given.task, range(given.seeds), methods=given.methods, vary_split=given.vary_split, quick=given.quick
        )
    except RpdpError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write((found.to_json() if given.json else found.to_text()) + "\n")
    return 0
