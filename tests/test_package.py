"""The public surface: exactly what is documented, loaded on first use, never a deep-learning import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rpdp

PUBLIC = {
    "BudgetTable",
    "Evaluation",
    "Ledger",
    "Metric",
    "PersonalClassifier",
    "PersonalRegressor",
    "PersonalTrainer",
    "Policy",
    "PrivacyCurve",
    "PublicPlan",
    "Recipe",
    "Records",
    "RunResult",
    "Schedule",
    "Secure",
    "Seeded",
    "Silo",
    "SiloPlan",
    "TensorBoardLog",
    "calibrate_noise",
    "declared_plan",
    "errors",
    "frontier",
    "methods",
    "run_production",
    "runs_that_fit",
    "simulate",
    "train_central",
    "write_report",
}
"""What the README's example and the tutorials need, and no more."""

HEAVY = {"numpy", "scipy", "pyarrow", "torch", "dp_accounting", "flwr"}


def modules_after(statement: str) -> set[str]:
    """The top-level modules that are loaded once a fresh interpreter has run a statement."""
    code = f"{statement}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60)
    return set(done.stdout.split())


def test_exports_are_exactly_the_documented_ones() -> None:
    assert set(rpdp.__all__) == {"__version__", *PUBLIC}
    assert len(rpdp.__all__) == len(set(rpdp.__all__))
    assert dir(rpdp) == sorted(rpdp.__all__)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_resolves(name: str) -> None:
    value = getattr(rpdp, name)
    assert getattr(value, "__name__", "").rpartition(".")[2] == name


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'rpdp' has no attribute 'BudgetTabel'"):
        _ = rpdp.BudgetTabel


def test_import_is_lazy() -> None:
    loaded = modules_after("import rpdp; rpdp.errors; rpdp.__version__")
    assert "rpdp" in loaded
    assert loaded & HEAVY == set()


def test_a_name_loads_only_what_it_needs() -> None:
    loaded = modules_after("import rpdp; rpdp.BudgetTable")
    assert {"numpy", "pyarrow"} <= loaded
    assert loaded & {"scipy", "torch", "dp_accounting"} == set()


@pytest.mark.parametrize(
    "statement", ["import rpdp.planning, rpdp.accounting, rpdp.budgets", "import rpdp.report", "import rpdp.cli.run"]
)
def test_planning_never_imports_torch(statement: str) -> None:
    assert modules_after(statement) & {"torch", "flwr", "dp_accounting"} == set()


@pytest.mark.parametrize("arguments", [["--help"], ["ledger", "--help"], ["nonsense"]], ids=" ".join)
def test_the_command_line_loads_on_use(arguments: list[str]) -> None:
    statement = f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n    run({arguments!r})"
    assert modules_after(f"from rpdp.cli.run import run\n{statement}") & HEAVY == set()


def test_the_list_of_commands_loads_no_command() -> None:
    code = "import sys; from rpdp.cli.run import run; run(['--help']); sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60)
    assert "rpdp.cli.app" in done.stderr.split()
    assert [name for name in done.stderr.split() if name.endswith("_command")] == []
