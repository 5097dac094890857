"""The log that a killed writer leaves: taken over with its own database, refused with any other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rpdp.errors import PrivacyRefusal
from rpdp.ledger import Ledger
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads


def killed(tmp_path: Path) -> tuple[Path, Path]:
    """The files of a writer that was killed after a charge, and a database from before its run."""
    now, then, table = tmp_path / "now", tmp_path / "then.db", small.budgets()
    now.mkdir()
    small.make(now, table).close()
    shutil.copy(now / "ledger.db", then)
    with Ledger.open(now / "ledger.db") as ledger:
        ledger.reserve("run", small.plan(ledger, table, share=1.0), None)
        ledger.charge("run", 1, heads)
        ledger.withdraw(["r0"])
        ledger.charge("run", 2, heads)
        shutil.copytree(now, tmp_path / "killed")  # what is on the disk at this moment
    assert (tmp_path / "killed" / "ledger.db-wal").stat().st_size > 0
    return tmp_path / "killed" / "ledger.db", then


def test_a_log_is_taken_over_by_its_own_database(tmp_path: Path) -> None:
    path, _ = killed(tmp_path)
    with Ledger.open(path) as ledger:
        assert ledger.left(small.budgets(), LIFETIME_DELTA).epsilon.max() < 0.1
        assert ledger.verify().is_good
    assert not path.with_name("ledger.db-wal").exists()
    Ledger.open(path).close()


def test_an_older_database_beside_the_log_is_refused(tmp_path: Path) -> None:
    """The last events come from the log and fit the notes; the totals would be those of the old file."""
    path, older = killed(tmp_path)
    shutil.copy(older, path)
    with pytest.raises(PrivacyRefusal, match="does not belong to the log beside it"):
        Ledger.open(path)
    with Ledger.read(path) as reader:
        assert not reader.verify().is_good


def test_a_refused_ledger_is_left_as_it_was(tmp_path: Path) -> None:
    """Otherwise the second attempt would find the two as one file, without a log."""
    path, older = killed(tmp_path)
    shutil.copy(older, path)
    files = [path, path.with_name("ledger.db-wal"), path.with_name("ledger.db.head")]
    before = [file.read_bytes() for file in files]
    for _ in range(2):
        with pytest.raises(PrivacyRefusal, match="Put both back from the same moment"):
            Ledger.open(path)
        assert [file.read_bytes() for file in files] == before
