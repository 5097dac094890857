"""The HTML of a run or a comparison: made when it ends, and made again from what it left in its directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from rpdp.errors import InputError
from rpdp.methods import METHODS
from rpdp.report import ReportFacts, write_report
from rpdp.studies.run_directory import RESULT, read_result, study_file_in
from rpdp.studies.study_file import StudyFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from markupsafe import Markup

    from rpdp.federation import RunResult

    Results = RunResult | Mapping[str, Sequence[RunResult]]

Edition = Literal["silo", "share"]
EDITIONS: dict[Edition, str] = {"silo": "report.html", "share": "report-share.html"}
COMPARISON = "comparison.json"


def write_reports(results: Results, directory: Path, spec: StudyFile) -> None:
    """Both editions."""
    for edition, name in EDITIONS.items():
        write_report(results, directory / name, edition=edition, facts=facts_of(spec))


def rebuild_report(directory: Path, edition: Edition, out: Path, sections: Sequence[Markup] = ()) -> Path:
    """The report of a finished run or comparison, made again, with further sections."""
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory")
    spec = StudyFile.read(study_file_in(directory))
    write_report(_results(directory), out, edition=edition, facts=facts_of(spec), sections=sections)
    return out


def facts_of(spec: StudyFile) -> ReportFacts:
    """What a report says beyond the runs themselves."""
    budgets, task = spec.budgets, spec.named_task
    source = (
        f"drawn from {spec.declared_distribution!r} (parameters: {budgets.parameters})"
        if budgets.files is None
        else f"files of the silos; public settings from {spec.declared_distribution!r}"
    )
    return ReportFacts(
        task=spec.task.data if task is None else f"{task.name}: {task.summary}",
        budgets=source,
        promises={name: method.promise for name, method in METHODS.items()},
    )


def _results(directory: Path) -> Results:
    if (directory / RESULT).is_file():
        return read_result(directory)
    path = directory / COMPARISON
    if not path.is_file():
        raise InputError(f"{directory}: holds neither a finished run ({RESULT}) nor a comparison ({COMPARISON})")
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        results: dict[str, list[RunResult]] = {}
        for cell in cells:
            results.setdefault(cell["method"], []).append(read_result(directory / cell["directory"]))
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged: {type(error).__name__}: {error}") from None
    return results
