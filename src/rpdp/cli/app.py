"""The command line as a whole."""

from __future__ import annotations

from typing import Annotated

import typer

from rpdp.cli import (
    account_command,
    audit_command,
    budgets_command,
    compare_command,
    deploy_command,
    doctor_command,
    ledger_command,
    plan_command,
    report_command,
    silo_command,
    train_command,
)

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


app.add_typer(budgets_command.app, name="budgets")
app.add_typer(ledger_command.app, name="ledger")
app.add_typer(silo_command.app, name="silo")
app.add_typer(deploy_command.app, name="deploy")
app.command("account")(account_command.account)
app.command("plan")(plan_command.plan)
app.command("train")(train_command.train)
app.command("compare")(compare_command.compare)
app.command("doctor")(doctor_command.doctor)
app.command("audit")(audit_command.audit)
app.command("report")(report_command.report)
