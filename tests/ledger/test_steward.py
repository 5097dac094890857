"""What a steward does holds from the next local step on, is booked once, and never gives anything back."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Action, Ledger, StewardKey, StewardPublicKey
from rpdp.ledger.store.record_keys import HASH_BYTES
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads


@pytest.fixture
def table() -> BudgetTable:
    return small.budgets()


@pytest.fixture
def writer(tmp_path: Path, table: BudgetTable) -> Ledger:
    """A run that holds the ledger."""
    return small.admitted(tmp_path, table)


@pytest.fixture
def steward(tmp_path: Path, writer: Ledger) -> Ledger:
    """A reader beside it."""
    return Ledger.read(tmp_path / "ledger.db")


def kinds(ledger: Ledger) -> list[str]:
    return [event.kind for event in ledger.chain.events()]


def test_a_withdrawal_beside_a_run_holds_at_once_and_is_booked_with_the_next_round(
    writer: Ledger, steward: Ledger, table: BudgetTable
) -> None:
    writer.charge("run", 1, heads)
    assert writer.switched_off().tolist() == []
    steward.withdraw(["r5", "r2"], reason="letter of 3 May", actor="Ada")
    assert sorted(writer.switched_off().tolist()) == [2, 5]
    assert kinds(writer) == ["create", "admit", "charge"]
    writer.charge("run", 2, heads)
    assert kinds(writer) == ["create", "admit", "charge", "withdraw", "charge"]
    assert sorted(writer.switched_off().tolist()) == [2, 5]
    left = writer.left(table, LIFETIME_DELTA)
    assert left.epsilon[[2, 5]].tolist() == [0.0, 0.0]
    assert writer.explain("r5").spent_epsilon > 0.0
    assert "withdrawn by Ada (letter of 3 May)" in writer.explain("r5").text
    assert writer.verify().is_good


def test_a_withdrawal_between_left_and_reserve_neither_stops_admission_nor_is_it_lost(
    tmp_path: Path, table: BudgetTable
) -> None:
    with small.make(tmp_path, table) as ledger:
        made = small.plan(ledger, table)
        with Ledger.read(tmp_path / "ledger.db") as beside:
            beside.withdraw(["r1"])
        ledger.reserve("run", made, None)
        assert ledger.switched_off().tolist() == [1]
        ledger.charge("run", 1, heads)
        assert kinds(ledger) == ["create", "admit", "withdraw", "charge"]
        assert ledger.verify().is_good
        with pytest.raises(PrivacyRefusal, match="or have withdrawn"):
            ledger.reserve("again", made, None)


def test_a_budget_below_what_is_reserved_switches_the_record_off(
    writer: Ledger, steward: Ledger, table: BudgetTable
) -> None:
    spent = writer.explain("r0").spent_epsilon
    steward.lower_budgets(["r0", "r1"], np.array([spent * 0.99, 3.0]))
    assert writer.switched_off().tolist() == [0]
    assert writer.left(table, LIFETIME_DELTA).epsilon[0] == 0.0
    assert writer.left(table, LIFETIME_DELTA).epsilon[1] == pytest.approx(3.0 - writer.explain("r1").spent_epsilon)
    assert writer.switched_off().tolist() == [0]
    steward.lower_budgets(["r2"], delta=small.DELTA / 2)
    assert writer.switched_off().tolist() == [0, 2]
    steward.lower_budgets(["r3"], delta=small.DELTA)
    assert writer.switched_off().tolist() == [0, 2]
    assert "no longer drawn" in writer.explain("r0").text
    assert writer.verify().is_good


def test_lowering_to_exactly_what_is_spent_keeps_the_record_in(writer: Ledger, steward: Ledger) -> None:
    steward.lower_budgets(["r0"], writer.explain("r0").spent_epsilon)
    assert writer.switched_off().size == 0


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda ledger: ledger.lower_budgets(["r0"], 2.5), "record 'r0' has ε = 2; 2.5 would raise it"),
        (lambda ledger: ledger.lower_budgets(["r0"], delta=0.5), "record 'r0' has δ = 0.01; 0.5 would raise it"),
        (lambda ledger: ledger.lower_budgets(["r0"], -1.0), "epsilon=-1 must lie between 0 and 1000"),
        (lambda ledger: ledger.lower_budgets(["r0"]), "give a new epsilon"),
        (
            lambda ledger: ledger.lower_budgets(["r0"], np.ones(2)),
            "one budget for all 1 records or one for each, not 2",
        ),
        (
            lambda ledger: ledger.withdraw(["r0", "nobody"]),
            "1 of 2 records are not in the ledger .the first is 'nobody'",
        ),
        (lambda ledger: ledger.withdraw(["r0", "r0"]), "record 'r0' is named more than once"),
        (lambda ledger: ledger.withdraw(), "at least one record"),
        (lambda ledger: ledger.withdraw(subjects=["p"]), "no record of subject 'p'"),
    ],
)
def test_wrong_actions_change_nothing(steward: Ledger, what: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        what(steward)  # type: ignore[operator]
    assert steward.pending() == []


def test_only_the_signature_of_the_ledgers_steward_raises(tmp_path: Path, table: BudgetTable) -> None:
    key, stranger = StewardKey(), StewardKey()
    with small.make(tmp_path, table, steward=key.public) as ledger:
        with pytest.raises(PrivacyRefusal, match="not that of this ledger's steward"):
            ledger.raise_budgets(["r0"], 3.0, key=stranger)
        ledger.raise_budgets(["r0"], 3.0, key=key, reason="new consent", actor="Ada")
        assert ledger.left(BudgetTable(table.ids, table.epsilon * 9), LIFETIME_DELTA).epsilon[:2].tolist() == [3.0, 4.0]
        assert ledger.left(table, LIFETIME_DELTA).epsilon[0] == 2.0  # the table is a limit, too
        assert "raised, with the steward's signature, to ε = 3 by Ada (new consent)" in ledger.explain("r0").text
        assert ledger.verify().is_good
        with pytest.raises(InputError, match="1 would lower it"):
            ledger.raise_budgets(["r0"], 1.0, key=key)


def test_without_a_steward_key_nothing_is_ever_raised(writer: Ledger) -> None:
    with pytest.raises(PrivacyRefusal, match="can never be raised"):
        writer.raise_budgets(["r0"], 3.0, key=StewardKey())


def test_a_forged_raise_in_the_inbox_stops_the_run(tmp_path: Path, table: BudgetTable) -> None:
    with small.make(tmp_path, table, steward=StewardKey().public) as ledger:
        made = small.plan(ledger, table)
        forged = Action(
            "raise", ledger.id, ledger.key.record("r0").reshape(1, 2), np.array([900.0]), np.array([np.nan])
        )
        ledger.inbox.submit(forged.signed(StewardKey()))
        ledger.reserve("run", made, None)
        for ask in (ledger.switched_off, lambda: ledger.charge("run", 1, heads)):
            with pytest.raises(PrivacyRefusal, match="signature is not that of this ledger's steward"):
                ask()
        assert ledger.status().runs[0].announced == 0
        next((tmp_path / "ledger.db.inbox").glob(f"*-{forged.name}.action")).unlink()
        assert ledger.charge("run", 1, heads).is_new


def test_a_signed_raise_counts_once(tmp_path: Path, table: BudgetTable) -> None:
    """The same file put back later, after the budget was lowered again, is not heard."""
    key = StewardKey()
    with small.make(tmp_path, table, steward=key.public) as ledger:
        action = ledger.raise_budgets(["r0"], 3.0, key=key)
        ledger.left(table, LIFETIME_DELTA)
        ledger.lower_budgets(["r0"], 1.0)
        ledger.left(table, LIFETIME_DELTA)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.left(table, LIFETIME_DELTA).epsilon[0] == 1.0
        ledger.inbox.submit(action)
        assert ledger.pending() == []
        assert ledger.left(table, LIFETIME_DELTA).epsilon[0] == 1.0
        assert kinds(ledger) == ["create", "raise", "lower"]


@pytest.mark.parametrize("step", [-3600.0, 0.0, 3600.0], ids=["back", "stands still", "forward"])
def test_the_last_action_is_in_force_whatever_the_clock_does(
    tmp_path: Path, table: BudgetTable, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """Raise to 5, the clock steps back an hour, lower to 0.1: 0.1 is in force, pending and booked."""
    key, clock = StewardKey(), [1.8e9]
    monkeypatch.setattr("time.time_ns", lambda: int(clock[0] * 1e9))
    wide = BudgetTable(table.ids, table.epsilon * 9)
    with small.make(tmp_path, table, steward=key.public) as ledger, Ledger.read(tmp_path / "ledger.db") as steward:
        for number in range(12):  # more than nine: numbers, not texts, are in order
            steward.raise_budgets(["r0"], 5.0 + number, key=key)
            clock[0] += step
            steward.lower_budgets(["r0"], 0.1)
            clock[0] += step
            assert steward.left(wide, LIFETIME_DELTA).epsilon[0] == 0.1
        names = [action.name for action in ledger.pending()]
        assert ledger.left(wide, LIFETIME_DELTA).epsilon[0] == 0.1
        assert [event.kind for event in ledger.chain.events()] == ["create", *(["raise", "lower"] * 12)]
        assert [event.facts["action"] for event in ledger.chain.events("raise", "lower")] == names
        steward.raise_budgets(["r0"], 6.0, key=key)
        assert ledger.left(wide, LIFETIME_DELTA).epsilon[0] == 6.0


def test_actions_of_release_0_1_come_before_later_ones(tmp_path: Path, table: BudgetTable) -> None:
    """Its files are named after the time, and so are its actions; a clock that was ahead changes nothing."""
    key = StewardKey()
    with small.make(tmp_path, table, steward=key.public) as ledger:
        record = ledger.key.record("r0").reshape(1, 2)
        inbox = tmp_path / "ledger.db.inbox"
        for kind, epsilon, time in (("lower", 0.5, 10**18), ("raise", 5.0, 9 * 10**18), ("lower", 4.0, 8 * 10**18)):
            name = f"{time:020d}-{'ab' * 8}"
            made = Action(kind, ledger.id, record, np.array([epsilon]), np.array([np.nan]), name=name)  # type: ignore[arg-type]
            (inbox / f"{name}.action").write_bytes(made.signed(key).to_bytes())
        assert [action.epsilon[0] for action in ledger.pending()] == [0.5, 4.0, 5.0]
        ledger.lower_budgets(["r0"], 3.0)
        assert [action.epsilon[0] for action in ledger.pending()] == [0.5, 4.0, 5.0, 3.0]
    with Ledger.open(tmp_path / "ledger.db") as again:
        assert again.left(table, LIFETIME_DELTA).epsilon[0] == 2.0
        assert again.pending() == []
        assert [event.kind for event in again.chain.events()] == ["create", "lower", "lower", "raise", "lower"]


def test_a_booked_action_under_another_number_is_not_heard_again(tmp_path: Path, table: BudgetTable) -> None:
    key = StewardKey()
    with small.make(tmp_path, table, steward=key.public) as ledger:
        action = ledger.raise_budgets(["r0"], 3.0, key=key)
        ledger.left(table, LIFETIME_DELTA)
        inbox = tmp_path / "ledger.db.inbox"
        for name in (action.name, f"{7:020d}-{action.name}", f"99-{action.name}"):
            (inbox / f"{name}.action").write_bytes(action.to_bytes())
        assert ledger.pending() == []
        (inbox / "8-another.action").write_bytes(action.to_bytes())
        with pytest.raises(PrivacyRefusal, match="has another name"):
            ledger.pending()


@pytest.mark.parametrize("content", [b"", b"rpdp-action/1\n-\n{}\n", b"anything"])
def test_an_action_that_cannot_be_read_stops_the_run(writer: Ledger, tmp_path: Path, content: bytes) -> None:
    """It may be a withdrawal."""
    (tmp_path / "ledger.db.inbox" / "1.action").write_bytes(content)
    with pytest.raises(PrivacyRefusal, match="may be a withdrawal"):
        writer.switched_off()
    with pytest.raises(PrivacyRefusal, match="may be a withdrawal"):
        writer.charge("run", 1, heads)
    assert writer.status().runs[0].announced == 0


def test_a_missing_inbox_stops_the_run(writer: Ledger, tmp_path: Path) -> None:
    (tmp_path / "ledger.db.inbox").rmdir()
    with pytest.raises(PrivacyRefusal, match="a withdrawal could not take effect"):
        writer.switched_off()


def test_actions_given_while_nobody_writes_are_booked_at_the_next_opening(tmp_path: Path, table: BudgetTable) -> None:
    small.admitted(tmp_path, table).close()
    with Ledger.read(tmp_path / "ledger.db") as reader:
        reader.withdraw(["r4"])
        assert reader.left(table, LIFETIME_DELTA).epsilon[4] == 0.0
        assert reader.overview().pending_actions == 1
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert kinds(ledger) == ["create", "admit", "withdraw"]
        assert os.listdir(tmp_path / "ledger.db.inbox") == []  # noqa: PTH208
        ledger.left(table, LIFETIME_DELTA)
        assert ledger.switched_off().tolist() == [4]


def test_a_worker_forked_before_hears_of_every_withdrawal(writer: Ledger, steward: Ledger) -> None:
    """Workers have their own memory: what the parent books meanwhile must not be hidden from them."""
    ask, answer = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            os.read(ask[0], 1)
            os.write(answer[1], bytes(writer.switched_off().tolist()))
        finally:
            os._exit(0)
    steward.withdraw(["r6"])
    writer.charge("run", 1, heads)
    os.write(ask[1], b"?")
    told = os.read(answer[0], 8)
    os.waitpid(child, 0)
    assert list(told) == [6]


def test_many_records_at_once(tmp_path: Path) -> None:
    table = small.budgets(300)
    with small.admitted(tmp_path, table) as ledger:
        names = [f"r{number}" for number in range(0, 300, 2)]
        ledger.lower_budgets(names, np.full(150, 1e-3))
        assert ledger.switched_off().tolist() == list(range(0, 300, 2))
        ledger.withdraw(names[:100])
        assert ledger.switched_off().tolist() == list(range(0, 300, 2))
        ledger.charge("run", 1, heads)
        assert ledger.verify().is_good
        assert ledger.overview().switched_off == 150
        assert ledger.overview().withdrawn == 100


def test_a_stewards_key_is_kept_from_others(tmp_path: Path) -> None:
    key = StewardKey()
    key.write(tmp_path / "a.key", "open sesame")
    assert StewardKey.read(tmp_path / "a.key", "open sesame").public.raw == key.public.raw
    with pytest.raises(InputError, match="passphrase"):
        StewardKey.read(tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o640)
    with pytest.raises(PrivacyRefusal, match="read by others"):
        StewardKey.read(tmp_path / "a.key", "open sesame")


def test_the_files_of_a_stewards_keys(tmp_path: Path) -> None:
    key = StewardKey()
    key.write(tmp_path / "a.key")
    key.public.write(tmp_path / "a.pub")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.key", "a.pub")]
    assert modes == [0o600, 0o644]
    assert StewardPublicKey.read(tmp_path / "a.pub").raw == key.public.raw
    (tmp_path / "raw.pub").write_text(key.public.raw.hex())
    with pytest.raises(InputError, match="does not start with 'rpdp-steward-ed25519'"):
        StewardPublicKey.read(tmp_path / "raw.pub")


def forged_raise(ledger: Ledger) -> Action:
    """A raise that somebody else has signed."""
    record = ledger.key.record("r0").reshape(1, 2)
    return Action("raise", ledger.id, record, np.array([900.0]), np.array([np.nan])).signed(StewardKey())


def test_a_forged_raise_is_neither_submitted_nor_booked(tmp_path: Path, table: BudgetTable) -> None:
    """Whichever way it comes: each of them checks the signature itself."""
    with small.make(tmp_path, table, steward=StewardKey().public) as ledger:
        forged = forged_raise(ledger)
        with pytest.raises(PrivacyRefusal, match="signature is not that of this ledger's steward"):
            ledger.submit(forged)
        assert ledger.pending() == []
        with (
            ledger.database.transaction(),
            pytest.raises(PrivacyRefusal, match="signature is not that of this ledger's steward"),
        ):
            ledger._action_book.book([forged])
        assert kinds(ledger) == ["create"]
        ledger.inbox.submit(forged)
        with pytest.raises(PrivacyRefusal, match="signature is not that of this ledger's steward"):
            ledger.pending()


def test_of_a_raise_that_is_refused_nothing_is_submitted(tmp_path: Path) -> None:
    """A person's larger ε lowers the parts of δ first: not if the raise itself is not signed by the steward."""
    people = BudgetTable(["a1", "a2"], [2.0, 2.0], subjects=["a", "a"])
    with small.make(tmp_path, people, steward=StewardKey().public) as ledger:
        with pytest.raises(PrivacyRefusal, match="signature is not that of this ledger's steward"):
            ledger.raise_budgets(["a1"], 4.0, key=StewardKey())
        assert ledger.inbox.files() == ()


def test_a_raise_of_a_person_is_answered_with_the_raise(tmp_path: Path) -> None:
    key, people = StewardKey(), BudgetTable(["a1", "a2"], [2.0, 2.0], subjects=["a", "a"])
    with small.make(tmp_path, people, steward=key.public) as ledger:
        raised = ledger.raise_budgets(["a1"], 4.0, key=key)
        assert [action.kind for action in ledger.pending()] == ["lower", "raise"]
        assert (raised.kind, raised.epsilon.tolist()) == ("raise", [2.0, 2.0])


@pytest.mark.parametrize("value", [-1.0, 1001.0, float("inf")])
def test_an_action_with_an_impossible_budget_is_not_read(value: float) -> None:
    """Whoever wrote it into the inbox: a negative budget must not reach a plan."""
    header = b'{"at":"","kind":"lower","ledger":"","name":"a","reason":"","records":1}\n'
    body = header + bytes(HASH_BYTES) + np.array([value, np.nan]).tobytes()
    with pytest.raises(ValueError, match="a budget outside 0 … 1000"):
        Action.from_body(body, b"")
    fine = header + bytes(HASH_BYTES) + np.array([0.5, np.nan]).tobytes()
    assert Action.from_body(fine, b"").epsilon.tolist() == [0.5]


def test_an_action_on_a_record_of_another_table_names_no_position(tmp_path: Path) -> None:
    everybody = small.budgets()
    some = BudgetTable(everybody.ids.to_pylist()[:-1], everybody.epsilon[:-1])
    with small.make(tmp_path, everybody) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), some.ids, 0.1), None)
        ledger.withdraw(["r6"])
        ledger.left(some, LIFETIME_DELTA)
        ledger.withdraw(["r7"])
        assert ledger.switched_off().tolist() == [6]


@pytest.mark.parametrize(("kind", "count"), [("grant", 1), ("", 1), ("lower", 2), ("lower", 0)])
def test_an_action_of_no_kind_or_another_size_is_not_read(kind: str, count: int) -> None:
    """What is neither a withdrawal nor a lowering raises: it must not go without a signature by another name."""
    header = f'{{"at":"","kind":"{kind}","ledger":"","name":"a","reason":"","records":{count}}}\n'
    with pytest.raises(ValueError, match=f"'{kind}' of {count} records in 32 bytes"):
        Action.from_body(header.encode() + bytes(HASH_BYTES) + np.array([900.0, 0.5]).tobytes(), b"")


def test_looking_at_another_table_does_not_move_positions(writer: Ledger, steward: Ledger, table: BudgetTable) -> None:
    """Positions are those of the run, whatever else somebody looks at in the same process."""
    steward.withdraw(["r0"])
    assert writer.switched_off().tolist() == [0]
    turned = table.arranged(table.ids.to_pylist()[::-1])
    assert writer.left(turned, LIFETIME_DELTA).epsilon[-1] == 0.0
    assert writer.switched_off().tolist() == [0]


def test_an_action_of_another_version_stops_the_run(writer: Ledger, steward: Ledger, tmp_path: Path) -> None:
    """It may say something else with the same words."""
    steward.withdraw(["r0"])
    (file,) = (tmp_path / "ledger.db.inbox").iterdir()
    file.write_bytes(file.read_bytes().replace(b"rpdp-action/1", b"rpdp-action/2", 1))
    with pytest.raises(PrivacyRefusal, match=r"not a steward action of this version: .* It may be a withdrawal"):
        writer.switched_off()


def test_an_action_for_another_ledger_is_not_submitted(tmp_path: Path, table: BudgetTable) -> None:
    """Its records have other hashes there, and the run would stop."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with small.make(tmp_path / "one", table) as one, small.make(tmp_path / "two", table) as two:
        action = one.withdraw(["r0"])
        with pytest.raises(InputError, match="the action is for ledger"):
            two.submit(action)
        assert two.inbox.files() == ()
        assert two.switched_off().size == 0
