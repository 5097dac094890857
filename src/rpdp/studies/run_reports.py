"""The HTML report of a run or a comparison, written when it ends, or rebuilt from its directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rpdp.errors import InputError, RpdpError
from rpdp.ledger.store.holds import uncovered_note
from rpdp.methods import METHODS
from rpdp.report import ReportFacts, write_report
from rpdp.studies.evaluation_file import read_evaluation
from rpdp.studies.private_scale import kept_scale
from rpdp.studies.run_directory import (
    HELD_OUT_GROUPS,
    RESULT,
    read_groups,
    read_outlooks,
    read_result,
    study_file_in,
)
from rpdp.studies.study_file import StudyFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from rpdp.federation import RunResult
    from rpdp.ledger.inspection.use_over_time import UseOverTime

    Results = RunResult | Mapping[str, Sequence[RunResult]]

Edition = Literal["silo", "share"]
EDITIONS: dict[Edition, str] = {"silo": "report.html", "share": "report-share.html"}
COMPARISON = "comparison.json"


def write_reports(results: Results, directory: str | Path, spec: StudyFile) -> None:
    """Write both editions of the report."""
    for edition, name in EDITIONS.items():
        write_report(results, Path(directory) / name, edition=edition, facts=_facts_in(directory, spec))


def rebuild_report(directory: str | Path, edition: Edition, out: str | Path, sections: Sequence[Markup] = ()) -> Path:
    """Rebuild the report of a finished run or comparison, with further sections; return its path."""
    directory, out = Path(directory), Path(out)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; give the directory of a run or comparison")
    spec = kept_scale(StudyFile.read(study_file_in(directory)), directory)
    write_report(_results(directory), out, edition=edition, facts=_facts_in(directory, spec), sections=sections)
    return out


def _facts_in(directory: str | Path, spec: StudyFile) -> ReportFacts:
    """Return the facts of a run, with what only its silos may see; the edition to share drops that."""
    return replace(
        facts_of(spec),
        lifetimes=_lifetimes(spec),
        outlook=read_outlooks(directory),
        evaluation=read_evaluation(directory),
        held_out_groups=read_groups(Path(directory), HELD_OUT_GROUPS),
        yardsticks=_yardsticks(directory),
    )


def _yardsticks(directory: str | Path) -> Mapping[str, Mapping[str, Sequence[float | None]]]:
    path = Path(directory) / COMPARISON
    if not path.is_file():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8")).get("yardsticks", {})
    return {column: {metric: each["values"] for metric, each in values.items()} for column, values in kept.items()}


def facts_of(spec: StudyFile) -> ReportFacts:
    """Return what a report states beyond the runs themselves."""
    budgets = spec.budgets
    source = (
        f"drawn from {spec.declared_distribution!r} (parameters: {budgets.parameters})"
        if budgets.files is None
        else f"files of the silos; public settings from {spec.declared_distribution!r}"
    )
    return ReportFacts(
        task=spec.described_task,
        budgets=source,
        notes=_uncovered(spec),
        promises={name: method.promise for name, method in METHODS.items()},
        features=_features(spec),
    )


def _features(spec: StudyFile) -> list[tuple[str, str]]:
    """Return the features of a study of tables, from its schema, which is public."""
    if spec.table is None:
        return []
    schema = spec.table.schema
    return list(zip(schema.feature_names, schema.feature_meanings, strict=True))


def _uncovered(spec: StudyFile) -> list[str]:
    """Return notes on runs that stewards cancelled without a public reason, from the ledgers of a real run."""
    from rpdp.ledger import Ledger  # needs apsw, which simulations do not

    found = []
    for silo, path in sorted((spec.ledgers or {}).items()):
        try:
            with Ledger.read(spec.directory / path) as ledger:
                found += [uncovered_note(silo, run) for run in ledger.uncovered_cancellations()]
        except RpdpError:  # a report can be rebuilt where the ledgers are not
            found.append(f"not known: whether the steward of silo {silo} cancelled a run without a public reason")
    return found


def _lifetimes(spec: StudyFile) -> dict[str, UseOverTime]:
    """The use of lifetime budgets in the ledgers of a real run, as they are now; without those that are not here."""
    from rpdp.ledger import Ledger  # needs apsw, which simulations do not
    from rpdp.ledger.inspection.use_over_time import use_over_time
    from rpdp.ledger.progress_callback import silent

    found = {}
    for silo, path in sorted((spec.ledgers or {}).items()):
        try:
            with Ledger.read(spec.directory / path) as ledger:
                found[silo] = use_over_time(ledger, silent)
        except RpdpError:  # a report can be rebuilt where the ledgers are not
            continue
    return found


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
