"""The command `rpdp`.

Exit codes: 0 done, 2 bad input, 3 refused for privacy, 130 interrupted. With `--json` exactly one JSON object is
printed on standard output, also for errors: `{"error": …, "kind": …, "exit_code": …}`.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. Commands load on use; an error becomes one message and an exit code."""
    try:
        from rpdp.cli.run import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while loading
        code = 130
    sys.exit(code)


__all__ = ["main"]
