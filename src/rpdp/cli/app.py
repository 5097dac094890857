"""The command line as a whole."""

from __future__ import annotations

from typing import Annotated

import typer

from rpdp.cli import account, audit, budgets, compare, deploy, doctor, ledger, plan, report, reproduce, silo, train

app = typer.Typer(
    name="rpdp",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(wanted: bool) -> None:
    if wanted:
        from rpdp import __version__

        typer.echo(f"rpdp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Record-level personalized differential privacy for cross-silo federated learning.

    Every person states a privacy budget ε; rpdp turns it into a sampling probability that never overspends it.

    Example: `rpdp budgets make budgets.csv`, then
    `rpdp plan -T 15 -t 50 --participations 8 -d 1e-4 --max-epsilon 10 -b budgets.csv`
    """


app.add_typer(budgets.app, name="budgets")
app.add_typer(ledger.app, name="ledger")
app.add_typer(silo.app, name="silo")
app.add_typer(deploy.app, name="deploy")
app.command("account")(account.account)
app.command("plan")(plan.plan)
app.command("train")(train.train)
app.command("compare")(compare.compare)
app.command("doctor")(doctor.doctor)
app.command("audit")(audit.audit)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
