from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

import rpdp as package
from rpdp.cli.app import SUMMARIES, load_command

if TYPE_CHECKING:
    from tests.cli.conftest import Command


def listed() -> tuple[list[list[str]], list[list[str]]]:
    """All groups, and all commands that do something."""
    groups: list[list[str]] = [[]]
    commands: list[list[str]] = []
    for name in SUMMARIES:
        loaded = load_command(name)
        if isinstance(loaded, click.Group):
            groups.append([name])
            commands += [[name, inner] for inner in loaded.commands]
        else:
            commands.append([name])
    return groups, commands


GROUPS, COMMANDS = listed()


def test_the_commands_are_there() -> None:
    assert {command[0] for command in GROUPS + COMMANDS if command} == set(SUMMARIES)
    assert len(COMMANDS) >= 27
    assert ["ledger", "prune"] in COMMANDS
    assert ["deploy", "up"] in COMMANDS


@pytest.mark.parametrize("command", [*GROUPS, *COMMANDS], ids=" ".join)
def test_every_help_has_an_example(rpdp: Command, command: list[str]) -> None:
    shown = rpdp(*command, "--help")
    assert (shown.code, shown.err) == (0, "")
    assert f"Example: rpdp {' '.join(command)}".strip() in " ".join(shown.out.split())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_speaks_json(rpdp: Command, command: list[str]) -> None:
    assert "--json" in rpdp(*command, "--help").out


@pytest.mark.parametrize("command", GROUPS, ids=["rpdp", *(" ".join(group) for group in GROUPS[1:])])
def test_without_a_command_the_help_is_shown(rpdp: Command, command: list[str]) -> None:
    shown = rpdp(*command)
    assert (shown.code, shown.err) == (2, "")
    assert "Commands" in shown.out


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_list_of_commands_shows_the_first_sentence_of_each(rpdp: Command, name: str) -> None:
    """The list is written down so that it loads no command; it must not drift from the commands themselves."""
    help_text = load_command(name).help
    assert help_text is not None
    assert help_text.partition("\n\n")[0] == SUMMARIES[name]
    assert SUMMARIES[name].split()[0] in rpdp("--help").out


def test_version(rpdp: Command) -> None:
    assert rpdp("--version").out == f"rpdp {package.__version__}\n"


def test_unknown_command(rpdp: Command) -> None:
    refused = rpdp("plam")
    assert (refused.code, refused.out) == (2, "")
    assert "plam" in refused.err
    assert "Did you mean 'plan'?" in refused.err
    assert "rpdp --help" in refused.err
