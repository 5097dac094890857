"""Every steward action says who acted and why; consent that was taken back can be given again, from the next run on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.cli.run import run
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Action, Ledger, StewardKey
from rpdp.ledger.inspection.export import export
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.stewardship.actors import acting_user
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads

if TYPE_CHECKING:
    from rpdp.planning import SiloPlan


@pytest.fixture
def key() -> StewardKey:
    return StewardKey()


@pytest.fixture
def table() -> BudgetTable:
    return small.budgets()


@pytest.fixture
def ledger(tmp_path: Path, table: BudgetTable, key: StewardKey) -> Ledger:
    return small.make(tmp_path, table, steward=key.public)


def plan(ledger: Ledger, table: BudgetTable) -> SiloPlan:
    return small.plan(ledger, table)


# Who, and why


def test_every_action_names_actor_and_reason(ledger: Ledger, table: BudgetTable, key: StewardKey) -> None:
    who: dict[str, Any] = {"actor": "Dr. Ada", "reason": "a letter"}
    ledger.withdraw(["r0"], **who)
    ledger.reconsent(["r0"], key=key, **who)
    ledger.lower_budgets(["r1"], 1.0, **who)
    ledger.raise_budgets(["r1"], 2.0, key=key, **who)
    ledger.left(table, LIFETIME_DELTA)
    ledger.add(BudgetTable(["new"], [1.0]), **who)
    ledger.reserve("run", plan(ledger, table), None)
    ledger.cancel("run", by="steward", **who)
    events = [event for event in ledger.chain.events() if event.kind not in ("create", "admit")]
    assert [event.kind for event in events] == ["withdraw", "reconsent", "lower", "raise", "add", "cancel"]
    assert [(event.facts["actor"], event.facts["reason"]) for event in events] == [("Dr. Ada", "a letter")] * 6
    assert "withdrawn by Dr. Ada (a letter)" in ledger.explain("r0").text
    assert "lowered to ε = 1 by Dr. Ada (a letter)" in ledger.explain("r1").text
    assert "added on" in ledger.explain("new").text
    assert "by Dr. Ada (a letter)" in ledger.explain("new").text
    said = ledger.explain("r1").text
    assert "Run run (training, " in said
    assert "was cancelled by the steward Dr. Ada before its first round" in said
    assert ledger.verify().is_good


def test_the_user_of_this_process_acts_unless_another_is_named(ledger: Ledger) -> None:
    assert ledger.withdraw(["r0"]).actor == acting_user() != ""
    assert next(iter(ledger.pending())).actor == acting_user()


def test_the_servers_cancellation_has_no_actor(ledger: Ledger, table: BudgetTable) -> None:
    ledger.reserve("run", plan(ledger, table), None)
    ledger.cancel("run", by="server")
    assert "actor" not in next(ledger.chain.events("cancel")).facts
    assert "cancelled by the server" in ledger.explain("r0").text


def test_the_actor_of_a_cancellation_is_not_public(tmp_path: Path, table: BudgetTable) -> None:
    """The public head of two ledgers that differ in the actor alone would be the same; that of the reason is not."""
    heads_of = []
    for number, (actor, reason) in enumerate((("Ada", "why"), ("Bob", "why"), ("Ada", "because"))):
        (tmp_path / str(number)).mkdir()
        with small.make(tmp_path / str(number), table) as ledger:
            ledger.reserve("run", small.plan(ledger, table), None)
            ledger.cancel("run", by="steward", reason=reason, actor=actor)
            heads_of.append(ledger.public_head().head)
    assert heads_of[0] == heads_of[1] != heads_of[2]


@pytest.mark.parametrize("actor", ["", "   ", "two\nlines", "x" * 501])
def test_an_actor_is_one_line(ledger: Ledger, actor: str) -> None:
    with pytest.raises(InputError, match="must be one line"):
        ledger.withdraw(["r0"], actor=actor)
    assert ledger.pending() == []


def test_what_allows_more_needs_a_reason_in_production(tmp_path: Path, table: BudgetTable, key: StewardKey) -> None:
    settings: dict[str, Any] = {"kind": "production", "lifetime_delta": LIFETIME_DELTA, "steward": key.public}
    with Ledger.create(tmp_path / "real.db", table, **settings) as ledger:
        ledger.withdraw(["r0"])  # nothing stands in the way of a withdrawal
        ledger.lower_budgets(["r1"], 1.0)
        with pytest.raises(InputError, match="to raise in a production ledger needs a reason"):
            ledger.raise_budgets(["r1"], 3.0, key=key)
        with pytest.raises(InputError, match="to reconsent in a production ledger needs a reason"):
            ledger.reconsent(["r0"], key=key, reason="  ")
        assert [action.kind for action in ledger.pending()] == ["withdraw", "lower"]


def test_an_action_without_an_actor_keeps_its_bytes_and_its_signature(ledger: Ledger, key: StewardKey) -> None:
    """As release 0.1 wrote it: nothing of the header is new."""
    hashed = ledger.key.record("r0").reshape(1, 2)
    old = Action("raise", ledger.id, hashed, np.array([9.0]), np.array([np.nan]), reason="then").signed(key)
    assert b"actor" not in old.to_bytes()
    assert Action.from_bytes(old.to_bytes()).to_bytes() == old.to_bytes()
    ledger.inbox.submit(old)
    ledger.left(small.budgets(), LIFETIME_DELTA)
    assert "actor" not in next(ledger.chain.events("raise")).facts
    assert "raised, with the steward's signature, to ε = 9 (then)." in ledger.explain("r0").text
    assert ledger.verify().is_good


def test_an_export_names_actors_unless_it_is_without_ids(ledger: Ledger, tmp_path: Path) -> None:
    ledger.withdraw(["r0"], actor="Dr. Ada", reason="a letter")
    ledger.left(small.budgets(), LIFETIME_DELTA)
    for without_ids in (False, True):
        path = tmp_path / f"{without_ids}.json"
        export(ledger, path, without_ids=without_ids, progress=silent)
        text = path.read_text("utf-8")
        assert [word in text for word in ("Dr. Ada", "a letter")] == [not without_ids] * 2


# Consent that is given again


def test_consent_given_again_holds_from_the_next_run_on(ledger: Ledger, table: BudgetTable, key: StewardKey) -> None:
    """Withdrawn and back during a run: it stays out of that run, and of one that is resumed; the next one draws it."""
    ledger.reserve("one", plan(ledger, table), None)
    ledger.charge("one", 1, heads)
    booked = ledger.balances(table.ids).booked.copy()
    ledger.withdraw(["r3"])
    assert ledger.switched_off("one").tolist() == [3]
    ledger.reconsent(["r3"], key=key)
    assert ledger.switched_off("one").tolist() == [3], "both wait in the inbox"
    ledger.charge("one", 2, heads)
    assert ledger.switched_off("one").tolist() == [3], "both are booked"
    assert ledger.switched_off().tolist() == []
    assert ledger.balances(table.ids).booked.tolist() == booked.tolist(), "what was booked stays booked"
    again = plan(ledger, table)
    assert again.q[3] > 0.0
    ledger.reserve("two", again, None)
    assert ledger.switched_off("two").tolist() == []
    assert ledger.switched_off("one").tolist() == [3]
    assert ledger.verify().is_good


def test_a_run_that_is_resumed_stays_without_the_record(
    ledger: Ledger, table: BudgetTable, key: StewardKey, tmp_path: Path
) -> None:
    ledger.reserve("one", plan(ledger, table), None)
    ledger.charge("one", 1, heads)
    ledger.withdraw(["r3"])
    ledger.close()
    with Ledger.open(tmp_path / "ledger.db") as writer:
        writer.reconsent(["r3"], key=key)
    with Ledger.open(tmp_path / "ledger.db") as writer:
        assert [event.kind for event in writer.chain.events()][-2:] == ["withdraw", "reconsent"]
        writer.resume("one", table.ids)
        assert writer.switched_off("one").tolist() == [3]
        writer.withdraw(["r3", "r5"])
        assert writer.switched_off("one").tolist() == [3, 5]
        assert writer.switched_off().tolist() == [3, 5]


def test_after_a_failed_transaction_it_stays_out_as_well(
    ledger: Ledger, table: BudgetTable, key: StewardKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve("one", plan(ledger, table), None)
    ledger.charge("one", 1, heads)
    ledger.withdraw(["r3"])
    ledger.reconsent(["r3"], key=key)
    ledger.charge("one", 2, heads)

    def fails() -> bool:
        raise RuntimeError("no coin")

    with pytest.raises(RuntimeError):
        ledger.charge("one", 3, fails)
    assert ledger.switched_off("one").tolist() == [3]


def test_only_the_steward_ends_a_withdrawal(ledger: Ledger, table: BudgetTable) -> None:
    ledger.withdraw(["r0"])
    ledger.left(table, LIFETIME_DELTA)
    with pytest.raises(PrivacyRefusal, match="would take back in 1 records, but its signature is not"):
        ledger.reconsent(["r0"], key=StewardKey())
    hashed, nothing = ledger.key.record("r0").reshape(1, 2), np.array([np.nan])
    ledger.inbox.submit(Action("reconsent", ledger.id, hashed, nothing, nothing))
    with pytest.raises(PrivacyRefusal, match="signature is not that of this ledger's steward"):
        ledger.left(table, LIFETIME_DELTA)


def test_who_has_not_withdrawn_cannot_come_back(ledger: Ledger, key: StewardKey) -> None:
    ledger.withdraw(["r0"])
    with pytest.raises(InputError, match="1 of 2 records have not withdrawn"):
        ledger.reconsent(["r0", "r1"], key=key)
    assert [action.kind for action in ledger.pending()] == ["withdraw"]


# Persons, and the command line


def test_a_person_is_explained_with_all_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steward = ["--steward-key", str(tmp_path / "s.key")]
    path = str(tmp_path / "ledger.db")
    BudgetTable(["a1", "a2", "b"], [4.0, 4.0, 1.0], subjects=["ann", "ann", "bob"]).write(tmp_path / "budgets.csv")
    assert run(["ledger", "keygen", str(tmp_path / "s")]) == 0
    create = ["ledger", "create", path, "--budgets", str(tmp_path / "budgets.csv"), "--lifetime-delta", "1e-3"]
    assert run([*create, "--steward", str(tmp_path / "s.pub"), "--account", "sums"]) == 0
    assert run(["ledger", "withdraw", path, "--subject", "ann", "--reason", "a call", "--actor", "Dr. Ada"]) == 0
    assert run(["ledger", "reconsent", path, "--subject", "ann", *steward]) == 2
    assert run(["ledger", "reconsent", path, "--subject", "ann", *steward, "--reason", "form 7"]) == 0
    assert run(["ledger", "reconsent", path, "--subject", "ann", "--reason", "form 7"]) == 3
    capsys.readouterr()
    assert run(["ledger", "explain", path, "--subject", "ann"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Person ann has 2 records in this silo. The promise for all of them together is ε = 4 at δ = 0.001" in said
    assert said.count("it was withdrawn by Dr. Ada (a call)") == 2
    assert said.count(f"its withdrawal was ended, with the steward's signature by {acting_user()} (form 7)") == 2
    assert run(["ledger", "explain", path, "--subject", "ann", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["epsilon"], len(found["records"]), found["share_used"]) == (4.0, 2, 0.0)
    assert found["delta"] == pytest.approx(1e-3)
    for wrong in ([path], [path, "a1", "--subject", "ann"], [path, "--subject", "nobody"]):
        assert run(["ledger", "explain", *wrong]) == 2


def test_the_share_that_a_person_has_used(tmp_path: Path) -> None:
    table = BudgetTable(["a1", "a2", "b"], [4.0, 4.0, 1.0], subjects=["ann", "ann", "bob"])
    with small.make(tmp_path, table) as ledger:
        cost = np.array([0.5, 1.0, 0.0])
        ledger.reserve(
            "run", small.by_hand(small.public(delta=1e-4), table.ids, cost, np.where(cost > 0, 0.5, 0)), None
        )
        ann = ledger.explain_subject("ann")
        assert ann.share_used == pytest.approx(1.5 / 4.0)
        assert ann.account == "sums"
        assert "37.5% of what they may use is used" in ann.text
        assert ledger.explain_subject("bob").share_used == 0.0
