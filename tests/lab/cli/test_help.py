from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import rpdp_lab as package

if TYPE_CHECKING:
    from tests.lab.cli.conftest import LabCommand

COMMANDS = ["reproduce", "central"]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_help_has_an_example(rpdp_lab: LabCommand, command: str) -> None:
    shown = rpdp_lab(*command.split(), "--help")
    assert (shown.code, shown.err) == (0, "")
    assert f"Example: rpdp-lab {command}".strip() in " ".join(shown.out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_speaks_json(rpdp_lab: LabCommand, command: str) -> None:
    assert "--json" in rpdp_lab(command, "--help").out


def test_version(rpdp_lab: LabCommand) -> None:
    assert rpdp_lab("--version").out == f"rpdp-lab {package.__version__}\n"


def test_the_entry_point_helps_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['rpdp-lab', '--help']; from rpdp_lab.cli import main\n"
        "try: main()\nfinally: assert 'torch' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "reproduce" in shown.stdout
    assert "central" in shown.stdout
