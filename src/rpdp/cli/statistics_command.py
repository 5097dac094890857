"""`rpdp statistics`: numbers about a study's tables, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rpdp.checks import require_choice, require_count, require_fraction, require_positive
from rpdp.cli import options
from rpdp.cli.output import print_json, print_table, refuse_overwriting, say, say_line
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.planning import RequestEstimator
    from rpdp.statistics import NoiseChoice, NoisyEstimate
    from rpdp.studies.statistics_run import AnsweredQuestion, Question
    from rpdp.studies.study_file import StudyFile

PLANNED_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_BAR = 40
_SIMULATION = "a simulation: it shows what a real run would answer, and protects nobody"


def statistics(
    file: options.StudyFileArgument,
    columns: Annotated[str, typer.Option("--columns", "-c", help="Columns of the table, separated by commas.")],
    by: Annotated[
        str | None, typer.Option("--by", help="Groups: a column with levels, or the column that divides silos.")
    ] = None,
    wanted: Annotated[
        str,
        typer.Option(
            "--statistics", help="Of numbers: mean, sd, variance, sum, histogram, quantiles; correlation, count."
        ),
    ] = "mean,sd,histogram",
    estimator: Annotated[str, typer.Option("--estimator", help="representative, or everyone.")] = "representative",
    share: Annotated[
        float | None, typer.Option("--share", help="Share of lifetime budgets; by default the study's, else 0.1.")
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option("--floor", help="With everyone: the least lifetime ε that takes part; by default all declared."),
    ] = None,
    bins: Annotated[int, typer.Option("--bins", help="Bins of histograms of numbers.")] = 12,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show the expected intervals, for shares from 1 to 50 %.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Ask by both estimators, charged twice: do values depend on budgets?")
    ] = False,
    seed: options.Seed = None,
    run: Annotated[str, typer.Option("--run", help="The name of a real run in the ledgers.")] = "",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a real run that was interrupted, or show its answer again.")
    ] = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="Also write the figure to this HTML file.")] = None,
    force: options.Force = False,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Counts, means, histograms and more of a study's tables, with intervals, charged to its records.

    FILE is a study file (TOML) with a [table]. All numbers of one call share one vector and one price: at most the
    share of every record's lifetime budget. "representative" weights each record by what it allows; "everyone" counts
    the records above a public floor alike. With seeds it is a simulation; with --run and ledgers it is real. --plan
    spends nothing.

    Example: `rpdp statistics study.toml --columns AGE,SEX --plan`
    """
    from rpdp.studies.statistics_run import Question, run_statistics
    from rpdp.studies.study_file import StudyFile

    spec = StudyFile.read(file)
    question = Question(
        columns=_names("--columns", columns),
        wanted=_names("--statistics", wanted),
        by=by,
        estimator=cast("RequestEstimator", require_choice("--estimator", estimator, ("representative", "everyone"))),
        share=None if share is None else require_fraction("--share", share),
        floor=None if floor is None else require_positive("--floor", floor),
        bins=require_count("--bins", bins, most=100_000),
    )
    if floor is not None and estimator != "everyone" and not (plan or check):
        raise InputError(f"--floor {floor:g} is for --estimator everyone; weights leave nobody out")
    if figure is not None and figure.suffix != ".html":
        raise InputError(f"--figure {figure}: the name of the figure must end in .html")
    if plan:
        _show_plan(spec, question, as_json=as_json)
        return
    refuse_overwriting([figure], force=force)
    number = None if run else options.seed_of(seed, spec)
    if number is not None:
        spec.require_simulation()
    answered = run_statistics(spec, question, number, run=run, resume=resume, wait=wait, check=check)
    if figure is not None:
        from rpdp.report import statistics_figure, write_figure

        write_figure(statistics_figure(_groups(answered, None)), figure)
    if as_json:
        print_json(_facts(spec, question, answered))
        return
    _show(spec, question, answered)
    if figure is not None:
        say_line(f"figure: {figure}")


def _names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise InputError(f"{option} {text!r} must be different names, separated by commas")
    return names


def _groups(answered: AnsweredQuestion, silo: str | None) -> list[tuple[str, list[NoisyEstimate]]]:
    answers = answered.answers
    return [(each.name, found) for each, found in answers.inquiry.grouped(answers.estimates(silo=silo))]


def _show(spec: StudyFile, question: Question, answered: AnsweredQuestion) -> None:
    groups = _groups(answered, None)
    estimates = [each for _, found in groups for each in found]
    single = [each for _, found in groups if len(found) == 1 for each in found]
    if single:
        rows = [(each.name, *_numbers(each)) for each in single]
        print_table(_title(estimates[0]), ("statistic", "value", "from", "to"), rows)
    for name, found in groups:
        if len(found) > 1:
            _show_bars(name, found)
    if question.is_by_silo(spec):
        _show_silos(answered)
    _explain(estimates, answered)


def _title(estimate: NoisyEstimate) -> str:
    return f"Estimator {estimate.estimator}, intervals of {100 * estimate.level:g} %"


def _numbers(estimate: NoisyEstimate) -> tuple[str, str, str]:
    return f"{estimate.value:.4g}", f"{estimate.low:.4g}", f"{estimate.high:.4g}"


def _show_bars(name: str, estimates: Sequence[NoisyEstimate]) -> None:
    """A histogram: # up to the low end of the interval, - up to its high end."""
    most = max(max(each.high for each in estimates), 1e-12)
    low = [round(_BAR * max(each.low, 0.0) / most) for each in estimates]
    high = [round(_BAR * max(each.high, 0.0) / most) for each in estimates]
    rows = [
        (each.name, *_numbers(each), ("#" * one + "-" * (other - one)).ljust(_BAR, "."))
        for each, one, other in zip(estimates, low, high, strict=True)
    ]
    print_table(name, ("", "value", "from", "to", "interval"), rows)


def _show_silos(answered: AnsweredQuestion) -> None:
    released = answered.answers.released
    rows = []
    for silo in released.silos:
        rows += [(silo, each.name, *_numbers(each)) for each in answered.answers.estimates(silo=silo)]
    print_table("Of each silo", ("silo", "statistic", "value", "from", "to"), rows)


def _explain(estimates: Sequence[NoisyEstimate], answered: AnsweredQuestion) -> None:
    first = estimates[0]
    say(f"They speak of {first.speaks_of}.")
    for sentence in dict.fromkeys(sentence for each in estimates for sentence in each.assumptions):
        say(f"- {sentence}")
    for method in dict.fromkeys(each.method for each in estimates):
        say(f"- interval: {method}")
    for comparison in answered.checks:
        say(f"check: {comparison}", style="yellow" if comparison.is_flagged else None)
    choice = answered.choice
    say(f"Noise multiplier {choice.noise_multiplier:.4g}; share of lifetime budgets asked for: {choice.share:g}.")
    if answered.seed is not None:
        say(_SIMULATION, style="yellow")


def _facts(spec: StudyFile, question: Question, answered: AnsweredQuestion) -> dict[str, Any]:
    answers = answered.answers
    silos = answers.released.silos if question.is_by_silo(spec) else ()
    return {
        "run": answers.released.run,
        "seed": answered.seed,
        "covered": answered.seed is None,
        "plan": answers.released.public.fingerprint,
        "noise_multiplier": answered.choice.noise_multiplier,
        "share": answered.choice.share,
        "estimates": [each.plain() for each in answers.estimates()],
        "by_silo": {silo: [each.plain() for each in answers.estimates(silo=silo)] for silo in silos},
        "check": [vars(each) for each in answered.checks],
    }


def _show_plan(spec: StudyFile, question: Question, *, as_json: bool) -> None:
    """The expected half widths, by both estimators."""
    from rpdp.planning import REQUEST_ESTIMATORS
    from rpdp.studies.statistics_run import plan_statistics

    shares = PLANNED_SHARES if question.share is None else (question.share,)
    planned = {name: plan_statistics(spec, question, shares, name) for name in REQUEST_ESTIMATORS}
    if as_json:
        print_json({name: [_planned(choice) for choice in choices] for name, choices in planned.items()})
        return
    for name, choices in planned.items():
        labels = [each.name for each in choices[0].estimates]
        shown = labels[:8]
        rows = [
            (
                f"{100 * choice.share:g} %",
                f"{100 * choice.taking_part:.3g} %",
                f"{choice.noise_multiplier:.4g}",
                *(f"±{each.half_width:.3g}" for each in choice.estimates[: len(shown)]),
            )
            for choice in choices
        ]
        print_table(f"Expected by estimator {name}", ("share", "records taking part", "noise", *shown), rows)
        if len(labels) > len(shown):
            say(f"and {len(labels) - len(shown)} more numbers: see --json")
    say("Half widths of intervals for values that are spread evenly. Nothing was read or spent.")


def _planned(choice: NoiseChoice) -> dict[str, Any]:
    return {
        "share": choice.share,
        "noise_multiplier": choice.noise_multiplier,
        "taking_part": choice.taking_part,
        "mean_weight": choice.mean_weight,
        "half_widths": {each.name: each.half_width for each in choice.estimates},
    }
