"""Whole runs, described by a run file: built, trained, compared, examined before they start, stored and reported.

    spec = RunFile.read("run.toml")
    train(spec, spec.settings("rpdp"), seed=1, directory=Path("runs/mine"))

Names load on first use (PEP 562): reading and checking a run file needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpdp.runs.building import Built as Built
    from rpdp.runs.building import build as build
    from rpdp.runs.comparison import Compared as Compared
    from rpdp.runs.comparison import compare as compare
    from rpdp.runs.doctor import examine as examine
    from rpdp.runs.reporting import rebuild_report as rebuild_report
    from rpdp.runs.runfile import MethodSettings as MethodSettings
    from rpdp.runs.runfile import RunFile as RunFile
    from rpdp.runs.store import read_result as read_result
    from rpdp.runs.store import write_result as write_result
    from rpdp.runs.training import train as train
    from rpdp.runs.tuning import tune as tune

_HOME_OF = {
    "Built": "building",
    "Compared": "comparison",
    "MethodSettings": "runfile",
    "RunFile": "runfile",
    "build": "building",
    "compare": "comparison",
    "examine": "doctor",
    "read_result": "store",
    "rebuild_report": "reporting",
    "train": "training",
    "tune": "tuning",
    "write_result": "store",
}

__all__ = [*_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'rpdp.runs' has no attribute {name!r}")
    return getattr(import_module(f"rpdp.runs.{_HOME_OF[name]}"), name)
