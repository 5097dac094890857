"""Records of which nothing is booked can be enrolled anew as Rényi accounts; all others keep their kind for life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.accounting.renyi_filter import order_numbers
from rpdp.cli.run import run
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Ledger, StewardKey
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads

RECORDS, PEOPLE = ["a1", "a2", "b", "c"], ["ann", "ann", "bob", "cleo"]
TABLE = BudgetTable(RECORDS, [4.0, 4.0, 2.0, 3.0], subjects=PEOPLE)


def make(directory: Path, **settings: Any) -> Ledger:
    given = {"kind": "simulation", "lifetime_delta": LIFETIME_DELTA, "account": "sums", **settings}
    return Ledger.create(directory / "ledger.db", TABLE, **given)


def booked(ledger: Ledger, record: str, *, begins: bool = True) -> None:
    cost = np.array([0.5 * (name == record) for name in RECORDS])
    ledger.reserve(record, small.by_hand(small.public(delta=1e-4), TABLE.ids, cost, np.where(cost > 0, 0.5, 0.0)), None)
    if begins:
        ledger.charge(record, 1, heads)


def orders(ledger: Ledger) -> list[bool]:
    return [bool(order) for order in ledger.balances(TABLE.ids).order]


def test_all_of_whose_person_nothing_is_booked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpdp.ledger.inspection.verification.reprice", lambda ledger, progress: iter(()))
    with make(tmp_path) as ledger:
        booked(ledger, "a1")
        booked(ledger, "b", begins=False)
        ledger.lower_budgets(["c"], 1.5)
        assert ledger.enrol(reason="more runs", actor="Ada") == 1
        assert orders(ledger) == [False, False, False, True]
        assert [event.kind for event in ledger.chain.events()][-2:] == ["lower", "enrol"]
        held = ledger.balances(TABLE.ids)
        assert held.order[3] == order_numbers(np.array([1.5]), np.array([LIFETIME_DELTA]))[0], "of the budget in force"
        assert ledger.verify().findings == ()
        assert "enrolled anew as a Rényi account on" in ledger.explain("c").text
        assert "by Ada (more runs)" in ledger.explain("c").text
        assert "enrolled anew" not in ledger.explain("a2").text
        ledger.cancel("b")
        assert ledger.enrol(["b"]) == 1
        with pytest.raises(InputError, match="there is no record with a sum account"):
            ledger.enrol()
    with Ledger.open(tmp_path / "ledger.db") as again:
        assert orders(again) == [False, False, True, True]
        made = small.plan(again, TABLE)
        again.reserve("mixed", made, None)
        assert (made.order > 0).tolist() == [False, False, True, True]
        assert again.verify().findings == ()


@pytest.mark.parametrize("names", [{"records": ["a2"]}, {"subjects": ["ann"]}, {"records": ["b"]}])
def test_what_is_booked_or_held_stays(tmp_path: Path, names: dict[str, list[str]]) -> None:
    with make(tmp_path) as ledger:
        booked(ledger, "a1")
        booked(ledger, "b", begins=False)
        with pytest.raises(PrivacyRefusal, match="cannot be enrolled anew: something is booked or held"):
            ledger.enrol(**names)  # type: ignore[arg-type]
        assert orders(ledger) == [False] * 4
        assert [event.kind for event in ledger.chain.events()][-1] == "admit"


def test_a_person_is_enrolled_with_all_records(tmp_path: Path) -> None:
    with make(tmp_path) as ledger:
        assert ledger.enrol(["a1"]) == 2
        assert orders(ledger) == [True, True, False, False]
        with pytest.raises(PrivacyRefusal, match="or they have Rényi accounts already"):
            ledger.enrol(["a1"])


def test_a_raised_delta_keeps_its_kind_of_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Rényi account ignores raised δ. Enrolled after one it lost it, and `verify` blamed an honest sharing for it."""
    monkeypatch.setattr("rpdp.ledger.inspection.verification.reprice", lambda ledger, progress: iter(()))
    key = StewardKey()
    with make(tmp_path, steward=key.public) as ledger:
        ledger.raise_budgets(subjects=["ann"], delta=10 * LIFETIME_DELTA, key=key)
        ledger.raise_budgets(subjects=["bob"], epsilon=3.0, key=key)
        ledger.add(BudgetTable(["a3"], [4.0], subjects=["ann"]))
        ledger.lower_budgets(subjects=["ann"], delta=LIFETIME_DELTA / 10)
        with pytest.raises(PrivacyRefusal, match="their δ was raised"):
            ledger.enrol(["a3"])
        assert ledger.enrol() == 2
        assert orders(ledger) == [False, False, True, True]
        assert ledger.verify().findings == ()


def test_silos_of_a_person_keep_one_kind(tmp_path: Path) -> None:
    with make(tmp_path, silos_per_person=2) as ledger, pytest.raises(PrivacyRefusal, match="one kind of account"):
        ledger.enrol()


def test_verify_finds_that_a_booked_account_was_enrolled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpdp.ledger.inspection.verification.reprice", lambda ledger, progress: iter(()))
    monkeypatch.setattr(
        "rpdp.ledger.stewardship.enrolment._is_taken", lambda store, chunk, raised: np.zeros(chunk.count, dtype=bool)
    )
    with make(tmp_path) as ledger:
        booked(ledger, "a1")
        ledger.enrol()
        found = [finding.problem for finding in ledger.verify().findings]
        assert any("changed accounts of chunk" in problem and "something was booked" in problem for problem in found)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TABLE.write(tmp_path / "budgets.csv")
    path = str(tmp_path / "ledger.db")
    create = ["ledger", "create", path, "--budgets", str(tmp_path / "budgets.csv"), "--lifetime-delta", "1e-3"]
    assert run([*create, "--account", "sums"]) == 0
    assert run(["ledger", "enrol", path, "--all"]) == 2, "a production ledger wants a reason"
    assert run(["ledger", "enrol", path, "--reason", "x"]) == 2
    capsys.readouterr()
    assert run(["ledger", "enrol", path, "--subject", "ann", "--reason", "x"]) == 0
    assert "2 of 4 records have Rényi accounts now" in " ".join(capsys.readouterr().out.split())
    assert run(["ledger", "verify", path]) == 0
