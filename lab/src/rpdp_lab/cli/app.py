"""The command `rpdp-lab` as a whole."""

from __future__ import annotations

from typing import Annotated

import typer

from rpdp_lab.cli.central_command import central
from rpdp_lab.cli.reproduce_command import reproduce

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
    """The paper behind rpdp, run again: its tables and figures, and the methods it is compared with.

    Example: `rpdp-lab reproduce list`
    """


app.command("reproduce")(reproduce)
app.command("central")(central)
