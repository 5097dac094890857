"""Holds in a ledger on disk: one transaction each, found by every inspection, and the same after a restart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.cli.run import run as cli
from rpdp.errors import InputError, PrivacyRefusal, Reason
from rpdp.ledger import Ledger, MemoryAccount
from rpdp.ledger.format_upgrade import upgrade
from rpdp.ledger.inspection import verification
from rpdp.ledger.store.chain import Event, head_after, public_head_after
from tests.federation.world import make_ids
from tests.ledger import small
from tests.ledger.account_suite import RECORDS, never
from tests.ledger.hold_suite import NOON, Clock, HoldSuite, reason, state
from tests.ledger.small import LIFETIME_DELTA, heads, tails

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.ledger import Account

HOUR = 3600.0


class TestMemoryHolds(HoldSuite):
    def make(self) -> Account:
        return MemoryAccount(RECORDS)


class TestLedgerHolds(HoldSuite):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def make(self) -> Account:
        budgets = BudgetTable(make_ids(RECORDS), [900.0] * RECORDS)
        return Ledger.create(self.directory / "ledger.db", budgets, kind="simulation", lifetime_delta=0.9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(Ledger, "clock", lambda _: made())
    return made


def left(ledger: Ledger, table: BudgetTable) -> list[float]:
    return [float(value) for value in ledger.left(table, LIFETIME_DELTA).epsilon]


def kinds(ledger: Ledger) -> list[str]:
    return [event.kind for event in ledger.chain.events()]


def again(directory: Path) -> Ledger:
    return Ledger.open(directory / "ledger.db")


def held(directory: Path, table: BudgetTable, expires: float | None = NOON + HOUR, **changes: Any) -> Ledger:
    """A ledger with one run that has begun, and one that is held."""
    ledger = small.make(directory, table)
    ledger.reserve("begun", small.plan(ledger, table), None)
    ledger.charge("begun", 1, heads)
    ledger.reserve("run", small.plan(ledger, table, **changes), expires)
    return ledger


# After a restart


@pytest.mark.usefixtures("clock")
def test_a_hold_is_there_when_it_is_opened_again_and_can_be_committed_or_cancelled(tmp_path: Path) -> None:
    table = small.budgets()
    with held(tmp_path, table, participations=2) as ledger:
        taken = left(ledger, table)
    with again(tmp_path) as ledger:
        assert (state(ledger), left(ledger, table)) == ("held", taken)
        assert ledger.charge("run", 1, never, lambda: (1, 4)).joined
    with again(tmp_path) as ledger:  # the drawn rounds are kept with the charge
        assert [ledger.charge("run", number, never).joined for number in (2, 3, 4)] == [False, False, True]
        assert ledger.verify().findings == ()


@pytest.mark.usefixtures("clock")
def test_a_cancellation_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    table = small.budgets()
    with held(tmp_path, table) as ledger:
        ledger.cancel("run")
        free = left(ledger, table)
    with again(tmp_path) as ledger:
        assert (state(ledger), left(ledger, table)) == ("cancelled", free)
        assert reason(lambda: ledger.reserve("run", small.plan(ledger, table), None)) == Reason.CANCELLED
        ledger.reserve("next", small.plan(ledger, table, share=1.0), None)
        assert ledger.verify().findings == ()


def test_an_expiry_is_booked_when_the_ledger_is_opened(tmp_path: Path, clock: Clock) -> None:
    """Also by a steward's command, while no agent runs; and a reader says so before."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        free = left(ledger, table)
        ledger.reserve("run", small.plan(ledger, table), NOON + HOUR)
    clock.time = NOON + HOUR
    with Ledger.read(tmp_path / "ledger.db") as reader:
        assert state(reader) == "held"  # free only once it is booked
        with pytest.raises(InputError, match="open for reading only"):
            reader.expire()
    with again(tmp_path) as ledger:
        assert kinds(ledger) == ["create", "admit", "cancel"]
        assert (state(ledger), left(ledger, table)) == ("expired", free)
        assert ledger.verify().findings == ()


def test_the_plan_of_a_run_is_remembered_with_what_was_left_then(tmp_path: Path, clock: Clock) -> None:
    """Another hold counted when the run was planned, and was cancelled later; a third came and went meanwhile."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("first", small.by_hand(small.public(), table.ids, 0.5), NOON + HOUR)
        then = ledger.left(table, LIFETIME_DELTA)
        ledger.reserve("run", small.by_hand(small.public(), table.ids, 0.25), None)
        ledger.cancel("first")
        ledger.reserve("third", small.by_hand(small.public(), table.ids, 0.125), NOON + HOUR)
        clock.time = NOON + HOUR
        ledger.charge("run", 1, heads)
        assert [one.state for one in ledger.status().runs] == ["cancelled", "committed", "expired"]
        plan = ledger.resume("run", table.ids, table.per_record(LIFETIME_DELTA))
    np.testing.assert_array_equal(plan.budget, then.epsilon)


def test_withdrawals_go_on_to_count_after_a_cancellation(tmp_path: Path, clock: Clock) -> None:
    table = small.budgets()
    with held(tmp_path, table) as ledger:
        ledger.withdraw(["r3"])
        clock.time = NOON + HOUR
        ledger.charge("begun", 2, tails)
        assert state(ledger) == "expired"
        assert ledger.switched_off().tolist() == [3]


# Failing transactions


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("failing", ["cancel: begun", "cancel: booked"])
def test_a_cancellation_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    table = small.budgets()
    with held(tmp_path, table) as ledger:
        before = (left(ledger, table), ledger.status(), ledger.chain.head, ledger.public_head())

        def fail(label: str) -> None:
            if label == failing:
                raise PrivacyRefusal("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr("rpdp.ledger.store.crash_points.reached", fail)
            with pytest.raises(PrivacyRefusal, match="disk is full"):
                ledger.cancel("run")
        assert (left(ledger, table), ledger.status(), ledger.chain.head, ledger.public_head()) == before
        ledger.cancel("run")
        assert ledger.verify().findings == ()


def test_a_clock_that_steps_back_while_an_expiry_is_booked_makes_no_false_event(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the end would be dated before the expiry, and `verify` would accuse an honest ledger."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.plan(ledger, table), NOON + HOUR)
        clock.time = NOON + HOUR

        def back(label: str) -> None:
            if label == "cancel: begun":
                clock.time = NOON

        monkeypatch.setattr("rpdp.ledger.store.crash_points.reached", back)
        ledger.expire()
        assert state(ledger) == "expired"
        assert ledger.verify().findings == ()


def test_the_expiry_is_checked_again_inside_the_transaction(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes between the first look at the clock and the charge."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.plan(ledger, table), NOON + HOUR)

        def late(label: str) -> None:
            if label == "charge: begun":
                clock.time = NOON + HOUR

        monkeypatch.setattr("rpdp.ledger.store.crash_points.reached", late)
        assert reason(lambda: ledger.charge("run", 1, never)) == Reason.CANCELLED
        assert kinds(ledger) == ["create", "admit"]
        ledger.expire()
        assert kinds(ledger) == ["create", "admit", "cancel"]


@pytest.mark.usefixtures("clock")
def test_a_charge_by_another_process_is_seen_before_a_run_is_cancelled(tmp_path: Path) -> None:
    """Whether nothing was charged is read in the transaction that cancels, not remembered."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.plan(ledger, table), None)
        assert ledger.runs.answered("run", 1) is None  # remembered: no round yet
        ledger.database.rows(
            "INSERT INTO event(seq, kind, run, round, joined, payload, head) VALUES(3, 'charge', 'run', 1, 0, ?, ?)",
            (json.dumps({"at": "", "missed": 0}), b""),
        )
        assert reason(lambda: ledger.cancel("run")) == Reason.CHARGED


# What the public head says


def test_the_public_head_tells_who_cancelled_and_nothing_of_records() -> None:
    def heads_of(**changes: Any) -> tuple[bytes, bytes]:
        facts = {"at": "2030", "by": "steward", "reason": "a letter", "totals": "0" * 64, **changes}
        event = Event(3, "cancel", "run", 0, 0, json.dumps(facts), b"", None, None)
        return head_after(bytes(32), event), public_head_after(bytes(32), event)

    whole, public = heads_of()
    for private in ({"totals": "1" * 64}, {"at": "2031"}):
        assert heads_of(**private)[0] != whole
        assert heads_of(**private)[1] == public
    for said in ({"by": "server"}, {"reason": ""}):
        assert heads_of(**said)[1] != public


def test_the_rounds_drawn_with_the_first_charge_are_not_in_the_public_head() -> None:
    def event(*drawn: int) -> Event:
        return Event(3, "charge", "run", 1, 0, json.dumps({"at": "", "missed": 0, "join": drawn}), b"", None, None)

    assert head_after(bytes(32), event(1, 2)) != head_after(bytes(32), event(2, 3))
    assert public_head_after(bytes(32), event(1, 2)) == public_head_after(bytes(32), event(2, 3))


# Inspections


@pytest.fixture
def all_states(tmp_path: Path, clock: Clock) -> Ledger:
    """A run in every state, over the same records."""
    table = small.budgets()
    ledger = small.make(tmp_path, table)
    for name, expires in (("committed", None), ("expired", NOON + HOUR), ("cancelled", None), ("by hand", None)):
        ledger.reserve(name, small.plan(ledger, table, share=0.1), expires)
    ledger.charge("committed", 1, heads)
    clock.time = NOON + HOUR
    ledger.expire()
    ledger.cancel("cancelled")
    ledger.cancel("by hand", by="steward")
    ledger.reserve("held", small.plan(ledger, table, share=0.1), NOON + 2 * HOUR)
    return ledger


def test_every_inspection_knows_every_state(all_states: Ledger, tmp_path: Path) -> None:
    names = {"committed": "committed", "expired": "expired", "cancelled": "cancelled", "by hand": "cancelled"}
    names["held"] = "held"
    with all_states as ledger:
        assert ledger.verify().findings == ()
        overview = ledger.overview()
        assert {run.status.run: run.status.state for run in overview.runs} == names
        assert [run.cancelled_by for run in overview.runs] == [None, "expiry", "server", "steward", None]
        assert [run.is_covered for run in overview.runs] == [True, True, True, False, True]
        assert ledger.uncovered_cancellations() == ("by hand",)
        story = ledger.explain("r0")
        assert {run.run: run.state for run in story.runs} == names
        taken = {run.run: run.epsilon for run in story.runs if run.epsilon}
        assert set(taken) == {"committed", "held"}
        assert story.spent_epsilon == pytest.approx(sum(taken.values()))
        for part in (
            "expired before its first round",
            "was cancelled by the server before its first round",
            "Held, and therefore",
        ):
            assert part in story.text
        assert cli(["ledger", "export", str(tmp_path / "ledger.db"), str(tmp_path / "out.json")]) == 0
    exported = json.loads((tmp_path / "out.json").read_text())
    assert [event["kind"] for event in exported["events"]].count("cancel") == 3
    row = dict(zip(exported["columns"], exported["records"][0], strict=True))
    assert row["spent_epsilon"] + row["left_epsilon"] == pytest.approx(row["epsilon"])


def test_repricing_leaves_out_what_was_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that states too low a cost is found, and costs nobody anything once it is cancelled."""
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("cheap", small.by_hand(small.public(), table.ids, 1e-3), None)
        assert {found.check for found in ledger.verify().findings} == {"prices"}
        ledger.cancel("cheap")
        assert ledger.verify().findings == ()


CHANGES = {
    "a charge after a cancellation": (
        "UPDATE event SET run = 'cancelled' WHERE kind = 'charge'",
        {"chain", "rounds"},
    ),
    "a cancellation of a run that has begun": (
        "UPDATE event SET run = 'committed' WHERE seq = (SELECT max(seq) FROM event WHERE kind = 'cancel')",
        {"chain", "rounds", "accounts"},
    ),
    "an expiry before its time": (
        "UPDATE event SET payload = replace(payload, '2030-05-03T13', '2030-05-03T11') WHERE kind = 'cancel'",
        {"chain", "rounds"},
    ),
    "a forgotten cancellation": (
        "DELETE FROM event WHERE seq = (SELECT min(seq) FROM event WHERE kind = 'cancel')",
        {"chain", "accounts"},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_verify_finds_a_changed_hold(
    all_states: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    all_states.close()
    monkeypatch.setattr(verification, "reprice", lambda ledger, progress: iter(()))
    statement, expected = CHANGES[name]
    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    connection.execute(statement).fetchall()
    connection.close()
    with Ledger.read(tmp_path / "ledger.db") as ledger:
        assert {found.check for found in ledger.verify().findings} >= expected


# The command line


def typed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    capsys.readouterr()
    code = cli([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, " ".join((out + err).split())


def test_holds_and_cancel_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, table = tmp_path / "ledger.db", small.budgets()
    with small.make(tmp_path, table) as ledger:
        free = left(ledger, table)
        for name in ("spring", "autumn"):
            ledger.reserve(name, small.plan(ledger, table, share=0.1), None)
        ledger.reserve("begun", small.plan(ledger, table, share=0.1), None)
        ledger.charge("begun", 1, heads)
        assert typed(capsys, "ledger", "cancel", path, "spring")[0] == 3  # while an agent has it
    code, said = typed(capsys, "ledger", "holds", path)
    assert code == 0
    assert "spring" in said
    assert "begun" not in said.replace("not begun", "")
    code, said = typed(capsys, "ledger", "cancel", path, "begun")
    assert (code, "cannot be cancelled" in said) == (3, True)
    assert typed(capsys, "ledger", "cancel", path, "summer")[0] == 3
    code, said = typed(capsys, "ledger", "cancel", path, "spring", "--reason", "the study was withdrawn")
    assert (code, "not covered" in said) == (0, False)
    code, said = typed(capsys, "ledger", "cancel", path, "autumn")
    assert (code, "not covered by the promise" in said) == (0, True)
    code, said = typed(capsys, "ledger", "holds", path)
    assert (code, "no run holds budgets" in said) == (0, True)
    code, said = typed(capsys, "ledger", "show", path)
    assert "spring was cancelled by the steward before its first round: the study was withdrawn" in said
    assert "no public reason was given, so this is not covered by the promise" in said
    with again(tmp_path) as ledger:
        assert left(ledger, table)[1] < free[1]  # the run that has begun stays booked
        assert ledger.verify().findings == ()


# Ledgers of release 0.1


@pytest.mark.parametrize("join", [None, [2, 3]])
def test_an_admission_of_release_0_1_is_a_hold_that_does_not_expire(
    tmp_path: Path, clock: Clock, join: list[int] | None
) -> None:
    table = small.budgets()
    small.as_release_0_1(tmp_path, table, join)
    clock.time = NOON + 1000 * 86_400
    upgrade(tmp_path / "ledger.db")
    with again(tmp_path) as ledger:
        assert state(ledger) == "held"
        drawn = [ledger.charge("run", number, heads, lambda: (1, 4)).joined for number in (1, 2, 3, 4)]
        assert drawn == ([True] * 4 if join is None else [False, True, True, False])  # what was drawn then counts
        assert ledger.verify().findings == ()
    with again(tmp_path) as ledger:
        assert state(ledger) == "committed"
        assert reason(lambda: ledger.cancel("run")) == Reason.CHARGED


def test_a_failed_run_of_release_0_1_gives_its_budgets_back(tmp_path: Path) -> None:
    """One hospital refused, the run never began, and the others' budgets were booked: now it can be cancelled."""
    table = small.budgets()
    small.as_release_0_1(tmp_path, table, [1, 2])
    upgrade(tmp_path / "ledger.db")
    with again(tmp_path) as ledger:
        ledger.cancel("run", by="steward", reason="it never began")
        assert left(ledger, table) == table.epsilon.tolist()
        assert ledger.verify().findings == ()
