"""Files that hold budgets: for their owner alone, complete or absent, never through a link, and made in one place."""

from __future__ import annotations

import ast
import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from rpdp import BudgetTable
from rpdp.cli.run import run
from rpdp.errors import InputError
from rpdp.federation.checkpoint import NAME, Checkpoint
from rpdp.ledger import Ledger
from rpdp.ledger.inspection.export import export
from rpdp.ledger.progress_callback import silent
from rpdp.private_files import private_file, read_regular
from rpdp.report import budgets_figure, write_figure
from tests.ledger import small

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]


def write(path: Path, *, overwrite: bool = False, text: bytes = b"new") -> None:
    with private_file(path, overwrite=overwrite) as file:
        file.write(text)


def test_it_is_for_its_owner_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with private_file(tmp_path / "a", overwrite=False) as file:
            (partial,) = tmp_path.iterdir()
            assert stat.S_IMODE(partial.stat().st_mode) == 0o600
            file.write(b"x")
        (tmp_path / "a").chmod(0o644)
        write(tmp_path / "a", overwrite=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_checkpoint_holds_draws_and_is_for_its_owner(tmp_path: Path) -> None:
    checkpoint = Checkpoint("run", torch.zeros(3), (), {}, {"a": np.array([1, 2])}, ())
    before = os.umask(0)
    try:
        checkpoint.write(tmp_path / "kept")
        (tmp_path / "kept" / NAME).chmod(0o644)
        checkpoint.write(tmp_path / "kept")
    finally:
        os.umask(before)
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in (tmp_path / "kept").iterdir()] == [(NAME, 0o600)]
    kept = Checkpoint.read(tmp_path / "kept")
    assert kept is not None
    assert kept.draws["a"].tolist() == [1, 2]


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(InputError, match="exists and is not overwritten"):
        write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"
    with (
        pytest.raises(InputError, match="exists and is not overwritten"),
        private_file(tmp_path / "b", overwrite=False),
    ):
        (tmp_path / "b").write_bytes(b"appeared meanwhile")
    assert (tmp_path / "b").read_bytes() == b"appeared meanwhile"
    write(tmp_path / "a", overwrite=True)
    assert (tmp_path / "a").read_bytes() == b"new"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "directory"])
def test_only_a_regular_file_is_replaced(tmp_path: Path, kind: str, overwrite: bool) -> None:
    target, path = tmp_path / "target", tmp_path / "a"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(target)
        if kind == "link":
            target.write_bytes(b"of somebody else")
    with pytest.raises(InputError, match="not a regular file" if overwrite else "is not overwritten"):
        write(path, overwrite=overwrite)
    assert not target.exists() or target.read_bytes() == b"of somebody else"
    assert path.is_symlink() == ("link" in kind)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
def test_a_file_of_another_user_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    os.chown(tmp_path / "a", 65534, 65534)
    with pytest.raises(InputError, match="belongs to another user"):
        write(tmp_path / "a", overwrite=True)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def interrupted() -> None:
        with private_file(tmp_path / "a", overwrite=True) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_full_disk_is_a_message(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"cannot be written: No space left on device"),
        private_file(tmp_path / "a", overwrite=False),
    ):
        raise OSError(28, os.strerror(28))
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "missing" / "a")


@pytest.mark.timeout(60)
def test_reading_never_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"abc")
    assert read_regular(tmp_path / "a") == b"abc"
    assert read_regular(tmp_path / "a", 2) == b"ab"
    for name in ("pipe", "link", "."):
        with pytest.raises(OSError):  # noqa: PT011
            read_regular(tmp_path / name)


def budgets(path: Path) -> None:
    small.budgets().write(path.with_suffix(".csv"))


def parquet(path: Path) -> None:
    small.budgets().write(path.with_suffix(".parquet"))


def plan(path: Path) -> None:
    small.by_hand(small.public(), small.budgets().ids, 0.1).write(path.with_suffix(".parquet"))


def figure(path: Path) -> None:
    write_figure(budgets_figure({"one": np.array([1.0, 2.0])}), path.with_suffix(".html"))


def exported(path: Path) -> None:
    with small.make(path.parent) as ledger:
        export(ledger, path.with_suffix(".json"), without_ids=False, progress=silent)


def copied(path: Path) -> None:
    with small.make(path.parent) as ledger:
        ledger.copy(path)


@pytest.mark.parametrize("make", [budgets, parquet, plan, figure, exported, copied])
def test_everything_with_budgets_is_for_its_owner_and_follows_no_link(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    before = os.umask(0o022)
    try:
        (tmp_path / "there").mkdir()
        make(tmp_path / "there" / "out")
        (path,) = (tmp_path / "there").glob("out*")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / path.name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError):
            make(tmp_path / "here" / "out")
        assert not (tmp_path / "elsewhere").exists()
    finally:
        os.umask(before)


WRITERS = {"write_text", "write_bytes", "touch", "write_table", "write_csv", "write_html", "write_image"}
HOLDS_BUDGETS = (
    "budgets/budget_files.py",
    "planning/silo_plan.py",
    "ledger/inspection/export.py",
    "report/rendering.py",
    "report/planning_figures.py",
    "audit/audit_files.py",
    "cli/budgets_command.py",
    "cli/plan_command.py",
    "cli/ledger_command.py",
    "deployment/trial.py",
)


@pytest.mark.parametrize("name", HOLDS_BUDGETS)
def test_what_holds_budgets_makes_files_in_one_place_only(name: str) -> None:
    """Their modules write only into a file that `private_file` has opened."""
    tree = ast.parse((ROOT / "src/rpdp" / name).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            arguments = [ast.unparse(argument) for argument in node.args]
            assert node.func.attr not in WRITERS or "file" in arguments, f"line {node.lineno}"
            assert node.func.attr != "open" or not {"'w'", "'wb'", "'a'"} & set(arguments), f"line {node.lineno}"


# An export without ids


def test_without_ids_nothing_can_be_tested_against_a_guess(tmp_path: Path) -> None:
    """Two silos that differ in one id: nothing in their exports tells which is which, not even to who knows the ids."""
    found = []
    for name, table in (
        ("one", BudgetTable(["a", "b", "c"], [1.0, 2.0, 3.0])),
        ("other", BudgetTable(["a", "b", "d"], [1.0, 2.0, 3.0])),
    ):
        (tmp_path / name).mkdir()
        with small.make(tmp_path / name, table) as ledger:
            ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
            ledger.charge("run", 1, small.heads)
            ledger.store("run", 1, b"update")
            ledger.lower_budgets(["a"], 0.9, reason="letter")
            ledger.left(table, small.LIFETIME_DELTA)
            silo_plan = ledger.status().runs[0].plan
            export(ledger, tmp_path / f"{name}.json", without_ids=True, progress=silent)
        text = (tmp_path / f"{name}.json").read_text()
        assert silo_plan not in text
        found.append(json.loads(text))
    for one in found:
        for event in one["events"]:
            assert "head" not in event
            assert not {"silo_plan", "members", "totals", "reason", "action"} & set(event["facts"])
            event["facts"].pop("at")
        assert one["events"][0]["facts"].pop("records") == {"count": 3}
        for chosen in ("ledger", "key_check"):
            one["events"][0]["facts"].pop(chosen)
        one.pop("ledger")
        one["public_head"].pop("ledger")
    assert found[0] == found[1]  # nothing tells which of the two it is
    assert found[0]["events"][3]["facts"]["sha256"]  # of the update, which the server has


def test_the_command_writes_for_the_owner_and_follows_no_link(tmp_path: Path) -> None:
    small.make(tmp_path).close()
    path = tmp_path / "accounts.csv"
    path.symlink_to(tmp_path / "elsewhere.csv")
    command = ["ledger", "export", str(tmp_path / "ledger.db"), str(path)]
    assert run(command) == 2
    assert run([*command, "--force"]) == 2
    assert not (tmp_path / "elsewhere.csv").exists()
    path.unlink()
    assert run(command) == 0
    assert run(command) == 2
    assert run([*command, "--force"]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Ledger.read(tmp_path / "ledger.db") as ledger:
        assert len(ledger.records) == len(path.read_text().splitlines()) - 1
