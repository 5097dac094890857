"""A process that waits for the end of the one that started it, and then ends what that one has left behind.

Whoever starts processes stops them (`Process`), unless it is killed and can do nothing any more. The guard reads their
marks from a pipe. The system closes the pipe however its writer ends, and that is the sign.
"""

from __future__ import annotations

import sys

from rpdp.deployment.processes import DEFAULT_GRACE, end_marked


def main() -> None:
    """Read marks until the pipe is closed, then end whoever carries one of them."""
    end_marked({line.strip() for line in sys.stdin}, DEFAULT_GRACE)


if __name__ == "__main__":
    main()
