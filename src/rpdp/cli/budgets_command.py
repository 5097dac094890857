"""`rpdp budgets`: check a budget file, make one from a distribution, or say what a budget means."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.cli import options
from rpdp.cli.output import print_json, print_table, refuse_overwriting, say, say_line
from rpdp.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable

app = typer.Typer(no_args_is_help=True)

_QUANTILES = {"smallest": 0.0, "10 %": 0.1, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "90 %": 0.9, "largest": 1.0}
_MOST_LEVELS = 10


@app.callback()
def _root() -> None:
    """Check a budget file, make one from a distribution, or say what a budget means.

    Example: `rpdp budgets make budgets.csv`, then `rpdp budgets check budgets.csv`
    """


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The budget file.")],
    records: options.RecordsFile = None,
    as_json: options.Json = False,
) -> None:
    """Check a whole budget file and describe it. Every problem is reported with its line or record.

    FILE is CSV or Parquet with the columns record and epsilon and, optionally, delta and subject. Or it holds budgets
    by person, with the columns subject, epsilon and, optionally, delta; then --records names the table of records.

    Example: `rpdp budgets check silo-a/budgets.csv`
    """
    from rpdp.budgets import BudgetTable

    facts = _describe(BudgetTable.read(file, records=records))
    if as_json:
        print_json({"file": str(file), **facts})
        return
    _show(f"{file}: {_count(facts['records'])}, all good", facts)


@app.command()
def make(
    file: Annotated[Path, typer.Argument(help="Where to write.")],
    distribution: Annotated[
        str, typer.Option("--distribution", help="ThreeLevels, BoundedPareto or BoundedMixGauss.")
    ] = "ThreeLevels",
    records: Annotated[int, typer.Option("--records", "-n", help="How many records.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same file.")] = 0,
    parameters: Annotated[
        str, typer.Option("--parameters", help="paper (its text) or authors (their published files).")
    ] = "paper",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a parameter: --set levels=1,3,10. Repeatable.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Record ids are PREFIX-0001, …")] = "r",
    plot: Annotated[Path | None, typer.Option("--plot", help="Also write a figure of the budgets (HTML).")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Make a budget file from one of the paper's distributions, to try things out.

    FILE is where to write: a name that ends in .csv or .parquet.

    Example: `rpdp budgets make budgets.csv --distribution BoundedPareto -n 4000 --seed 7`
    """
    from rpdp.budgets import distribution as named
    from rpdp.budgets.budget_files import check_ending

    check_ending(file)
    if plot is not None and plot.suffix != ".html":
        raise InputError(f"--plot {plot}: the name of the figure must end in .html")
    refuse_overwriting([file, plot], force=force)
    if not file.parent.is_dir():
        raise InputError(f"{file.parent} is not a directory; make it first")
    chosen = named(distribution, parameters, options.overrides_of(settings or []))
    table = options.sampled(chosen, records, seed, prefix)
    table.write(file)
    if plot is not None:
        from rpdp.report import budgets_figure, write_figure

        write_figure(budgets_figure({distribution: table.epsilon}), plot)
    facts = _describe(table)
    changed = bool(settings)
    if as_json:
        source = {"name": distribution, "parameters": parameters, "changed": changed, **asdict(chosen)}  # type: ignore[call-overload]
        print_json(
            {
                "file": str(file),
                "plot": None if plot is None else str(plot),
                "distribution": source,
                "seed": seed,
                **facts,
            }
        )
        return
    whose = {"paper": "the paper's text", "authors": "the authors' files"}[parameters]
    _show(f"{file}: {_count(records)}", facts)
    say(f"drawn with seed {seed} from {chosen!r}, parameters of {whose}{', changed by --set' if changed else ''}")
    if plot is not None:
        say_line(f"figure: {plot}")


@app.command()
def explain(
    epsilon: Annotated[float, typer.Argument(help="The lifetime ε of a budget.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="The lifetime δ.")],
    language: Annotated[
        str, typer.Option("--language", help="en, de, or a message catalogue of your own (NAME.toml).")
    ] = "en",
    as_json: options.Json = False,
) -> None:
    """Say in words what a budget means: how often somebody who knows everything else would guess right.

    Example: `rpdp budgets explain 0.5 --delta 1e-5`
    """
    from rpdp.checks import require_least
    from rpdp.statements import explain_budget
    from rpdp.statements.odds_words import CHANCE, odds_of_budget
    from rpdp.statements.statement_words import load_words

    require_least("epsilon", epsilon, 0.0)
    sentences = explain_budget(epsilon, delta, load_words(language))
    if as_json:
        shown = odds_of_budget(epsilon, delta).shown
        facts = {"epsilon": epsilon, "delta": delta, "right_guesses_of_100": shown, "by_chance": CHANCE}
        print_json({**facts, "text": " ".join(sentences)})
        return
    for sentence in sentences:
        say(sentence)


@app.command()
def form(
    choices: Annotated[Path, typer.Argument(help="The choices (TOML): three to five [[choice]].")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")],
    language: Annotated[
        str, typer.Option("--language", help="en, de, or a message catalogue of your own (NAME.toml).")
    ] = "en",
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Make a consent form: a page on which people choose a budget, and see what each choice can reveal.

    The page works offline and saves the choice as a budgets file. CHOICES holds a title, a purpose and the choices,
    each with label, epsilon, delta, and what it changes for the study.

    Example: `rpdp budgets form choices.toml --output form.html --language de`
    """
    from rpdp.private_files import private_file
    from rpdp.statements.consent_form import ConsentForm, consent_form_page
    from rpdp.statements.statement_words import load_words

    refuse_overwriting([output], force=force)
    words, offered = load_words(language), ConsentForm.read(choices)
    with private_file(output, overwrite=force, mode=0o644) as file:
        file.write(consent_form_page(offered, words).encode())
    facts = [
        {"label": one.label, "epsilon": one.epsilon, "delta": one.delta, "right_guesses_of_100": one.odds.shown}
        for one in offered.choices
    ]
    if as_json:
        print_json({"file": str(output), "choices": facts})
        return
    rows = [[one.label, f"{one.epsilon:g}", one.odds.text(words)] for one in offered.choices]
    print_table(str(output), ["choice", "ε", "right guesses of 100"], rows)


def _describe(table: BudgetTable) -> dict[str, Any]:
    import numpy as np

    levels, counts = np.unique(table.epsilon, return_counts=True)
    return {
        "records": len(table),
        "different_budgets": int(levels.size),
        "epsilon_quantiles": _quantiles(table.epsilon),
        "levels": _levels(levels, counts) if levels.size <= _MOST_LEVELS else None,
        "has_delta": table.delta is not None,
        "has_subjects": table.subjects is not None,
        "largest_subject": int(table.subject_sizes().max()),
    }


def _count(records: int) -> str:
    return "1 record" if records == 1 else f"{records:,} records"


def _quantiles(epsilon: NDArray[np.float64]) -> dict[str, float]:
    """Quantiles that are budgets of records, not interpolated values."""
    import numpy as np

    values = np.quantile(epsilon, list(_QUANTILES.values()), method="inverted_cdf")
    return {f"{share:g}": float(value) for share, value in zip(_QUANTILES.values(), values, strict=True)}


def _levels(levels: NDArray[np.float64], counts: NDArray[np.int64]) -> list[dict[str, Any]]:
    return [{"epsilon": float(level), "records": int(count)} for level, count in zip(levels, counts, strict=True)]


def _show(title: str, facts: dict[str, Any]) -> None:
    if facts["levels"] is not None:
        rows = [
            [f"{level['epsilon']:.4g}", f"{level['records']:,}", f"{level['records'] / facts['records']:.1%}"]
            for level in facts["levels"]
        ]
        print_table(title, ["budget ε", "records", "share"], rows)
    else:
        values = facts["epsilon_quantiles"].values()
        print_table(title, ["", *_QUANTILES], [["budget ε", *(f"{value:.4g}" for value in values)]])
    if facts["has_delta"]:
        say("Every record has a lifetime δ of its own.")
    if facts["has_subjects"]:
        say(
            f"Subjects are given: a subject's ε is split over its records (at most {facts['largest_subject']:,} here). "
            "The promise then holds for the subject within this silo; subjects shared between silos are not covered."
        )
