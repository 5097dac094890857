"""`rpdp doctor`: examine a run before it starts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from rpdp.cli import options
from rpdp.cli.output import console, print_json, say
from rpdp.cli.unicode_fallback import spelled

if TYPE_CHECKING:
    from rpdp.studies.doctor import DoctorFinding, Examination

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    file: options.StudyFileArgument,
    seed: options.Seed = None,
    method: options.Method = None,
    as_json: options.Json = False,
) -> None:
    """Examine a run before it starts: data, model, budgets, signal, time, memory.

    FILE is a study file (TOML). The exit code is 0 if the run can start. Findings come from real records and budgets:
    they stay with their holder.

    Example: `rpdp doctor examples/breast_cancer.toml`
    """
    from rpdp.studies.study_file import StudyFile

    spec = StudyFile.read(file)
    chosen, number = options.method_of(method, spec), options.seed_of(seed, spec)

    from rpdp.studies.doctor import examine

    done = examine(spec, spec.settings(chosen), number)
    if as_json:
        findings = [asdict(finding) for finding in done.findings]
        print_json({"runnable": done.exit_code == 0, "exit_code": done.exit_code, "findings": findings})
    else:
        _show(done)
    if done.exit_code:
        raise typer.Exit(done.exit_code)


def _show(done: Examination) -> None:
    for finding in done.findings:
        _show_one(finding)
    problems = sum(finding.level == "problem" for finding in done.findings)
    warnings = sum(finding.level == "warning" for finding in done.findings)
    if problems:
        say(f"This run cannot start: {problems} problem{'' if problems == 1 else 's'}.", style="bold red")
    else:
        say(f"This run can start ({warnings} warning{'' if warnings == 1 else 's'}).", style="bold green")


def _show_one(finding: DoctorFinding) -> None:
    console.print(f"{finding.level:<8}", style=_STYLES[finding.level], end=" ")
    advice = f" → {finding.advice}" if finding.advice else ""
    console.print(spelled(f"{finding.topic}: {finding.message}{advice}"), soft_wrap=True)
