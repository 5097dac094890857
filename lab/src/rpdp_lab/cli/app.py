"""The lab's command line as a whole."""

from __future__ import annotations

from typing import Annotated

import typer

from rpdp_lab.cli import reproduce

app = typer.Typer(
    name="rpdp-lab",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(wanted: bool) -> None:
    if wanted:
        from rpdp_lab import __version__

        typer.echo(f"rpdp-lab {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The laboratory of rpdp: the paper's tables and figures, and its rivals, run again.

    Example: `rpdp-lab reproduce list`
    """


app.command("reproduce")(reproduce.reproduce)
