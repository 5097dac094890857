"""`rpdp audit`: attack your own run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from rpdp.checks import require_count
from rpdp.cli import options
from rpdp.cli.output import print_json, print_table, refuse_overwriting, say, say_line
from rpdp.cli.progress import ProgressBar
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.audit.run_audit import ModelAudit, RunAudit
    from rpdp.studies.statistics_run import Question
    from rpdp.studies.study_file import MethodSettings, StudyFile

    Asked = Question | Literal["evaluation"] | None

FOUND = 3
"""The exit code when the audit finds something."""

GROUPS = "0.5,1,2,5,8"


def audit(
    file: options.StudyFileArgument,
    canaries: Annotated[
        int | None,
        typer.Option(
            "--canaries",
            help="Canaries per budget group, in and out (100,000); at most 1,000 beside records, 10,000 served.",
        ),
    ] = None,
    groups: Annotated[str, typer.Option("--groups", help="Budgets ε, separated by commas.")] = GROUPS,
    seed: options.Seed = None,
    method: options.Method = None,
    silo: Annotated[
        str | None,
        typer.Option("--silo", help="The silo beside whose records canaries are planted; by default the largest."),
    ] = None,
    view: Annotated[
        str, typer.Option("--view", help="steps: the attacker sees every local step. rounds: only released updates.")
    ] = "steps",
    served: Annotated[
        bool,
        typer.Option(
            "--served",
            help="Also audit a deployed silo: an agent behind its socket, with a temporary ledger that holds canaries "
            "only. The attacker sees released updates only, whatever --view says. Method rpdp, plain SGD.",
        ),
    ] = False,
    records_per_person: Annotated[
        int,
        typer.Option("--records-per-person", help="Canary persons with so many records in a silo, measured together."),
    ] = 1,
    silos_per_person: Annotated[
        int | None,
        typer.Option(
            "--silos-per-person",
            help="Canary persons with records in so many silos; by default as many as the study declares.",
        ),
    ] = None,
    purpose: Annotated[
        str, typer.Option("--purpose", help="training; or the study's private evaluation, or statistics of --columns.")
    ] = "training",
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", help="With --purpose statistics: as for rpdp statistics.")
    ] = None,
    estimator: Annotated[
        str, typer.Option("--estimator", help="With --purpose statistics: representative, or everyone.")
    ] = "representative",
    model_only: Annotated[
        bool, typer.Option("--model-only", help="Instead, demonstrate what the final model reveals about records.")
    ] = False,
    runs: Annotated[int | None, typer.Option("--runs", help="With --model-only: number of simulations (40).")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory; by default audit below the run's output.")
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Attack your own run: the ε that an attacker can prove for each budget.

    FILE is a study file (TOML). The audit sends made-up records through the silo's own code and also tests whether
    releases follow the plan. It touches no ledger of the run. It is a simulation, except for --served, which serves a
    silo of its own for a few seconds. Exit code 0: nothing found. 3: a broken promise, releases that do not follow the
    plan, a served silo whose ledger does not verify, or a refusal.

    Example: `rpdp audit examples/breast_cancer.toml --groups 0.5,5`
    """
    from rpdp.studies.study_file import StudyFile

    persons = _Persons(records_per_person, silos_per_person)
    _check_options(canaries, runs, silo, view, persons, served=served, model_only=model_only)
    is_plain = not (model_only or served) and view == "steps" and persons == (1, None)
    asked = _asked(purpose, columns, estimator, is_plain=is_plain)
    budgets = options.numbers_of("--groups", groups)
    spec = StudyFile.read(file)
    number, settings = options.seed_of(seed, spec), spec.settings(options.method_of(method, spec))
    directory = out or spec.output / "audit"
    name = "membership" if model_only else "audit"
    files = {"result": directory / f"{name}.json", "page": directory / f"{name}.html"}
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file; give a directory")
    refuse_overwriting(files.values(), force=force)
    if model_only:
        passed = _model_only(spec, settings, number, budgets, runs, files, as_json=as_json)
    else:
        passed = _canaries(
            spec, settings, number, budgets, canaries, silo, view, persons, files, asked, served=served, as_json=as_json
        )
    if not passed:
        raise typer.Exit(FOUND)


class _Persons(NamedTuple):
    """What a canary stands for."""

    records: int
    silos: int | None


def _check_options(
    canaries: int | None,
    runs: int | None,
    silo: str | None,
    view: str,
    persons: _Persons,
    *,
    served: bool,
    model_only: bool,
) -> None:
    from rpdp.checks import require_choice

    require_choice("--view", view, ("steps", "rounds"))
    planting = canaries is not None or silo is not None or view != "steps" or served or persons != (1, None)
    if model_only and planting:
        raise InputError(
            "--canaries, --silo, --view, --served, --records-per-person and --silos-per-person are for the audit with "
            "canaries; --model-only plants none"
        )
    require_count("--records-per-person", persons.records, most=100)
    if not model_only and runs is not None:
        raise InputError("--runs goes with --model-only; an audit with canaries is one run")
    if runs is not None:
        require_count("--runs", runs, least=8, most=100_000)
    if canaries is not None:
        require_count("--canaries", canaries, least=100, most=10_000_000)


def _asked(purpose: str, columns: str | None, estimator: str, *, is_plain: bool) -> Asked:
    """What the run with a request asks for; None for training."""
    from rpdp.checks import require_choice
    from rpdp.planning.request import REQUEST_ESTIMATORS
    from rpdp.studies.statistics_run import Question

    require_choice("--purpose", purpose, ("training", "evaluation", "statistics"))
    if (columns is None) == (purpose == "statistics"):
        raise InputError("--purpose statistics and --columns belong together: which columns are asked for?")
    if purpose != "training" and not is_plain:
        raise InputError(
            f"--purpose {purpose} samples nobody and has one step: --view, --served, --silos-per-person and "
            "--model-only are for training"
        )
    if columns is None:
        return "evaluation" if purpose == "evaluation" else None
    require_choice("--estimator", estimator, REQUEST_ESTIMATORS)
    names = tuple(part.strip() for part in columns.split(","))
    return Question(names, estimator=next(known for known in REQUEST_ESTIMATORS if known == estimator))


def _canaries(
    spec: StudyFile,
    settings: MethodSettings,
    seed: int,
    groups: tuple[float, ...],
    canaries: int | None,
    silo: str | None,
    view: str,
    persons: _Persons,
    files: dict[str, Path],
    asked: Asked,
    *,
    served: bool,
    as_json: bool,
) -> bool:
    from rpdp.audit.audit_files import write_json
    from rpdp.audit.audit_page import canary_section, write_page
    from rpdp.audit.audit_result import VIEWS
    from rpdp.audit.question_audit import audit_questions
    from rpdp.audit.run_audit import audit_run
    from rpdp.audit.silo_audit import PER_GROUP

    with ProgressBar("audit", quiet=as_json) as bar:
        common: dict[str, Any] = {
            "silo": silo,
            "groups": groups,
            "per_group": PER_GROUP if canaries is None else canaries,
            "on_round": lambda part, done, total: bar.step(f"rounds {part}", done, total),
        }
        if asked is None:
            result = audit_run(
                spec,
                settings,
                seed,
                view=next(known for known in VIEWS if known == view),
                served=served,
                records_per_person=persons.records,
                silos_per_person=persons.silos,
                **common,
            )
        else:
            question = None if asked == "evaluation" else asked
            result = audit_questions(spec, settings, seed, question=question, **common)
    write_json(files["result"], result.to_json())
    write_page(files["page"], f"Audit of {spec.path.name}", canary_section(result))
    if as_json:
        print_json({**result.to_json(), "files": {key: str(path) for key, path in files.items()}})
    else:
        _show(result, files)
    return result.passed


def _show(result: RunAudit, files: dict[str, Path]) -> None:
    from rpdp.planning.words import words_for

    rows = [
        [
            f"{alone.epsilon:g}",
            f"{alone.probability:.4g}",
            f"{alone.allowed:.3g}",
            f"{alone.bound.epsilon:.3g}",
            f"{beside.bound.epsilon:.3g}",
        ]
        for alone, beside in zip(result.alone.groups, result.beside.groups, strict=True)
    ]
    symbol = words_for(result.alone.purpose).symbol
    columns = ["budget ε", symbol, "ε allowed", "ε proven, alone", "ε proven, beside records"]
    if result.served is not None:
        columns.append("ε proven, served")
        for row, proven in zip(rows, result.proven_served(), strict=True):
            row.append(proven)
    title = f"{result.method}: what an attacker can prove (confidence {100 * result.confidence:.4g} %)"
    print_table(title, columns, rows)
    for line in result.verdict():
        say(line)
    _close(files, passed=result.passed)


def _model_only(
    spec: StudyFile,
    settings: MethodSettings,
    seed: int,
    groups: tuple[float, ...],
    runs: int | None,
    files: dict[str, Path],
    *,
    as_json: bool,
) -> bool:
    from rpdp.audit.audit_files import write_json
    from rpdp.audit.audit_page import membership_section, write_page
    from rpdp.audit.membership_inference import RUNS
    from rpdp.audit.run_audit import audit_run_model

    with ProgressBar("simulations", quiet=as_json) as bar:
        result = audit_run_model(
            spec,
            settings,
            seed,
            groups=groups,
            runs=RUNS if runs is None else runs,
            on_run=lambda done, total: bar.step("done", done, total),
        )
    write_json(files["result"], result.to_json())
    write_page(files["page"], f"What the model of {spec.path.name} reveals", membership_section(result))
    if as_json:
        print_json({**result.to_json(), "files": {key: str(path) for key, path in files.items()}})
    else:
        _show_membership(result, files)
    return result.passed


def _show_membership(result: ModelAudit, files: dict[str, Path]) -> None:
    found = result.membership
    rows = [
        [f"{group.epsilon:g}", f"{group.probability:.4g}", str(group.area), str(group.advantage), f"{group.bound:.3f}"]
        for group in found.groups
    ]
    columns = ["budget ε", "q", "area under ROC", "advantage", "no attacker exceeds"]
    print_table(f"{found.runs} simulations, {found.records:,} records", columns, rows)
    for line in found.verdict():
        say(line)
    compared = [
        [
            f"{report.epsilon:g}",
            f"{report.own.advantage:.2%}",
            f"{report.least.advantage:.2%} – {report.worst.advantage:.2%}",
            f"{report.worst.excess:.3%}",
        ]
        for report in result.others
    ]
    columns = ["own ε", "advantage at most", "if σ followed the budgets", "excess risk"]
    print_table("If the others chose other budgets, at the same own (ε, δ)", columns, compared)
    say(result.advice)
    _close(files, passed=result.passed)


def _close(files: dict[str, Path], *, passed: bool) -> None:
    say("Passed." if passed else "NOT PASSED.", style="bold green" if passed else "bold red")
    for name, path in files.items():
        say_line(f"{name}: {path}")
