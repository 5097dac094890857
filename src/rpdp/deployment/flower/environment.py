"""What Flower's executables run in: those of this installation, an own home, nothing that calls out.

The environment is built from nothing, not inherited: a stray `FLWR_…` setting, a proxy or a token of the operator's
shell reaches neither Flower nor the apps that a server submits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rpdp.errors import InputError

TASK_POLL_SECONDS = 0.25
"""How often Flower's SuperExec looks for work. Its default of 1 s would add half a second to each message; this costs
an idle SuperLink 3 % of a core, an idle SuperNode 1 %."""

_KEPT = ("LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


def executable(name: str) -> str:
    """The path of one of Flower's commands, in the environment that this Python belongs to."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise InputError(f"{path} not found: Flower is not installed here; pip install 'rpdp[flower]'")
    return str(path)


def flower_environment(home: Path) -> dict[str, str]:
    """Variables for one Flower process that keeps all its files in `home`.

    Telemetry, update checks and the installation of an app's dependencies are off. HOME is `home` too: nobody writes
    into the user's own `~/.flwr`.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        # Flower's processes find each other by name
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
        "HOME": str(home),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(TASK_POLL_SECONDS),
        "PYTHONUNBUFFERED": "1",
    }
