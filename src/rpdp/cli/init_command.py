"""`rpdp init`: a new study from a table, a template or a built-in task."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.cli import options
from rpdp.cli.output import print_json, say, say_line
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping


def init(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A table (.csv, .csv.gz, .parquet), a template (tabular, images, text, flower), or a built-in task.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new directory.")] = Path("study"),
    target: Annotated[str | None, typer.Option("--target", help="Of a table: the column to learn.")] = None,
    silo: Annotated[str | None, typer.Option("--silo", help="The column that divides it into silos.")] = None,
    record: Annotated[str | None, typer.Option("--record", help="The column with the id of each record.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="The column with the person behind it.")] = None,
    private_ranges: Annotated[
        str | None,
        typer.Option(
            "--private-ranges",
            metavar="LOW,HIGH",
            help="Read no ranges of numbers from the data: start from this wide one, and ask quantiles in private.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Start a new study: a study file with comments, a schema for a table, templates for budgets, next steps.

    A schema is proposed from the data. What was read from private data is not covered by the promise until somebody
    declares it from knowledge; the schema says so, and so does every plan made with it. Columns that may be known only
    after the decision are named; whether they are used is yours to decide.

    Example: `rpdp init patients.csv --target OUTCOME --silo HOSPITAL --out study`
    """
    from rpdp.studies.new_study import new_study
    from rpdp.tables.schema_proposal import Roles

    if target is None and not as_json and sys.stdin.isatty() and Path(source).is_file():
        target = typer.prompt("Which column is to be learnt?")
    wide = None if private_ranges is None else _range(private_ranges)
    made = new_study(source, out, Roles(target or "", record, subject, silo), wide)
    if as_json:
        facts = {"directory": str(made.directory), "files": list(made.files), "from_data": made.from_data}
        print_json({**facts, "late_columns": dict(made.late)})
        return
    for name in made.files[:20]:
        say_line(f"{made.directory / name}")
    if len(made.files) > 20:
        say_line(f"… and {len(made.files) - 20} more")
    if made.from_data:
        found = "Ranges and levels" if wide is None else "Levels"
        say(
            f"{found} in schema.toml were read from the data. No promise covers that: check them against what "
            "you know, then remove from_data.",
            style="yellow",
        )
    if wide is not None:
        say(
            "Ranges of numbers were not read: the study asks for quantiles within the wide ranges of schema.toml, in "
            "private and charged, before it trains. It begins once from_data is removed.",
            style="yellow",
        )
    if made.late:
        say(_late(made.late), style="yellow")
    say_line(f"next: rpdp doctor {made.directory / 'study.toml'}")


def _range(text: str) -> tuple[float, float]:
    found = options.numbers_of("--private-ranges", text)
    if len(found) != 2 or not found[0] < found[1]:
        raise InputError(f"--private-ranges {text!r} must be two numbers that rise, such as 0,1000")
    return found[0], found[1]


def _late(late: Mapping[str, str]) -> str:
    named = "; ".join(f"{name} {reason}" for name, reason in late.items())
    return (
        f"May be known only after the decision that the model is for: {named}. A model that uses such a column looks "
        'better than it is. You decide: in schema.toml, { kind = "ignore" } leaves a column out.'
    )
