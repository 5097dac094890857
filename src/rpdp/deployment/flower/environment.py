"""The environment of Flower's processes: executables of this installation, a home of their own, no telemetry.

The environment is built from scratch, not inherited: no stray `FLWR_…` setting, proxy or token of the operator's shell
reaches Flower or the apps that a server submits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rpdp.errors import InputError

TASK_POLL_SECONDS = 0.25
"""How often Flower's SuperExec polls for work. Its default of 1 s adds half a second to each message; this value costs
an idle SuperLink 3 % of a core and an idle SuperNode 1 %."""

_KEPT = ("LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


def executable(name: str) -> str:
    """The path of a command that is installed beside this Python: one of Flower's, or `rpdp`."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise InputError(f"{path} not found; install it with: pip install 'rpdp[flower]'")
    return str(path)


def flower_environment(home: str | Path) -> dict[str, str]:
    """Variables for one Flower process that keeps all its files in `home`.

    Telemetry, update checks and the installation of an app's dependencies are off. HOME is `home` too, so that nothing
    is written to the user's own `~/.flwr`.
    """
    home = Path(home)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        # Flower's processes start each other by name
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
        "HOME": str(home),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(TASK_POLL_SECONDS),
        "PYTHONUNBUFFERED": "1",
    }
