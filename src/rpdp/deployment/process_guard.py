"""A guard process: when the process that started it ends, it ends what that one left behind.

`Process` stops what it started, unless its own process is killed. The guard reads the marks of started processes from a
pipe. The kernel closes the pipe however the writer ends, and then the guard acts.
"""

from __future__ import annotations

import sys

from rpdp.deployment.processes import DEFAULT_GRACE, end_marked


def main() -> None:
    """Read marks until the pipe is closed, then end every process that carries one of them."""
    end_marked({line.strip() for line in sys.stdin}, DEFAULT_GRACE)


if __name__ == "__main__":
    main()
