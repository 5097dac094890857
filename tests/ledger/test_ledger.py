from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.errors import BudgetError, InputError, PlanError, PrivacyRefusal
from rpdp.ledger import Account, Charge, Ledger, LedgerInUseError
from rpdp.ledger.inspection import verification
from rpdp.ledger.store import chain
from rpdp.planning import assign_allowed
from tests.federation.world import make_ids
from tests.ledger import small
from tests.ledger.account_suite import RECORDS, AccountSuite, never, plan
from tests.ledger.small import LIFETIME_DELTA, heads, tails

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.ledger.store.chain import Event


class TestLedger(AccountSuite):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def make(self, records: int = RECORDS) -> Account:
        budgets = BudgetTable(make_ids(records), [900.0] * records)
        return Ledger.create(self.directory / "ledger.db", budgets, kind="simulation", lifetime_delta=0.9)

    def switch_off(self, account: Account, positions: NDArray[np.int64]) -> None:
        assert isinstance(account, Ledger)
        account.withdraw([make_ids(RECORDS)[position] for position in positions])

    def test_a_plan_for_other_records_is_refused(self) -> None:
        """A ledger knows its records by id: unknown ones are refused; fewer are no problem."""
        account = self.make(RECORDS - 1)
        with pytest.raises(
            BudgetError, match=r"1 of 4 records are not in the ledger of 3 \(the first is 'r3'\); add them"
        ):
            account.reserve("run", plan(), None)
        assert account.status().runs == ()


# Files


def test_everything_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    table = small.budgets()
    with small.admitted(tmp_path, table) as ledger:
        before = ledger.left(table, LIFETIME_DELTA)
        ledger.charge("run", 1, heads)
        ledger.store("run", 1, b"update")
        ledger.charge("run", 3, tails)
        status = ledger.status()
    with Ledger.open(tmp_path / "ledger.db") as again:
        assert again.status() == status
        assert again.left(table, LIFETIME_DELTA).epsilon.tolist() == before.epsilon.tolist()
        assert again.stored("run", 1) == b"update"
        assert again.charge("run", 1, never) == Charge(1, True, is_new=False)
        assert again.charge("run", 2, never) == Charge(2, False, is_new=False)
        assert again.charge("run", 4, heads).is_new


def test_a_run_goes_on_after_a_restart_with_the_same_plan(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        made = small.plan(ledger, table)
        ledger.reserve("run", made, None)
    other_order = table.arranged([f"r{number}" for number in (3, 1, 7, 0, 2, 6, 5, 4)])
    with Ledger.open(tmp_path / "ledger.db") as again:
        same = again.resume("run", table.ids)
        turned = again.resume("run", other_order.ids)
    for name in ("q", "cost", "active_rounds"):
        assert getattr(same, name).tolist() == getattr(made, name).tolist()
    assert same.public == made.public
    assert same.fingerprint == turned.fingerprint == made.fingerprint
    assert turned.q.tolist() == made.q[[3, 1, 7, 0, 2, 6, 5, 4]].tolist()
    assert len(set(made.q.tolist())) > 1


def test_a_plan_that_goes_on_has_the_budgets_it_was_made_from(tmp_path: Path) -> None:
    """What was left of the smaller of ledger and table, whatever was booked or lowered since."""
    table = small.budgets()
    less = BudgetTable(table.ids.to_pylist(), np.where(np.arange(8) == 2, 0.7, table.epsilon))
    allowed = less.per_record(LIFETIME_DELTA)
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("before", small.plan(ledger, table), None)
        ledger.lower_budgets(["r4"], 1.0)
        ledger.withdraw(["r5"])
        made = assign_allowed(small.public(), less.ids, ledger.left(less, LIFETIME_DELTA))
        ledger.reserve("run", made, None)
        ledger.lower_budgets(["r6"], 0.1)
        ledger.withdraw(["r7"])
        ledger.reserve("after", small.plan(ledger, table), None)
        ledger.add(BudgetTable(["new"], [1.0]))
    with Ledger.open(tmp_path / "ledger.db") as again:
        same = again.resume("run", less.ids, allowed)
        assert same.budget.tolist() == made.budget.tolist()
        assert same.status.tolist() == made.status.tolist()
        first = again.explain("r2").runs[0].epsilon
        assert made.budget[[2, 5]].tolist() == pytest.approx([0.7 - first, 0.0])
        without_the_table = again.resume("run", less.ids).budget
        assert (without_the_table != made.budget).tolist() == [row == 2 for row in range(8)]
        lowered = BudgetTable(table.ids.to_pylist(), np.full(8, 1e-6)).per_record(LIFETIME_DELTA)
        assert again.resume("run", less.ids, lowered).budget.tolist() == made.cost.tolist()


def test_going_on_with_too_few_records_is_refused(tmp_path: Path) -> None:
    with small.admitted(tmp_path) as ledger, pytest.raises(PlanError, match=r"8 records .* only 7"):
        ledger.resume("run", small.budgets(7).ids)


def test_a_second_writer_is_refused_at_once_with_the_holder(tmp_path: Path) -> None:
    holder = f"written by process {os.getpid()} on .* since 20"
    with small.make(tmp_path), pytest.raises(LedgerInUseError, match=holder):
        Ledger.open(tmp_path / "ledger.db")
    Ledger.open(tmp_path / "ledger.db").close()


def test_readers_see_what_is_committed_while_a_writer_goes_on(tmp_path: Path) -> None:
    with small.admitted(tmp_path) as writer, Ledger.read(tmp_path / "ledger.db") as reader:
        for number in (1, 2, 3):
            writer.charge("run", number, heads)
            assert reader.status() == writer.status()
        with reader.reading():
            seen = reader.status()
            writer.charge("run", 4, heads)
            assert reader.status() == seen
        assert reader.status() == writer.status()
        assert reader.left(small.budgets(), LIFETIME_DELTA).epsilon.tolist() == (
            writer.left(small.budgets(), LIFETIME_DELTA).epsilon.tolist()
        )
        with pytest.raises(InputError, match="open for reading only"):
            reader.store("run", 1, b"x")
    assert not (tmp_path / "ledger.db-wal").exists() or (tmp_path / "ledger.db-wal").stat().st_size == 0


def test_what_is_written_where_and_who_may_read_it(tmp_path: Path) -> None:
    small.make(tmp_path, BudgetTable(["patient-0017", "patient-0018"], [1.0, 2.0])).close()
    for name in ("ledger.db", "ledger.db.key", "ledger.db.head"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert b"patient" not in (tmp_path / "ledger.db").read_bytes()
    (tmp_path / "ledger.db.key").chmod(0o644)
    with pytest.raises(PrivacyRefusal, match="can be read by others"):
        Ledger.read(tmp_path / "ledger.db").explain("patient-0017")


def test_another_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    small.make(tmp_path / "a").close()
    small.make(tmp_path / "b").close()
    with (
        Ledger.read(tmp_path / "a" / "ledger.db", key=tmp_path / "b" / "ledger.db.key") as ledger,
        pytest.raises(InputError, match="the key of another ledger"),
    ):
        ledger.explain("r1")


def test_a_ledger_is_never_overwritten(tmp_path: Path) -> None:
    small.admitted(tmp_path).close()
    with pytest.raises(InputError, match="never overwritten"):
        small.make(tmp_path)
    (tmp_path / "ledger.db").unlink()
    with pytest.raises(PrivacyRefusal, match="a ledger with 2 events was here"):
        small.make(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("PRAGMA journal_mode=DELETE", "the journal mode is delete, not WAL"),
        ("PRAGMA user_version=7", "has format 7, but this version of rpdp reads format 1"),
        ("PRAGMA application_id=5", "is not a ledger of rpdp"),
        ("DELETE FROM event", "its first event is missing or damaged"),
        ("UPDATE event SET joined = 1 WHERE seq = 2", "event 2 was changed"),
    ],
)
def test_a_file_in_another_mode_is_refused(tmp_path: Path, change: str, message: str) -> None:
    small.admitted(tmp_path).close()
    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    connection.execute(change).fetchall()
    connection.close()
    with pytest.raises((InputError, PrivacyRefusal), match=message):
        Ledger.open(tmp_path / "ledger.db")


def test_a_reader_of_a_place_where_nobody_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.admitted(tmp_path).close()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    before = sorted(tmp_path.iterdir())
    with Ledger.read(tmp_path / "ledger.db") as reader:
        assert reader.verify().is_good
        assert sorted(tmp_path.iterdir()) == before


def test_verifying_beside_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer goes on between the reader's look at the file and its look at the newest state."""
    with small.admitted(tmp_path) as writer, Ledger.read(tmp_path / "ledger.db") as reader:
        rounds = iter(range(1, 5))
        head_after = chain.head_after

        def slowly(previous: bytes, event: Event) -> bytes:
            writer.charge("run", next(rounds), heads)
            return head_after(previous, event)

        monkeypatch.setattr(verification, "head_after", slowly)
        assert reader.verify().findings == ()
        assert next(rounds) == 3


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.make(tmp_path).close()
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(PrivacyRefusal, match=r"SQLite 3\.51\.2 is too old"):
        Ledger.open(tmp_path / "ledger.db")


@pytest.mark.parametrize("content", [b"", b"record,epsilon\n", None])
def test_what_is_not_a_ledger_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "ledger.db").write_bytes(content)
    with pytest.raises(InputError, match="no ledger" if content is None else "is not a ledger"):
        Ledger.open(tmp_path / "ledger.db")


def test_an_interrupted_creation_leaves_nothing_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(label: str) -> None:
        if label == "create: built":
            raise KeyboardInterrupt

    monkeypatch.setattr("rpdp.ledger.store.crash_points.reached", stop)
    with pytest.raises(KeyboardInterrupt):
        small.make(tmp_path)
    monkeypatch.undo()
    with pytest.raises(InputError, match="no ledger"):
        Ledger.open(tmp_path / "ledger.db")
    with small.make(tmp_path) as ledger:
        assert ledger.verify().is_good


# Budgets


def test_left_is_the_smaller_of_ledger_and_table(tmp_path: Path) -> None:
    with small.make(tmp_path, BudgetTable(["a", "b"], [1.0, 2.0], delta=[1e-3, 1e-2])) as ledger:
        left = ledger.left(BudgetTable(["b", "a"], [5.0, 0.5]), 5e-3)
    assert left.epsilon.tolist() == [2.0, 0.5]
    assert left.delta is not None
    assert left.delta.tolist() == [5e-3, 1e-3]


def test_records_that_are_not_in_the_table_keep_their_account_and_take_no_part(tmp_path: Path) -> None:
    table, fewer = small.budgets(8), small.budgets(5)
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("all", small.plan(ledger, table), None)
        before = ledger.left(table, LIFETIME_DELTA).epsilon
        ledger.reserve("fewer", small.plan(ledger, fewer), None)
        after = ledger.left(table, LIFETIME_DELTA).epsilon
        assert (after < before).tolist() == [True] * 5 + [False] * 3
        assert ledger.verify().is_good
        assert ledger.explain("r7").runs[1].q == 0.0


def test_a_plan_beyond_what_is_left_is_refused_as_a_whole(tmp_path: Path) -> None:
    table = small.budgets(3, epsilon=1.0)
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("first", small.by_hand(small.public(), table.ids, [0.5, 0.5, 0.5]), None)
        for cost in ([0.5, 1.5, 0.51], [np.nextafter(0.5, 1.0), 0.1, 0.1]):
            with pytest.raises(PrivacyRefusal, match="1 records would go over their budgets"):
                ledger.reserve("second", small.by_hand(small.public(), table.ids, cost), None)
        with pytest.raises(PrivacyRefusal, match="3 records would go over"):
            ledger.reserve("second", small.by_hand(small.public(delta=9.1e-3), table.ids, 0.1), None)
        assert ledger.left(table, LIFETIME_DELTA).epsilon.tolist() == [0.5, 1.5, 0.5]
        ledger.reserve("second", small.by_hand(small.public(), table.ids, [0.5, 1.5, 0.5]), None)
        assert ledger.left(table, LIFETIME_DELTA).epsilon.tolist() == [0.0, 0.0, 0.0]


def test_a_lifetime_delta_of_n_runs_is_enough_for_n_runs(tmp_path: Path) -> None:
    """0.01 holds ten times 0.001, though neither is exact in binary: the planner's tolerance."""
    table = small.budgets(2)
    with small.make(tmp_path, table) as ledger:
        for number in range(10):
            ledger.reserve(f"run {number}", small.plan(ledger, table, share=0.1), None)
            assert ledger.switched_off().size == 0
        last = small.plan(ledger, table)
        assert last.q.tolist() == [0.0, 0.0]
        findings = ledger.verify().findings
    assert findings == ()


@pytest.mark.parametrize("join", [None, (1, 2), (1, 2, 2), (1, 2, 5)])
def test_rounds_to_join_must_fit_the_schedule(tmp_path: Path, join: tuple[int, ...] | None) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        made = small.plan(ledger, table, participations=3)
        with pytest.raises(PlanError, match="rounds_to_join"):
            ledger.reserve("run", made, join)
        with pytest.raises(PlanError, match="rounds_to_join"):
            ledger.reserve("run", small.plan(ledger, table), (1, 2, 3))


def test_records_are_added_later(tmp_path: Path) -> None:
    old, new = small.budgets(4), BudgetTable(["n0", "n1"], [0.5, 3.0])
    with small.admitted(tmp_path, old) as ledger:
        assert ledger.add(new) == 2
        assert ledger.switched_off().size == 0
        ledger.reserve("meanwhile", small.plan(ledger, old), None)
        both = BudgetTable([*old.ids.to_pylist(), "n0", "n1"], [*old.epsilon, 0.5, 3.0])
        left = ledger.left(both, LIFETIME_DELTA).epsilon
        assert left[4:].tolist() == [0.5, 3.0]
        assert (left[:4] < old.epsilon).all()
        ledger.reserve("next", small.plan(ledger, both), None)
        assert ledger.verify().is_good
        with pytest.raises(BudgetError, match="record 'n1' is in the ledger already"):
            ledger.add(BudgetTable(["n2", "n1"], [1.0, 1.0]))
    with Ledger.open(tmp_path / "ledger.db") as again:
        assert len(again.records) == 6
        assert again.explain("n0").runs[0].q == 0.0
        assert again.explain("n0").runs[2].q > 0.0


def test_a_subject_cannot_get_more_by_more_records(tmp_path: Path) -> None:
    table = BudgetTable(["a", "b", "c"], [1.0, 1.0, 2.0], subjects=["p", "p", "q"])
    with small.make(tmp_path, table) as ledger:
        assert ledger.left(table, LIFETIME_DELTA).epsilon.tolist() == [0.5, 0.5, 2.0]
        with pytest.raises(BudgetError, match="a subject of these records has records in the ledger already"):
            ledger.add(BudgetTable(["d"], [1.0], subjects=["p"]))
        ledger.add(BudgetTable(["d"], [1.0], subjects=["someone else"]))
        ledger.withdraw(subjects=["p"])
        assert ledger.left(table, LIFETIME_DELTA).epsilon.tolist() == [0.0, 0.0, 2.0]


def test_many_records_and_classes_in_several_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five chunks, more than 256 classes, both with and without everybody."""
    monkeypatch.setattr("rpdp.ledger.store.record_store.CHUNK", 100)
    table = BudgetTable([f"r{number}" for number in range(450)], np.linspace(0.5, 3.0, 450))
    rows = np.arange(0, 450, 3)
    some = BudgetTable([f"r{number}" for number in rows], table.epsilon[rows])
    q = np.where(np.arange(450) % 7 == 0, 0.0, np.linspace(0.01, 0.2, 450))
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("everybody", small.by_hand(small.public(), table.ids, table.epsilon / 4, q), None)
        ledger.reserve("some", small.by_hand(small.public(), some.ids, some.epsilon / 8, q[rows] / 2), None)
        expected = np.where(q > 0.0, table.epsilon / 4, 0.0)
        expected[rows] += np.where(q[rows] > 0.0, some.epsilon / 8, 0.0)
        np.testing.assert_allclose(ledger.left(table, LIFETIME_DELTA).epsilon, table.epsilon - expected, rtol=1e-12)
        assert {finding.check for finding in ledger.verify().findings} == {"prices"}
        assert ledger.resume("some", some.ids).q.tolist() == (q[rows] / 2).tolist()
        overview = ledger.overview()
    assert [run.drawn for run in overview.runs] == [int((q > 0).sum()), int((q[rows] > 0).sum())]
    assert sum(group.records for group in overview.groups) == 450


def test_the_explanation_of_a_record(tmp_path: Path) -> None:
    table = small.budgets()
    with small.admitted(tmp_path, table) as ledger:
        ledger.charge("run", 1, heads)
        ledger.charge("run", 2, heads)
        explained = ledger.explain("r3")
        with pytest.raises(InputError, match="no record 'r99' among the 8"):
            ledger.explain("r99")
    assert explained.first_epsilon == explained.epsilon == 4.0
    assert explained.spent_epsilon == pytest.approx(explained.runs[0].epsilon)
    assert explained.left_epsilon == pytest.approx(4.0 - explained.spent_epsilon)
    assert 0.0 < explained.runs[0].given_joined < explained.runs[0].epsilon
    for words in (
        "lifetime budget of ε = 4",
        "Run run",
        "2 of 4 rounds announced, 2 of them joined",
        "left for further runs",
    ):
        assert words in explained.text
    assert json.dumps(explained.text)
