"""The built wheel, installed without extras into an empty environment: it plans, and says what else to install.

The interpreter that runs the tests takes part in `make test` (about a minute), the others in `make wheel-test`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import rpdp
from tests.interpreters import RUNNING, interpreter

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSIONS = ("3.11", "3.12", "3.13")

RUN = ["-T", "15", "-t", "5", "--participations", "8", "-d", "1e-4", "--accountant", "rdp"]
WORK = [
    ["budgets", "make", "budgets.csv", "-n", "100", "--plot", "budgets.html"],
    ["budgets", "check", "budgets.csv"],
    ["budgets", "explain", "0.5", "--delta", "1e-5"],
    ["account", "-T", "15", "-t", "5", "--participations", "8", "-d", "1e-4", "-s", "5"],
    ["plan", *RUN, "--max-epsilon", "10", "-b", "budgets.csv", "-o", "plans", "--normaliser", "64", "--clip-norm", "1"],
    ["frontier", *RUN, "-b", "budgets.csv", "--noise-multipliers", "1,2", "--figure", "frontier.html"],
]
"""What a wheel without extras must do."""

STUDY = "examples/breast_cancer.toml"
NEEDS = {
    ("train", STUDY): "PyTorch: pip install 'rpdp[train]'",
    ("compare", STUDY): "PyTorch: pip install 'rpdp[train]'",
    ("doctor", STUDY): "PyTorch: pip install 'rpdp[train]'",
    ("audit", STUDY): "PyTorch: pip install 'rpdp[train]'",
    ("report", "plans"): "PyTorch: pip install 'rpdp[train]'",
    ("ledger", "show", "ledger.db"): "cryptography: pip install 'rpdp[ledger]'",
    ("silo", "check", "silo.toml"): "PyTorch: pip install 'rpdp[train,ledger]'",
    ("console", "silo.toml"): "uvicorn: pip install 'rpdp[ledger,console]'",
    ("deploy", "up", "federation"): "cryptography: pip install 'rpdp[train,ledger,flower]'",
}
"""What each other command says, after its own name."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree, built from a copy without the network."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src/rpdp", source / "src/rpdp", ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(source / "dist"),
        str(source),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (built,) = (source / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_the_product_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"rpdp-{rpdp.__version__}.dist-info/"
    files = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/rpdp").rglob("*") if path.is_file()}
    assert {name for name in names if not name.startswith(info)} == {
        name for name in files if "__pycache__" not in name
    }
    assert f"{info}licenses/LICENSE" in names


def test_the_supported_versions_are_the_tested_ones() -> None:
    prefix = "Programming Language :: Python :: "
    declared = {line.removeprefix(prefix) for line in PROJECT["classifiers"] if line.startswith(prefix)}
    assert declared == {"3", *VERSIONS}
    assert PROJECT["requires-python"] == f">={VERSIONS[0]}"


@pytest.mark.parametrize(
    "version", [pytest.param(one, marks=[] if one == RUNNING else [pytest.mark.slow]) for one in VERSIONS]
)
def test_without_extras(wheel: Path, tmp_path: Path, version: str) -> None:
    commands = _install(wheel, tmp_path / "environment", version)
    installed = _python(commands, "from importlib.metadata import distributions as d; print(*(x.name for x in d()))")
    assert {"numpy", "scipy", "rpdp"} <= set(installed.split())
    assert {"torch", "flwr", "apsw", "cryptography", "scikit-learn", "rpdp-lab"} & set(installed.split()) == set()
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    failed: list[object] = []
    for arguments in WORK:
        done = _rpdp(commands, tmp_path, arguments)
        failed += [(arguments, done)] if done.returncode or done.stderr else []
    for asked, needs in NEEDS.items():
        refused = _rpdp(commands, tmp_path, asked)
        told = (refused.returncode, refused.stdout, refused.stderr)
        failed += [] if told == (2, "", f"error: rpdp {asked[0]} needs {needs}\n") else [(asked, refused)]
    assert failed == []
    assert "rpdp.simulate needs PyTorch: pip install 'rpdp[train]'" in _python(
        commands, "import rpdp\ntry: rpdp.simulate\nexcept rpdp.errors.MissingExtraError as error: print(error)"
    )


def _install(wheel: Path, environment: Path, version: str) -> Path:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} that runs")
    subprocess.run([python, "-m", "venv", str(environment)], check=True, timeout=120)
    pip = [str(environment / "bin/pip"), "--disable-pip-version-check"]
    probe = [*pip, "download", "--quiet", "--no-deps", "--dest", str(environment / "probe"), "mdurl"]
    if subprocess.run(probe, check=False, capture_output=True, timeout=300).returncode:
        pytest.skip("pip finds no packages here: neither an index nor a directory of wheels")
    install = [*pip, "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=500)
    return environment / "bin"


def _python(commands: Path, code: str) -> str:
    done = subprocess.run(
        [commands / "python", "-I", "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def _rpdp(commands: Path, directory: Path, arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the installed command, with nothing but its own environment to import from."""
    assert isinstance(arguments, list | tuple)
    return subprocess.run(
        [commands / "rpdp", *arguments],
        cwd=directory,
        env={"PATH": str(commands), "PYTHONUTF8": "1", "HOME": str(directory)},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
