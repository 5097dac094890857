"""What a steward does holds from the next local step on, is booked once, and never gives anything back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Action, Ledger, StewardKey
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
    steward.withdraw(["r5", "r2"], reason="letter of 3 May")
    assert sorted(writer.switched_off().tolist()) == [2, 5]
    assert kinds(writer) == ["create", "admit", "charge"]
    writer.charge("run", 2, heads)
    assert kinds(writer) == ["create", "admit", "charge", "withdraw", "charge"]
    assert sorted(writer.switched_off().tolist()) == [2, 5]
    left = writer.left(table, LIFETIME_DELTA)
    assert left.epsilon[[2, 5]].tolist() == [0.0, 0.0]
    assert writer.explain("r5").spent_epsilon > 0.0
    assert "withdrawn (letter of 3 May)" in writer.explain("r5").text
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
        (lambda ledger: ledger.lower_budgets(["r0"], -1.0), "epsilon must lie between 0 and 1000"),
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
        ledger.raise_budgets(["r0"], 3.0, key=key, reason="new consent")
        assert ledger.left(BudgetTable(table.ids, table.epsilon * 9), LIFETIME_DELTA).epsilon[:2].tolist() == [3.0, 4.0]
        assert ledger.left(table, LIFETIME_DELTA).epsilon[0] == 2.0  # the table is a limit, too
        assert "raised, with the steward's signature, to ε = 3 (new consent)" in ledger.explain("r0").text
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
        (tmp_path / "ledger.db.inbox" / f"{forged.name}.action").unlink()
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
        ledger.inbox.submit(action)
        assert ledger.left(table, LIFETIME_DELTA).epsilon[0] == 1.0
        assert kinds(ledger) == ["create", "raise", "lower"]


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


@pytest.mark.parametrize("value", [-1.0, 1001.0, float("inf")])
def test_an_action_with_an_impossible_budget_is_not_read(value: float) -> None:
    """Whoever wrote it into the inbox: a negative budget must not reach a plan."""
    header = b'{"at":"","kind":"lower","ledger":"","name":"a","reason":"","records":1}\n'
    body = header + bytes(HASH_BYTES) + np.array([value, np.nan]).tobytes()
    with pytest.raises(ValueError, match="a budget outside 0 … 1000"):
        Action.from_body(body, b"")
    fine = header + bytes(HASH_BYTES) + np.array([0.5, np.nan]).tobytes()
    assert Action.from_body(fine, b"").epsilon.tolist() == [0.5]


def test_looking_at_another_table_does_not_move_positions(writer: Ledger, steward: Ledger, table: BudgetTable) -> None:
    """Positions are those of the run, whatever else somebody looks at in the same process."""
    steward.withdraw(["r0"])
    assert writer.switched_off().tolist() == [0]
    turned = table.arranged(table.ids.to_pylist()[::-1])
    assert writer.left(turned, LIFETIME_DELTA).epsilon[-1] == 0.0
    assert writer.switched_off().tolist() == [0]
