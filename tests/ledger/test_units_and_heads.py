"""Edges of amounts and of the public head that a random sample of code changes found untested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Ledger
from rpdp.ledger.inspection.verification import check_contents
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.record_accounts import is_overbooked
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT, fits_delta, left_of, rounded_up
from rpdp.ledger.store.holds import return_booking
from rpdp.ledger.store.record_keys import RecordKey
from rpdp.ledger.store.schema import APPLICATION_ID, CHUNK, FORMAT, OLDER_FORMATS
from tests.ledger import small
from tests.ledger.account_suite import never

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.ledger.store.creation import Kind


def test_a_budget_of_which_nothing_is_reserved_is_left_as_it_is() -> None:
    budget = np.array([0.1, 1e-300, 3.7])
    assert left_of(budget, np.zeros(3, dtype=np.int64), EPSILON_SHIFT).tolist() == budget.tolist()


def test_a_delta_above_what_is_left_does_not_fit() -> None:
    budget = np.array([1e-3, 1e-3, 1e-3])
    reserved = rounded_up(np.array([0.0, 5e-4, 9e-4]), DELTA_SHIFT)
    assert fits_delta(4e-4, budget, reserved).tolist() == [True, True, False]
    assert fits_delta(1e-3 * (1 + 5e-13), budget, reserved).tolist() == [True, False, False]
    assert not fits_delta(1e-3 * (1 + 5e-12), budget, reserved).any()


def test_more_booked_than_the_budget_in_force_is_seen_in_either_number() -> None:
    """Beyond the rounding of a booking that fitted, so that a budget that is used up exactly stays in."""
    epsilon, delta = np.full(5, 0.1), np.full(5, 1e-3)
    booked_epsilon = rounded_up(np.array([0.1, 0.1 + 1e-12, 0.0, 0.0, 0.0]), EPSILON_SHIFT)
    booked_delta = rounded_up(np.array([1e-3, 0.0, 1e-3 * (1 + 1e-12), 1e-3 * (1 + 1e-9), 2e-3]), DELTA_SHIFT)
    found = is_overbooked(epsilon, delta, booked_epsilon, booked_delta)
    assert found.tolist() == [False, True, False, True, True]


def test_the_public_head_covers_what_was_released(tmp_path: Path) -> None:
    """Another update, or the same one for another round, is another history."""
    found = set()
    for name, number, update in (("a", 1, b"update"), ("b", 1, b"another"), ("c", 2, b"update")):
        (tmp_path / name).mkdir()
        with small.admitted(tmp_path / name) as ledger:
            for round_number in (1, 2):
                ledger.charge("run", round_number, small.heads)
            ledger.store("run", number, update)
            found.add(ledger.public_head().head)
    assert len(found) == 3


def test_the_public_head_covers_the_plan_and_the_charged_rounds(tmp_path: Path) -> None:
    """Another plan under the same name, or another round, is another history."""
    admitted, charged = set(), set()
    settings: list[tuple[dict[str, Any], int]] = [({}, 1), ({}, 2), ({"rounds": 5}, 1), ({"noise_multiplier": 3.0}, 1)]
    for number, (changes, round_number) in enumerate(settings):
        (tmp_path / str(number)).mkdir()
        table = small.budgets()
        with small.make(tmp_path / str(number), table) as ledger:
            ledger.reserve("run", small.by_hand(small.public(**changes), table.ids, 0.1), None)
            admitted.add(ledger.public_head().head)
            ledger.charge("run", round_number, small.heads)
            charged.add(ledger.public_head().head)
    assert (len(admitted), len(charged)) == (3, 4)


def test_only_a_charge_says_that_a_round_was_joined(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
        ledger.charge("run", 1, small.heads)
        ledger.charge("run", 2, small.tails)
        ledger.store("run", 1, b"update")
        said = [(event.kind, event.round, event.joined) for event in ledger.chain.events()]
    assert said == [("create", 0, 0), ("admit", 0, 0), ("charge", 1, 1), ("charge", 2, 0), ("release", 1, 0)]


def test_the_newest_acknowledged_head_is_kept(tmp_path: Path) -> None:
    """A server that repeats an older one does not make the ledger forget the newer."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
        older = ledger.public_head()
        ledger.charge("run", 1, small.heads)
        newer = ledger.public_head()
        for head, kept in ((older, older), (newer, newer), (older, newer)):
            ledger.acknowledge(head)
            assert ledger.acknowledged == kept
    with Ledger.read(tmp_path / "ledger.db") as reader:
        assert reader.acknowledged == newer


@pytest.mark.parametrize("column", [0, 1])
def test_a_hold_that_is_more_than_what_is_booked_is_not_returned(tmp_path: Path, column: int) -> None:
    """Less than nothing would be booked, and more could be spent than there is."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
        admission, (chunk,) = ledger.runs.admission("run"), ledger.records.chunks
        totals = list(ledger.records.totals(chunk))
        totals[column] = totals[column].copy()
        totals[column][3] -= 1  # one unit of one record
        with ledger.database.transaction():
            ledger.records.write_totals(chunk, *totals)
            with pytest.raises(PrivacyRefusal, match=r"less is booked in chunk \(1, 0\) than run 'run' holds"):
                return_booking(ledger.records, ledger.runs.members, admission)


def test_a_round_that_was_not_planned_is_refused_in_the_transaction_too(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
        for number in (0, 5):
            with ledger.database.transaction(), pytest.raises(PrivacyRefusal, match=f"round {number} of run"):
                ledger.runs.charge("run", number, never, None, 0.0)
        assert ledger.chain.seq == 2


@pytest.mark.parametrize("count", [0, -1, CHUNK + 1])
def test_a_chunk_of_an_impossible_size_is_refused(tmp_path: Path, count: int) -> None:
    with small.make(tmp_path) as ledger, ledger.database.transaction():
        ledger.database.rows("UPDATE segment SET count = ?", (count,))
        with pytest.raises(PrivacyRefusal, match=f"a chunk of {count} records"):
            ledger.records.reload()


def test_a_chunk_that_is_missing_is_refused(tmp_path: Path) -> None:
    with small.make(tmp_path) as ledger, ledger.database.transaction():
        (chunk,) = ledger.records.chunks
        ledger.database.rows("DELETE FROM segment")
        for read in (ledger.records.hashes, ledger.records.budgets, ledger.records.subjects):
            with pytest.raises(PrivacyRefusal, match=r"chunk \(1, 0\) is missing"):
                read(chunk)


def test_one_record_is_enough(tmp_path: Path) -> None:
    with small.make(tmp_path, BudgetTable(["only"], [1.0])) as ledger:
        assert len(ledger.records) == 1


def test_what_is_in_every_file_stays_as_it_is() -> None:
    """Ledgers of other versions have been written with these, and will be read with them."""
    assert (4, (1, 2, 3), int.from_bytes(b"rpdp"), 65_536) == (FORMAT, OLDER_FORMATS, APPLICATION_ID, CHUNK)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "test"}, "kind='test'"),
        ({"lifetime_delta": 0.0}, "lifetime_delta=0.0"),
        ({"lifetime_delta": 1.5}, "lifetime_delta=1.5"),
    ],
)
def test_a_ledger_of_no_kind_or_without_a_delta_is_not_made(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    settings: dict[str, Any] = {"kind": "simulation", "lifetime_delta": 1e-3, **changes}
    with pytest.raises(InputError, match=words):
        Ledger.create(tmp_path / "ledger.db", small.budgets(), **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["production", "simulation"])
def test_a_ledger_stays_of_the_kind_it_was_created_as(tmp_path: Path, kind: Kind) -> None:
    """A production ledger that took itself for a simulation would take seeded noise."""
    Ledger.create(tmp_path / "ledger.db", small.budgets(), kind=kind, lifetime_delta=1e-3).close()
    for opened in (Ledger.open, Ledger.read):
        with opened(tmp_path / "ledger.db") as ledger:
            told = (ledger.kind, ledger.is_simulation, ledger.status().is_simulation, ledger.overview().kind)
        assert told == (kind, kind == "simulation", kind == "simulation", kind)


def test_what_is_read_in_one_view_is_of_one_moment(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger, Ledger.read(tmp_path / "ledger.db") as reader:
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
        with reader.database.snapshot():
            before = reader.database.rows("SELECT max(seq) FROM event")
            ledger.charge("run", 1, small.heads)
            assert reader.database.rows("SELECT max(seq) FROM event") == before == [(2,)]
        assert reader.database.rows("SELECT max(seq) FROM event") == [(3,)]


def off_without_the_file(ledger: Ledger) -> list[int]:
    """Who may not be drawn, asked as a forked worker asks: it must not use the parent's database."""

    def fail(*_: object, **__: object) -> None:
        pytest.fail("the database was asked")

    with pytest.MonkeyPatch.context() as closed:
        for name in ("rows", "each", "snapshot", "transaction"):
            closed.setattr(ledger.database, name, fail)
        return [int(position) for position in ledger.switched_off()]


def test_between_transactions_nobody_asks_the_file_who_may_be_drawn(tmp_path: Path) -> None:
    """It is asked before every local step."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.left(table, small.LIFETIME_DELTA)
        assert off_without_the_file(ledger) == []
        for run in ("run", "other"):
            ledger.reserve(run, small.by_hand(small.public(), table.ids, 0.1), None)
            assert off_without_the_file(ledger) == []
        ledger.withdraw(["r2"])
        assert off_without_the_file(ledger) == [2]
        ledger.charge("run", 1, small.heads)
        assert off_without_the_file(ledger) == [2]
        ledger.cancel("other")
        assert off_without_the_file(ledger) == [2]
    with Ledger.open(tmp_path / "ledger.db") as again:
        again.resume("run", table.ids)
        assert off_without_the_file(again) == [2]


def test_after_a_failed_transaction_the_file_is_asked_once(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        made = small.by_hand(small.public(), table.ids, 0.1)
        ledger.reserve("run", made, None)
        with pytest.raises(PrivacyRefusal, match="was admitted before"):
            ledger.reserve("run", made, None)
        ledger.switched_off()
        assert off_without_the_file(ledger) == []


@pytest.mark.parametrize("content", ["not hexadecimal", "00" * 31, "00" * 33, ""])
def test_what_is_not_a_key_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ledger.db.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match=r"is not the key of a ledger|must have 32 bytes"):
        RecordKey.read(path)


def test_contents_after_a_removal_of_updates_are_checked_to_the_end(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
        for number in (1, 2):
            ledger.charge("run", number, small.heads)
            ledger.store("run", number, b"update")
            if number == 1:
                ledger.prune("run")
        assert check_contents(ledger, silent) == []
        ledger.database.rows("UPDATE outbox SET payload = ?", (b"another",))
        assert [finding.check for finding in check_contents(ledger, silent)] == ["bulk"]


def test_any_error_of_the_database_is_a_refusal(tmp_path: Path) -> None:
    with small.make(tmp_path) as ledger, pytest.raises(PrivacyRefusal, match="SQLError"):
        ledger.database.rows("SELECT nothing FROM nowhere")
