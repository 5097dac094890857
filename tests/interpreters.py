"""Finds Python interpreters on this machine: names on PATH that run, and the versions that pyenv has installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


def interpreter(version: str) -> str | None:
    """An interpreter of this version (such as 3.12) that runs, or None."""
    if version == RUNNING:
        return sys.executable
    return next((path for path in _candidates(version) if _runs(path, version)), None)


def _candidates(version: str) -> list[str]:
    named = shutil.which(f"python{version}")
    versions = sorted((_pyenv() / "versions").glob(f"{version}.*/bin/python"))
    return [*([named] if named else []), *map(str, versions)]


def _pyenv() -> Path:
    """Where pyenv keeps its versions. Its commands on PATH are shims, which fail for a version that is not chosen."""
    if "PYENV_ROOT" in os.environ:
        return Path(os.environ["PYENV_ROOT"])
    command = shutil.which("pyenv")
    if command is None:
        return Path.home() / ".pyenv"
    done = subprocess.run([command, "root"], capture_output=True, check=False, text=True, timeout=60)
    return Path(done.stdout.strip() or Path.home() / ".pyenv")


def _runs(path: str, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", code], capture_output=True, check=False, text=True, timeout=60)
    return done.returncode == 0 and done.stdout.strip() == version
