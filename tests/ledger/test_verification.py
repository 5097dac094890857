"""`verify` finds every change: of a number, of an event, of a byte."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.errors import RpdpError
from rpdp.ledger import Ledger, StewardKey
from rpdp.ledger.balances import Balances
from rpdp.ledger.inspection import verification
from rpdp.ledger.inspection.replay import _Rounds, replay_accounts
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.store.chain import Event
from rpdp.ledger.store.run_book import Admission
from rpdp.ledger.store.schema import FIRST_TABLES, pack
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads, tails

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
        ledger.reserve("second", small.plan(ledger, more, participations=2), None)
        ledger.charge("second", 1, tails, lambda: (1, 3))
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
        monkeypatch.setattr("rpdp.ledger.balances.Balances.require", lambda *_: None)
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
    tables = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in FIRST_TABLES}  # noqa: S608
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


def test_what_stewards_did_is_replayed(tmp_path: Path) -> None:
    """A raise makes room for more, and after a withdrawal a booking is wrong."""
    key, table = StewardKey(), BudgetTable(["a", "b"], [1.0, 1.0])
    with small.make(tmp_path, table, steward=key.public) as ledger:
        ledger.raise_budgets(["a"], 3.0, key=key)
        raised = BudgetTable(["a", "b"], [3.0, 1.0])
        ledger.left(raised, LIFETIME_DELTA)
        ledger.reserve("run", small.by_hand(small.public(), table.ids, [2.5, 0.5]), None)
        assert list(replay_accounts(ledger, silent)) == []
        ledger.withdraw(["b"])
        ledger.left(raised, LIFETIME_DELTA)
        assert list(replay_accounts(ledger, silent)) == []
        with pytest.MonkeyPatch.context() as careless:
            careless.setattr(Balances, "require", lambda *_: None)
            ledger.reserve("late", small.by_hand(small.public(), table.ids, 0.1), None)
        assert list(replay_accounts(ledger, silent)) == [
            "run 'late' booked 1 records of chunk (1, 0) beyond their budget in force"
        ]


@pytest.mark.parametrize(
    ("expires", "at", "is_wrong"), [(None, "12:00", True), ("12:00", "11:59", True), ("12:00", "12:00", False)]
)
def test_an_expiry_before_its_time_is_found(expires: str | None, at: str, is_wrong: bool) -> None:
    admission = Admission(2, "run", small.public(), "", "", None, 1, 0, "11:00", expires)
    event = Event(3, "cancel", "run", 0, 0, f'{{"at": "{at}", "by": "expiry", "reason": ""}}', b"", None, None)
    assert [("is booked as expired" in problem) for problem in _Rounds(admission).take(event)] == [True] * is_wrong


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ([(1, 0), (2, 0), (4, 1)], []),
        ([(3, 2), (2, -2)], ["round 2 of run 'run' was charged after round 3 of 4"]),
        ([(2, 1), (2, -1)], ["round 2 of run 'run' was charged after round 2 of 4"]),
        ([(5, 4)], ["round 5 of run 'run' was charged after round 0 of 4"]),
        ([(3, 1)], ["round 3 of run 'run': 1 is not the number of rounds missed before it"]),
    ],
)
def test_rounds_out_of_order_are_found(rounds: list[tuple[int, int]], words: list[str]) -> None:
    """Each with how many it says were missed before it."""
    replayed = _Rounds(Admission(2, "run", small.public(), "", "", None, 1, 0, "11:00", None))
    found: list[str] = []
    for seq, (number, missed) in enumerate(rounds, 3):
        facts = f'{{"at": "12:00", "missed": {missed}}}'
        found += replayed.take(Event(seq, "charge", "run", number, 0, facts, b"", None, None))
    assert found == words


@pytest.mark.parametrize(("join", "is_wrong"), [([1, 3], False), ([1], True), ([1, 2, 3], True), ([1, 5], True)])
def test_drawn_rounds_that_are_not_those_of_the_schedule_are_found(join: list[int], is_wrong: bool) -> None:
    replayed = _Rounds(Admission(2, "run", small.public(participations=2), "", "", None, 1, 0, "11:00", None))
    facts = f'{{"at": "12:00", "missed": 1, "join": {join}}}'
    event = Event(3, "charge", "run", 2, int(2 in join), facts, b"", None, None)
    assert [("are not those of its schedule" in problem) for problem in replayed.take(event)] == [True] * is_wrong


@pytest.mark.parametrize(("at", "is_wrong"), [("11:59", False), ("12:00", True)])
def test_a_first_charge_after_the_expiry_is_found(at: str, is_wrong: bool) -> None:
    replayed = _Rounds(Admission(2, "run", small.public(), "", "", None, 1, 0, "11:00", "12:00"))
    event = Event(3, "charge", "run", 1, 0, f'{{"at": "{at}", "missed": 0}}', b"", None, None)
    assert [("its hold expired" in problem) for problem in replayed.take(event)] == [True] * is_wrong


@pytest.mark.parametrize("joined", [0, 1])
def test_a_coin_against_the_drawn_rounds_is_found(joined: int) -> None:
    replayed = _Rounds(Admission(2, "run", small.public(participations=2), "", "", None, 1, 0, "11:00", None))
    first = Event(3, "charge", "run", 1, 1, '{"at": "12:00", "missed": 0, "join": [1, 3]}', b"", None, None)
    assert list(replayed.take(first)) == []
    number = 2 if joined else 3
    facts = f'{{"at": "12:00", "missed": {number - 2}}}'
    problems = list(replayed.take(Event(4, "charge", "run", number, joined, facts, b"", None, None)))
    assert problems == [f"round {number} of run 'run': whether it was joined contradicts the rounds drawn for the run"]


def test_what_comes_after_a_cancellation_and_what_is_released_twice_is_found() -> None:
    admission = Admission(2, "run", small.public(), "", "", None, 1, 0, "11:00", None)
    charge = Event(3, "charge", "run", 1, 1, '{"at": "12:00", "missed": 0}', b"", None, None)
    release = Event(4, "release", "run", 1, 0, "{}", b"", None, None)
    cancel = Event(5, "cancel", "run", 0, 0, '{"at": "12:00", "by": "server", "reason": ""}', b"", None, None)
    twice = "round 1 of run 'run' was released without being joined, or released twice"
    late = "run 'run' was cancelled after round 1 was charged"
    for events, words in (
        ([charge, release], []),
        ([charge, release, release], [twice]),
        ([release], [twice]),
        ([cancel], []),
        ([charge, cancel], [late]),
        ([cancel, charge], ["event 3: run 'run' was cancelled before it"]),
    ):
        replayed = _Rounds(admission)
        assert [problem for event in events for problem in replayed.take(event)] == words


def test_a_hash_that_is_another_is_found_whichever_it_is(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.withdraw(["r0"])
        ledger.left(table, LIFETIME_DELTA)
        some = BudgetTable(table.ids.to_pylist()[1:], table.epsilon[1:])
        ledger.reserve("run", small.by_hand(small.public(), some.ids, 0.1), None)
        ledger.charge("run", 1, heads)
        ledger.store("run", 1, b"update")
        kinds = []
        for event in ledger.chain.events():
            assert verification._bulk_of(ledger, event) is None
            for digit in "0f":
                other = replace(event, payload=re.sub('"[0-9a-f]{64}"', f'"{digit * 64}"', event.payload))
                kinds += [event.kind] * (verification._bulk_of(ledger, other) is not None)
    assert kinds == [kind for kind in ("create", "withdraw", "admit", "release") for _ in "0f"]


def test_what_a_cancelled_run_gave_back_is_replayed(tmp_path: Path) -> None:
    """Exactly, whether a record took part or not, and before as well as after more records came."""
    table = small.budgets(4)
    q = np.array([0.5, 0.0, 0.5, 1.0])
    made = small.by_hand(small.public(), table.ids, 0.1 * (q > 0.0), q)
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("gone", made, None)
        ledger.cancel("gone")
        ledger.reserve("kept", made, None)
        ledger.add(BudgetTable(["new"], [1.0]))
        wider = BudgetTable([*table.ids.to_pylist(), "new"], [*table.epsilon, 1.0])
        ledger.reserve("wider", small.by_hand(small.public(), wider.ids, 0.1), None)
        ledger.reserve("held", made, None)
        ledger.cancel("held")
        assert list(replay_accounts(ledger, silent)) == []


def test_other_totals_are_found_whichever_hash_they_have(tmp_path: Path) -> None:
    """A comparison of hashes that looks in one direction only would miss half of them."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
        assert verification.check_contents(ledger, silent) == []
        for number in range(30):
            ledger.database.rows("UPDATE total SET epsilon = ?", (pack(np.full(len(table), number, dtype="<i8")),))
            assert [finding.problem for finding in verification.check_contents(ledger, silent)] == [
                "the totals are not those of the last reservation or cancellation"
            ]
