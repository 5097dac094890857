"""The command line as a whole. Each command's module loads when the command runs, not for the list of commands."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    import click

SUMMARIES = {
    "init": "Start a new study: a study file with comments, a schema for a table, templates for budgets, next steps.",
    "budgets": "Check a budget file, make one from a distribution, or say what a budget means.",
    "account": "Show what a run costs a record: ε by both accountants, its profile δ(ε) and the membership advantage.",
    "plan": "Plan a run: σ from a policy, and a sampling probability for every record, never over budget.",
    "frontier": "Compare noise multipliers: what each costs, and how much signal it gives.",
    "doctor": "Examine a run before it starts: data, model, budgets, signal, time, memory.",
    "train": "Train the model that a study file describes.",
    "tune": "Train declared candidates, and keep the one with the best private evaluation.",
    "statistics": "Counts, means, histograms and more of a study's tables, with intervals, charged to its records.",
    "compare": "Run several methods over several seeds: metrics, records over budget, promises, and a report.",
    "report": "Rebuild the report of a finished run or comparison, as one HTML file that opens offline.",
    "audit": "Attack your own run: the ε that an attacker can prove for each budget.",
    "ledger": "Keep the accounts of a silo's records: what each allows, has spent and has left.",
    "consent": "Import consent: FHIR Consent resources, or tables such as REDCap's.",
    "silo": "Run a silo's side of a federation: its agent keeps data, budgets, ledger and training.",
    "console": "Show a silo's ledger as pages for its steward, in a browser on this machine, beside its running agent.",
    "deploy": "Set up and run a federation over Flower, with TLS and registered silos.",
}
"""Every command and the first sentence of its help."""


def load_command(name: str) -> click.Command:
    """A command of `SUMMARIES`, or the group of its subcommands."""
    module = import_module(f"rpdp.cli.{name}_command")
    holder = typer.Typer(rich_markup_mode="markdown")
    if hasattr(module, "app"):
        holder.add_typer(module.app, name=name)
    else:
        holder.command(name)(getattr(module, name))
    return typer.main.get_group(holder).commands[name]


class _Commands(TyperGroup):
    """The commands of `SUMMARIES`, in their order. `commands` has only their summaries; `get_command` loads one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: TyperCommand(name, help=summary) for name, summary in SUMMARIES.items()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in self.commands else None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, made from the summaries."""
        listing = TyperGroup(
            name=self.name,
            commands=dict(self.commands),
            params=self.params,
            help=self.help,
            rich_markup_mode=self.rich_markup_mode,
        )
        listing.format_help(ctx, formatter)


app = typer.Typer(
    name="rpdp",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=True,
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

    Every person states a privacy budget ε. rpdp turns it into a sampling probability that never overspends it.

    Example: `rpdp budgets make budgets.csv`, then
    `rpdp plan -T 15 -t 50 --participations 8 -d 1e-4 --max-epsilon 10 -b budgets.csv`
    """
