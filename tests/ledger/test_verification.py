"""`verify` finds every change: of a number, of an event, of a byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.errors import RpdpError
from rpdp.ledger import Ledger
from rpdp.ledger.inspection import verification
from rpdp.ledger.store.schema import TABLES, pack
from tests.ledger import small
from tests.ledger.small import heads, tails

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger in which everything has happened once."""
    directory = tmp_path_factory.mktemp("ledger")
    table = small.budgets(6)
    with small.make(directory, table) as ledger:
        ledger.reserve("first", small.plan(ledger, table), None)
        ledger.charge("first", 1, heads)
        ledger.store("first", 1, b"an update" * 20)
        ledger.withdraw(["r1"], reason="letter")
        ledger.charge("first", 3, tails)
        ledger.add(BudgetTable(["new"], [1.5]))
        more = BudgetTable([*table.ids.to_pylist(), "new"], [*table.epsilon, 1.5])
        ledger.lower_budgets(["r2"], 0.9)
        ledger.reserve("second", small.plan(ledger, more, participations=2), (1, 3))
        ledger.charge("second", 1, tails)
        assert ledger.verify().is_good
    return directory


@pytest.fixture
def copy(original: Path, memory: Path) -> Path:
    target = memory / "copy"
    shutil.copytree(original, target)
    return target / "ledger.db"


def findings(path: Path) -> set[str]:
    with Ledger.read(path) as ledger:
        return {finding.check for finding in ledger.verify().findings}


def change(path: Path, statement: str, *values: Any) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, values).fetchall()
    connection.close()


def test_a_good_ledger_is_good(copy: Path) -> None:
    with Ledger.read(copy) as ledger:
        result = ledger.verify()
    assert (result.events, result.records, result.runs, result.findings) == (10, 7, 2, ())


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE event SET joined = 1 - joined WHERE seq = 10", {"chain"}),
        (
            "UPDATE event SET payload = replace(payload, '\"missed\":1', '\"missed\":0') WHERE seq = 6",
            {"chain", "rounds"},
        ),
        ("UPDATE event SET public_count = 77 WHERE seq = 10", {"chain"}),
        ("DELETE FROM event WHERE seq = 10", {"chain"}),
        ("DELETE FROM event WHERE seq = 5", {"chain", "bulk", "accounts"}),
        ("DELETE FROM outbox", {"bulk"}),
        ("UPDATE outbox SET payload = x'00'", {"bulk"}),
        ("INSERT INTO outbox VALUES(99, x'00')", {"bulk"}),
        ("UPDATE change SET action = 'another' WHERE seq = (SELECT min(seq) FROM change)", {"bulk"}),
        ("DELETE FROM change", {"bulk", "accounts"}),
        ("DELETE FROM total", {"bulk", "accounts"}),
        ("DELETE FROM member WHERE seq = 2", {"bulk", "accounts"}),
        ("UPDATE segment SET chunk = 5 WHERE seq = 1", {"bulk", "accounts"}),
        ("UPDATE segment SET first = x'00' WHERE seq = 1", {"bulk"}),
        ("CREATE TABLE another(x)", {"file"}),
        ("DROP INDEX event_of_round", {"file"}),
    ],
)
def test_any_change_of_a_row_is_found(copy: Path, statement: str, found: set[str]) -> None:
    change(copy, statement)
    assert findings(copy) >= found


def test_a_total_that_was_lowered_is_found_twice(copy: Path) -> None:
    """By its hash, and by the sum of the bookings."""
    change(copy, "UPDATE total SET epsilon = ? WHERE segment = 1", pack(np.zeros(6, dtype="<i8")))
    assert findings(copy) == {"bulk", "accounts"}


@pytest.mark.parametrize("share", [0.5, 0.999])
def test_a_run_booked_below_its_price_is_found(tmp_path: Path, share: float) -> None:
    """Everything else fits: the chain is whole, sums and budgets are right. Only the price is wrong."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        honest = small.plan(ledger, table)
        ledger.reserve("honest", honest, None)
        assert ledger.verify().is_good
        ledger.reserve("cheat", small.by_hand(small.public(), table.ids, honest.cost * share, honest.q), None)
        result = ledger.verify()
    assert {finding.check for finding in result.findings} == {"prices"}
    assert "run 'cheat': 2 sampling classes are booked below their cost" in result.findings[0].problem


def test_a_plan_by_the_default_accountant_passes_and_its_half_does_not(tmp_path: Path) -> None:
    table = BudgetTable([f"r{number}" for number in range(40)], np.linspace(0.5, 3.0, 40))
    with small.make(tmp_path, table) as ledger:
        made = small.plan(ledger, table, accountant="pld")
        assert len(np.unique(made.q)) > 30
        ledger.reserve("run", made, None)
        assert ledger.verify().is_good
        cheap = small.by_hand(small.public(accountant="pld"), table.ids, made.cost * 0.99, made.q)
        ledger.reserve("cheap", cheap, None)
        assert not ledger.verify().is_good


def test_a_booking_over_the_budget_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger whose writer does not check, and whose chain is whole all the same."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        first, second = small.plan(ledger, table, share=0.8), small.plan(ledger, table, share=0.8)
        monkeypatch.setattr("rpdp.ledger.balances.Balances.require", lambda self, plan: None)
        ledger.reserve("first", first, None)
        ledger.reserve("second", second, None)
        result = ledger.verify()
    problems = [finding.problem for finding in result.findings]
    assert {finding.check for finding in result.findings} == {"accounts"}
    assert "run 'second' booked 8 records of chunk (1, 0) beyond their budget in force" in problems


# Single bytes


def content(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that can be read out of the file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}  # noqa: S608
    tables["schema"] = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    for pragma in ("application_id", "user_version", "journal_mode", "encoding"):
        tables[pragma] = connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.close()
    return tables


def is_detected(path: Path) -> bool:
    try:
        with Ledger.read(path) as ledger:
            return not ledger.verify().is_good
    except RpdpError:
        return True


def check_flips(path: Path, flips: Iterator[tuple[int, int]]) -> tuple[int, int]:
    """Each flip is found, or what can be read is exactly what it was. How many, and how many were found."""
    before, whole = content(path), path.read_bytes()
    tried = detected = 0
    for position, mask in flips:
        damaged = bytearray(whole)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        for side in ("-wal", "-shm"):
            path.with_name(path.name + side).unlink(missing_ok=True)
        tried += 1
        if is_detected(path):
            detected += 1
        else:
            assert content(path) == before, f"byte {position} ^ {mask} changed what is read, and was not found"
    return tried, detected


@pytest.fixture
def without_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices are the slow part, and no byte needs them to be found."""
    monkeypatch.setattr(verification, "reprice", lambda ledger, progress: iter(()))


@pytest.mark.usefixtures("without_prices")
def test_single_bytes_all_over_the_file(copy: Path) -> None:
    """A sample; the slow suite changes every byte."""
    generator = np.random.default_rng(5)
    size = copy.stat().st_size
    positions = np.unique(np.concatenate([np.arange(0, 100, 4), generator.integers(0, size, 250)]))
    masks = generator.integers(1, 256, len(positions))
    tried, detected = check_flips(copy, zip(positions.tolist(), masks.tolist(), strict=True))
    assert tried > 250
    assert detected > 0.1 * tried  # pages of a small ledger are mostly empty


@pytest.mark.usefixtures("without_prices")
def test_every_used_byte_of_the_chain_is_found(copy: Path) -> None:
    """The control for the sample: in the text of events, not one flip goes unnoticed."""
    whole = copy.read_bytes()
    start = whole.index(b'{"at":')
    tried, detected = check_flips(copy, ((position, 0x10) for position in range(start, start + 60)))
    assert detected == tried == 60


@pytest.mark.slow
@pytest.mark.usefixtures("without_prices")
def test_every_single_byte_of_the_file(copy: Path) -> None:
    generator = np.random.default_rng(6)
    size = copy.stat().st_size
    masks = generator.integers(1, 256, size).tolist()
    tried, detected = check_flips(copy, enumerate(masks))
    assert tried == size
    assert detected > 5000
