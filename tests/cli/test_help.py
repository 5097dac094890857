from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import rpdp as package

if TYPE_CHECKING:
    from tests.cli.conftest import Command

COMMANDS = [
    ["account"],
    ["budgets", "check"],
    ["budgets", "make"],
    ["plan"],
    ["train"],
    ["compare"],
    ["doctor"],
    ["report"],
    ["audit"],
    ["reproduce"],
    ["silo", "check"],
    ["deploy", "init"],
    ["deploy", "up"],
    ["deploy", "register"],
    ["deploy", "run"],
]


@pytest.mark.parametrize("command", [[], ["budgets"], ["silo"], ["silo", "serve"], ["deploy"], *COMMANDS], ids=" ".join)
def test_every_help_has_an_example(rpdp: Command, command: list[str]) -> None:
    shown = rpdp(*command, "--help")
    assert (shown.code, shown.err) == (0, "")
    assert f"Example: rpdp {' '.join(command)}".strip() in " ".join(shown.out.split())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_speaks_json(rpdp: Command, command: list[str]) -> None:
    assert "--json" in rpdp(*command, "--help").out


@pytest.mark.parametrize("command", [[], ["budgets"]], ids=["rpdp", "rpdp budgets"])
def test_without_a_command_the_help_is_shown(rpdp: Command, command: list[str]) -> None:
    shown = rpdp(*command)
    assert (shown.code, shown.err) == (2, "")
    assert "Commands" in shown.out


def test_version(rpdp: Command) -> None:
    assert rpdp("--version").out == f"rpdp {package.__version__}\n"


def test_unknown_command(rpdp: Command) -> None:
    refused = rpdp("plam")
    assert (refused.code, refused.out) == (2, "")
    assert "plam" in refused.err
    assert "rpdp --help" in refused.err
