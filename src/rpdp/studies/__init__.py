"""Whole runs described by a study file: build, train, compare, examine before the start, store and report.

    spec = StudyFile.read("study.toml")
    train(spec, spec.settings("rpdp"), seed=1, directory="runs/mine")

Names load on first use (PEP 562): reading and checking a study file needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.lazy import lazy_names

if TYPE_CHECKING:
    from rpdp.studies.building import PreparedRun as PreparedRun
    from rpdp.studies.building import build as build
    from rpdp.studies.comparison import Comparison as Comparison
    from rpdp.studies.comparison import compare as compare
    from rpdp.studies.doctor import examine as examine
    from rpdp.studies.run_directory import read_result as read_result
    from rpdp.studies.run_directory import write_result as write_result
    from rpdp.studies.run_reports import rebuild_report as rebuild_report
    from rpdp.studies.study_file import MethodSettings as MethodSettings
    from rpdp.studies.study_file import StudyFile as StudyFile
    from rpdp.studies.training_run import train as train
    from rpdp.studies.tuning import tune as tune

_HOME_OF = {
    "PreparedRun": "rpdp.studies.building",
    "Comparison": "rpdp.studies.comparison",
    "MethodSettings": "rpdp.studies.study_file",
    "StudyFile": "rpdp.studies.study_file",
    "build": "rpdp.studies.building",
    "compare": "rpdp.studies.comparison",
    "examine": "rpdp.studies.doctor",
    "read_result": "rpdp.studies.run_directory",
    "rebuild_report": "rpdp.studies.run_reports",
    "train": "rpdp.studies.training_run",
    "tune": "rpdp.studies.tuning",
    "write_result": "rpdp.studies.run_directory",
}

__all__ = [*_HOME_OF]
__getattr__ = lazy_names(__name__, _HOME_OF)
