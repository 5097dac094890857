"""The command `rpdp-lab`: the paper's tables and figures, and the comparison of methods in one place."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point; errors and exit codes as in `rpdp`."""
    try:
        from rpdp.cli.run import run
        from rpdp_lab.cli.app import app

        code = run(sys.argv[1:], app)
    except KeyboardInterrupt:  # while loading
        code = 130
    sys.exit(code)


__all__ = ["main"]
