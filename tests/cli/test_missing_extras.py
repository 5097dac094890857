"""Commands and public names without optional packages: one line that names the extra, exit code 2, no traceback.

An import hook hides the packages here. `tests/test_wheel.py` does the same with a really empty environment.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp import errors, extras
from rpdp.extras import missing_extra
from tests.test_wheel import NEEDS, STUDY, WORK

if TYPE_CHECKING:
    from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]
OPTIONAL = (
    "torch",
    "sklearn",
    "mlxtend",
    "apsw",
    "cryptography",
    "flwr",
    "safetensors",
    "dp_accounting",
    "starlette",
    "uvicorn",
)

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
"""
COMMAND = "from rpdp.cli import main; main()"


def without(
    hidden: tuple[str, ...], directory: Path, code: str, *arguments: object
) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that cannot import these packages."""
    command = [sys.executable, "-c", HIDE.format(hidden=hidden) + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=120, cwd=directory)


def test_what_needs_no_extra_works(tmp_path: Path) -> None:
    for arguments in WORK:
        done = without(OPTIONAL, tmp_path, COMMAND, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments


@pytest.mark.parametrize("asked", NEEDS, ids=" ".join)
def test_a_command_names_the_extra(tmp_path: Path, asked: tuple[str, ...]) -> None:
    arguments = [ROOT / argument if argument == STUDY else argument for argument in asked]
    (tmp_path / "plans").mkdir()
    refused = without(OPTIONAL, tmp_path, COMMAND, *arguments)
    told = f"rpdp {asked[0]} needs {NEEDS[asked]}"
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", f"error: {told}\n")


@pytest.mark.parametrize("command", ["train", "compare", "doctor", "audit"])
def test_an_embedded_task_names_its_extra(tmp_path: Path, command: str) -> None:
    refused = without(("sklearn", "mlxtend"), tmp_path, COMMAND, command, ROOT / STUDY, "--json")
    assert (refused.returncode, refused.stderr) == (2, "")
    assert json.loads(refused.stdout) == {
        "error": f"rpdp {command} needs scikit-learn: pip install 'rpdp[train]'",
        "kind": "MissingExtraError",
        "exit_code": 2,
    }


def test_public_names_say_which_extra_they_need(tmp_path: Path) -> None:
    code = """
import rpdp
for name in sorted(set(rpdp.__all__)):
    try:
        getattr(rpdp, name)
    except rpdp.errors.MissingExtraError as error:
        print(error)
"""
    done = without(OPTIONAL, tmp_path, code)
    train = ["Evaluation", "PersonalClassifier", "PersonalRegressor", "PersonalTrainer", "Records", "Silo"]
    train += ["TensorBoardLog", "run_production", "simulate", "train_central"]
    assert done.stdout.splitlines() == sorted(
        [
            *(f"rpdp.{name} needs PyTorch: pip install 'rpdp[train]'" for name in train),
            *(f"rpdp.{name} needs cryptography: pip install 'rpdp[train]'" for name in ("Secure", "Seeded")),
            "rpdp.Ledger needs cryptography: pip install 'rpdp[ledger]'",
        ]
    )


def test_the_extras_that_are_named_install_what_is_missing() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    distributions = {"sklearn": "scikit-learn", "fhir": "fhir.resources"}
    for module, (_, providers) in extras._OPTIONAL.items():
        for extra in providers:
            names = {re.split("[<>=]", requirement)[0] for requirement in declared[extra]}
            assert distributions.get(module, module) in names


def test_a_module_that_no_extra_provides_is_a_defect(rpdp: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = ModuleNotFoundError("No module named 'nowhere'", name="nowhere")
    assert missing_extra("rpdp plan", unknown) is None

    def fail(*_: object) -> None:
        raise unknown

    monkeypatch.setattr("rpdp.cli.options.schedule_of", fail)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        rpdp("plan", "-T", "1", "-t", "1", "-d", "1e-3")


def test_the_error_is_of_both_kinds() -> None:
    error = missing_extra("rpdp train", ModuleNotFoundError("", name="torch.nn"), ["train"])
    assert isinstance(error, errors.InputError)
    assert isinstance(error, ModuleNotFoundError)
    assert (error.name, error.exit_code) == ("torch", 2)
