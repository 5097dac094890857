"""The lab as a distribution: the product never needs it, and study files reach its tasks."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
import rpdp_lab
import rpdp_lab.tasks

import rpdp
from rpdp.studies.study_file import StudyFile

ROOT = Path(__file__).parents[2]


def test_the_product_never_imports_the_lab() -> None:
    """Import-linter holds this too; here imports inside functions count as well, and strings do not."""
    importers = []
    for path in Path(rpdp.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            importers += [str(path) for name in names if name.split(".")[0] == "rpdp_lab"]
    assert importers == []


@pytest.mark.parametrize(("name", "task"), [("heart", "heart_disease"), ("mnist", "mnist")])
def test_examples_reach_the_papers_tasks(name: str, task: str) -> None:
    study = StudyFile.read(ROOT / "examples" / f"{name}.toml")
    assert study.task.name == f"rpdp_lab.tasks:{task}"
    assert getattr(rpdp_lab.tasks, task)().name == task


def test_the_distribution_needs_the_product_and_is_typed() -> None:
    project = tomllib.loads((ROOT / "lab/pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "rpdp-lab"
    assert any(need.startswith("rpdp[") for need in project["dependencies"])
    assert project["scripts"] == {"rpdp-lab": "rpdp_lab.cli:main"}
    assert Path(rpdp_lab.__file__).with_name("py.typed").is_file()


def test_the_product_does_not_need_the_libraries_of_the_lab() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "tokenizers" not in text
