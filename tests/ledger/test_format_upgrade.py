"""A ledger of an older format is read as it is, and written only after an upgrade, which changes nothing it says."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from rpdp.cli.run import run as cli
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Ledger
from rpdp.ledger.format_upgrade import upgrade
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.schema import FORMAT, OLDER_FORMATS, statements
from tests.ledger import small
from tests.ledger.crash_tool import kill_at

if TYPE_CHECKING:
    from pathlib import Path

OLDER = pytest.mark.parametrize("file_format", OLDER_FORMATS)


def older(directory: Path, file_format: int) -> Path:
    """A ledger of an older format with a run; from format 3 on also with a round, a withdrawal, a lowered budget."""
    table, path = small.budgets(), directory / "ledger.db"
    if file_format < 3:
        small.as_release_0_1(directory, table, None, file_format)
        return path
    with small.make(directory, table) as ledger:
        ledger.reserve("run", small.plan(ledger, table), None)
        ledger.charge("run", 1, small.heads)
        ledger.withdraw(["r1"])
        ledger.lower_budgets(["r2"], 0.5)
        ledger.left(table, small.LIFETIME_DELTA)
    small.make_older(path, file_format)
    return path


def said(path: Path) -> tuple[object, ...]:
    """Everything that a ledger says, as one value."""
    with Ledger.read(path) as ledger:
        explained = [repr(vars(ledger.explain(f"r{number}"))) for number in range(8)]
        return ledger.verify().findings, ledger.chain.head, ledger.public_head(), ledger.overview().groups, explained


def format_of(path: Path) -> int:
    with Ledger.read(path) as ledger:
        return ledger.database.format


def test_the_formats_are_those_that_were_ever_written() -> None:
    assert (OLDER_FORMATS, FORMAT) == ((1, 2, 3), 4)
    made = [len(statements(each)) for each in (1, 2, 3, 4)]
    assert made == [10, 10, 12, 13]
    assert statements(1) + statements(4, after=1) == statements(4)


@OLDER
def test_an_older_ledger_is_read_and_not_written(tmp_path: Path, file_format: int) -> None:
    """Every way to write it names the command, and leaves file and inbox as they were."""
    path = older(tmp_path, file_format)
    before = path.read_bytes()
    with Ledger.read(path) as ledger:
        assert ledger.verify().findings == ()
        with pytest.raises(InputError, match=f"has format {file_format}.*`rpdp ledger upgrade {path}`"):
            ledger.withdraw(["r3"])
    with pytest.raises(InputError, match="`rpdp ledger upgrade"):
        Ledger.open(path)
    assert path.read_bytes() == before
    assert list((tmp_path / "ledger.db.inbox").iterdir()) == []


@OLDER
def test_an_upgraded_ledger_says_what_it_said(tmp_path: Path, file_format: int) -> None:
    path = older(tmp_path, file_format)
    before = said(path)
    done = upgrade(path)
    assert (done.before, done.after) == (file_format, FORMAT)
    assert format_of(path) == FORMAT
    assert said(path) == before
    assert before[0] == ()
    again = upgrade(path)
    assert (again.before, again.after) == (FORMAT, FORMAT)
    assert said(path) == before
    with Ledger.open(path) as ledger:
        assert not ledger.charge("run", 2, small.tails).joined
        assert ledger.verify().findings == ()


@pytest.mark.parametrize("label", crash_points.RARE_LABELS)
def test_an_interrupted_upgrade_leaves_the_old_file(tmp_path: Path, label: str) -> None:
    """Killed inside the transaction, on either side of the new number."""
    path = older(tmp_path, 2)
    before = said(path)
    child = os.fork()
    if child == 0:
        setattr(crash_points, "reached", kill_at(label, 1))  # noqa: B010
        upgrade(path)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert format_of(path) == 2
    assert said(path) == before
    assert upgrade(path).before == 2
    assert said(path) == before


def test_a_ledger_that_is_written_or_damaged_is_not_upgraded(tmp_path: Path) -> None:
    path = older(tmp_path, 3)
    (tmp_path / "ledger.db.head").unlink()
    with pytest.raises(PrivacyRefusal, match="is missing"):
        upgrade(path)
    assert format_of(path) == 3
    (tmp_path / "other").mkdir()
    with small.make(tmp_path / "other"), pytest.raises(PrivacyRefusal, match="is being written"):
        upgrade(tmp_path / "other" / "ledger.db")


def test_the_command_upgrades_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = older(tmp_path, 1)
    assert cli(["ledger", "prune", str(path)]) == 2
    assert f"rpdp ledger upgrade {path}" in " ".join(capsys.readouterr().err.split())
    assert cli(["ledger", "upgrade", str(path)]) == 0
    assert f"upgraded from format 1 to {FORMAT}" in capsys.readouterr().out
    assert cli(["ledger", "upgrade", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(path), "before": FORMAT, "after": FORMAT}
    assert cli(["ledger", "prune", str(path)]) == 0
