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
from rpdp.ledger.inspection.export import export
from rpdp.ledger.past_balances import balances_before
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.store import chain
from rpdp.ledger.store.record_keys import RecordKey
from rpdp.planning import Status, assign_allowed
from tests.federation.world import make_ids
from tests.ledger import small
from tests.ledger.account_suite import RECORDS, AccountSuite, never, plan
from tests.ledger.small import LIFETIME_DELTA, heads, tails

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.ledger.progress_callback import Progress
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


def test_records_that_end_early_still_end_early_after_a_restart(tmp_path: Path) -> None:
    """`scf` misses some budgets and ends those records before the last round; drawn to the end they would overspend."""
    table = BudgetTable([f"r{number}" for number in range(8)], np.geomspace(0.05, 6.0, 8))
    with small.make(tmp_path, table) as ledger:
        left = ledger.left(table, LIFETIME_DELTA)
        made = assign_allowed(small.public(rounds=20), table.ids, left, estimator="scf")
        drawn = made.q > 0.0
        assert len(set(made.active_rounds[drawn].tolist())) > 2
        ledger.reserve("run", made, None)
        assert ledger.resume("run", table.ids).active_rounds[drawn].tolist() == made.active_rounds[drawn].tolist()
    with Ledger.open(tmp_path / "ledger.db") as again:
        same = again.resume("run", table.ids)
    assert same.active_rounds[drawn].tolist() == made.active_rounds[drawn].tolist()
    assert same.q.tolist() == made.q.tolist()
    assert same.fingerprint == made.fingerprint


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


def test_a_plan_that_goes_on_knows_nothing_of_later_runs(tmp_path: Path) -> None:
    """Who sat out for a small ε is not said to have sat out for a δ that a later run has taken."""
    table = small.budgets(4)
    with small.make(tmp_path, table) as ledger:
        q = np.array([0.0, 0.5, 0.5, 0.5])
        ledger.reserve("first", small.by_hand(small.public(), table.ids, 0.1 * (q > 0.0), q), None)
        later = small.public(delta=LIFETIME_DELTA - small.DELTA)
        ledger.reserve("later", small.by_hand(later, table.ids, 0.1), None)
        resumed = ledger.resume("first", table.ids)
        assert resumed.status.tolist() == [Status.BUDGET_TOO_SMALL, *[Status.SAMPLED] * 3]
        assert resumed.budget.tolist() == table.epsilon.tolist()
        before = balances_before(ledger, ledger.runs.admission("first").seq, ledger.balances(table.ids))
        assert (before.booked.tolist(), before.booked_delta.tolist()) == ([0] * 4, [0] * 4)
        ledger.reserve("last", small.by_hand(small.public(delta=5e-4), table.ids, 0.1 * (q > 1.0), 0.0), None)
        assert ledger.resume("last", table.ids).status.tolist() == [
            Status.BUDGET_TOO_SMALL,
            *[Status.DELTA_TOO_SMALL] * 3,
        ]


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


def test_a_reader_that_stays_sees_new_heads_records_and_bookings(tmp_path: Path) -> None:
    with small.admitted(tmp_path) as writer, Ledger.read(tmp_path / "ledger.db") as reader:
        assert reader.public_head() == writer.public_head()
        writer.add(BudgetTable(["new"], [1.5]))
        assert (reader.status().records, reader.explain("new").epsilon) == (9, 1.5)
        reader.withdraw(["r2"])
        assert reader.overview().pending_actions == 1
        writer.charge("run", 1, heads)
        assert (reader.overview().pending_actions, reader.overview().withdrawn) == (0, 1)
        assert reader.public_head() == writer.public_head()
        assert reader.overview().events == writer.chain.seq


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
        ("PRAGMA user_version=7", "has format 7, but this version of rpdp reads formats up to 4"),
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
    with small.admitted(tmp_path, participations=3) as ledger:
        with pytest.raises(PlanError, match="rounds_to_join"):
            ledger.charge("run", 1, never, None if join is None else lambda: join)
        assert ledger.status().runs[0].announced == 0
        assert ledger.charge("run", 1, never, lambda: (1, 2, 4)).joined


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
        ledger.add(BudgetTable(["d"], [1.0], subjects=["p"]))
        ledger.add(BudgetTable(["e"], [1.0], subjects=["someone else"]))
        assert ledger.left(table, LIFETIME_DELTA).epsilon == pytest.approx([1 / 3, 1 / 3, 2.0])
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
        "Reserved, and therefore spent: ",
        "this run alone costs ε = ",
        "2 of 4 rounds announced, 2 of them joined",
        "are left for further runs",
    ):
        assert words in explained.text
    assert json.dumps(explained.text)


def test_who_sits_out_and_who_is_always_drawn_are_told_apart(tmp_path: Path) -> None:
    table = small.budgets(3)
    with small.make(tmp_path, table) as ledger:
        q = np.array([0.0, 0.5, 1.0])
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1 * (q > 0.0), q), None)
        told = ["it sat out and spent nothing" in ledger.explain(record).text for record in ("r0", "r1", "r2")]
    assert told == [True, False, False]


def test_a_withdrawn_record_has_nothing_left(tmp_path: Path) -> None:
    with small.make(tmp_path) as ledger:
        ledger.withdraw(["r0"])
        told = ledger.explain("r0")
        assert (told.left_epsilon, told.left_delta, told.withdrawn, told.switched_off) == (0.0, 0.0, True, True)
        other = ledger.explain("r1")
        assert (other.left_epsilon, other.left_delta) == (4.0, LIFETIME_DELTA)


def test_what_a_cancelled_run_held_is_not_said_to_be_spent(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
        (held,) = ledger.explain("r0").runs
        assert (held.epsilon, held.delta, held.joined, held.state) == (0.1, small.DELTA, 0, "held")
        assert "Held, and therefore taken: 5.0% of its lifetime budget" in ledger.explain("r0").text
        ledger.cancel("run")
        (returned,) = ledger.explain("r0").runs
        assert (returned.epsilon, returned.delta, returned.given_joined) == (0.0, 0.0, 0.0)


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    table = small.budgets()
    small.make(tmp_path, table).close()
    made = small.by_hand(small.public(), table.ids, 0.1)
    with Ledger.read(tmp_path / "ledger.db") as reader:
        asks: list[Callable[[], object]] = [
            lambda: reader.reserve("run", made, None),
            lambda: reader.cancel("run"),
            reader.expire,
            lambda: reader.acknowledge(reader.public_head()),
            lambda: reader.add(BudgetTable(["new"], [1.0])),
            reader.prune,
        ]
        for ask in asks:
            with pytest.raises(InputError, match="open for reading only"):
                ask()


def test_a_copy_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("another copy")
    with small.make(tmp_path) as ledger, pytest.raises(InputError, match="exists and is not overwritten"):
        ledger.copy(tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "another copy"


def test_a_run_needs_a_name(tmp_path: Path) -> None:
    with small.make(tmp_path) as ledger:
        with pytest.raises(InputError, match="a run needs a name"):
            ledger.reserve("", small.by_hand(small.public(), small.budgets().ids, 0.1), None)
        assert ledger.chain.seq == 1


def test_no_other_key_is_taken(tmp_path: Path) -> None:
    """Whatever its check value is."""
    with small.make(tmp_path) as ledger:
        for number in range(8):
            other = tmp_path / f"{number}.key"
            other.write_text(bytes([number] * 32).hex())
            other.chmod(0o600)
            with Ledger.read(ledger.files.database, key=other) as reader, pytest.raises(InputError, match="another"):
                reader.explain("r0")


def test_every_commit_is_noted_at_once(tmp_path: Path) -> None:
    """Else an older file would go unnoticed until the next one."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:

        def noted() -> bool:
            assert ledger._rollback_notes is not None
            notes = ledger._rollback_notes.notes()
            return [note["seq"] for note in notes] == [ledger.chain.seq] * 2

        made = small.by_hand(small.public(), table.ids, 0.1)
        steps: list[Callable[[], object]] = [
            lambda: ledger.reserve("run", made, None),
            lambda: ledger.reserve("other", made, None),
            lambda: ledger.cancel("other"),
            lambda: ledger.charge("run", 1, heads),
            lambda: ledger.store("run", 1, b"update"),
            lambda: ledger.prune("run"),
            lambda: ledger.add(BudgetTable(["new"], [1.0])),
            lambda: (ledger.withdraw(["r0"]), ledger.left(table, LIFETIME_DELTA)),
        ]
        for step in steps:
            before = ledger.chain.seq
            step()
            assert ledger.chain.seq > before
            assert noted()


def test_what_a_charge_has_booked_waits_no_longer(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.1), None)
        ledger.withdraw(["r0"])
        ledger.lower_budgets(["r1"], 0.5)
        assert [action.kind for action in ledger.pending()] == ["withdraw", "lower"]
        ledger.charge("run", 1, heads)
        assert ledger.pending() == []
        assert ledger.switched_off().tolist() == [0]
        assert ledger.left(table, LIFETIME_DELTA).epsilon[:3].tolist() == [0.0, pytest.approx(0.4), pytest.approx(1.9)]


def test_actions_that_were_booked_are_removed_when_it_is_opened(tmp_path: Path) -> None:
    with small.make(tmp_path) as ledger:
        ledger.withdraw(["r0"])
        ledger.left(small.budgets(), LIFETIME_DELTA)
        (left,) = ledger.files.inbox.iterdir()
        content = left.read_bytes()
    left.write_bytes(content)  # as if the process had been killed before it closed the ledger
    with Ledger.open(tmp_path / "ledger.db") as again:
        assert list(again.files.inbox.iterdir()) == []


def test_an_overview_groups_records_by_budget(tmp_path: Path) -> None:
    """A budget on a limit is in the group below it."""
    epsilon = [0.05, 0.1, 0.15, 0.2, 0.5, 0.6, 1.0, 2.0, 5.0, 5.5, 10.0, 11.0]
    with small.make(tmp_path, BudgetTable(make_ids(len(epsilon)), epsilon)) as ledger:
        groups = [(group.low, group.high, group.records) for group in ledger.overview().groups]
    assert groups == [
        (0.0, 0.1, 2), (0.1, 0.2, 2), (0.2, 0.5, 1), (0.5, 1.0, 2), (1.0, 2.0, 1), (2.0, 5.0, 1), (5.0, 10.0, 2),
        (10.0, None, 1),
    ]  # fmt: skip


def test_an_export_replaces_nothing_unless_told_to(tmp_path: Path) -> None:
    there = tmp_path / "accounts.csv"
    there.write_text("the auditor's copy")
    with small.make(tmp_path) as ledger:
        with pytest.raises(InputError, match="exists and is not overwritten"):
            export(ledger, there, without_ids=True, progress=silent)
        assert there.read_text() == "the auditor's copy"
        assert export(ledger, there, without_ids=True, progress=silent, overwrite=True) == len(small.budgets())


def test_an_overview_counts_who_is_off_used_up_and_new(tmp_path: Path) -> None:
    table = BudgetTable(["used", "off", "new", "part"], [2.0, 2.0, 2.0, 1.0])
    with small.make(tmp_path, table) as ledger:
        cost, q = np.array([2.0, 0.5, 0.0, 0.25]), np.array([0.5, 0.5, 0.0, 0.25])
        ledger.reserve("run", small.by_hand(small.public(), table.ids, cost, q), None)
        ledger.withdraw(["off"])
        told = ledger.overview()
    low, high = told.groups
    assert (low.records, low.off, low.exhausted, low.mean_epsilon, low.mean_share_used) == (1, 0, 0, 1.0, 0.25)
    assert (high.records, high.off, high.exhausted, high.mean_epsilon) == (3, 1, 1, 2.0)
    assert high.mean_share_used == pytest.approx(1.25 / 3)
    assert (told.withdrawn, told.switched_off, told.never_used, told.pending_actions) == (1, 1, 1, 1)
    (run,) = told.runs
    assert (run.drawn, run.classes, run.largest_cost, run.is_covered) == (3, 3, 2.0, True)
    assert run.mean_cost == pytest.approx(2.75 / 3)


def test_an_export_without_ids_is_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    """By the budget first: the order of the file is that of the hashes, which are left out."""
    epsilon = [1.0 + number / 64 for number in range(64)]
    with small.make(tmp_path, BudgetTable(make_ids(64), epsilon)) as ledger:
        assert export(ledger, tmp_path / "numbers.csv", without_ids=True, progress=silent) == 64
        assert export(ledger, tmp_path / "all.csv", without_ids=False, progress=silent) == 64
    numbers, everything = (
        [line.split(",") for line in (tmp_path / name).read_text().splitlines()[1:]]
        for name in ("numbers.csv", "all.csv")
    )
    assert [float(row[0]) for row in numbers] == epsilon
    assert [float(row[1]) for row in everything] != epsilon
    assert [row[0] for row in everything] == sorted(row[0] for row in everything)


def test_the_key_of_another_ledger_is_refused_in_both_directions(tmp_path: Path) -> None:
    """Whichever of their check values is the larger one."""
    paths = [tmp_path / name / "ledger.db" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        small.make(path.parent).close()
    for path, other in (paths, paths[::-1]):
        with (
            Ledger.read(path, key=other.with_name("ledger.db.key")) as ledger,
            pytest.raises(InputError, match="is the key of another ledger"),
        ):
            ledger.explain("r0")


def test_positions_are_those_of_the_run_last_reserved(tmp_path: Path) -> None:
    table = small.budgets()
    turned = table.arranged(table.ids.to_pylist()[::-1])
    with small.make(tmp_path, table) as ledger:
        ledger.withdraw(["r1"])
        chances = np.where(np.arange(8) == 1, 0.0, 0.5)
        for run, given, q, position in (("one", table, chances, 1), ("two", turned, chances[::-1], 6)):
            ledger.reserve(run, small.by_hand(small.public(), given.ids, 0.1, q), None)
            assert ledger.switched_off().tolist() == [position]
        for run, given, position in (("one", table, 1), ("two", turned, 6), ("one", turned, 6)):
            ledger.resume(run, given.ids)
            assert ledger.switched_off().tolist() == [position]


def test_without_a_table_there_are_no_positions(tmp_path: Path) -> None:
    small.make(tmp_path).close()
    with Ledger.open(tmp_path / "ledger.db") as ledger, pytest.raises(InputError, match="refer to a budget table"):
        ledger.switched_off()


def test_a_ledger_in_no_directory_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere is not a directory; create it first"):
        small.make(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_two_records_of_one_hash_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would share one account, and each would spend what the other has left."""
    hashed = RecordKey.records

    def colliding(key: RecordKey, ids: pa.ChunkedArray, progress: Progress = silent) -> NDArray[np.uint64]:
        found = hashed(key, ids, progress)
        found[3] = found[1]
        return found

    monkeypatch.setattr(RecordKey, "records", colliding)
    with pytest.raises(PrivacyRefusal, match="two records have the same 128-bit hash"):
        small.make(tmp_path)
    assert not (tmp_path / "ledger.db").exists()
