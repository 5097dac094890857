"""`rpdp ledger` as a data steward uses it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rpdp import BudgetTable
from rpdp.cli.run import run
from rpdp.ledger import Ledger
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads


class Steward:
    """Runs commands in a directory of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        found = run(["ledger", *(str(argument) for argument in arguments)])
        captured = self._capsys.readouterr()
        assert found == code, captured
        return captured.out + captured.err

    def json(self, *arguments: object, code: int = 0) -> dict[str, Any]:
        value = json.loads(self(*arguments, "--json", code=code))
        assert isinstance(value, dict)
        return value


@pytest.fixture
def steward(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Steward:
    monkeypatch.chdir(tmp_path)
    small.budgets(6).write(tmp_path / "budgets.csv")
    return Steward(capsys)


@pytest.fixture
def created(steward: Steward) -> Steward:
    steward("keygen", "steward")
    making = ("--budgets", "budgets.csv", "--lifetime-delta", 1e-2, "--steward", "steward.pub", "--account", "sums")
    steward("create", "ledger.db", *making)
    return steward


def trained(name: str, rounds: int = 2) -> None:
    table = BudgetTable.read("budgets.csv")
    with Ledger.open("ledger.db") as ledger:
        ledger.reserve(name, small.plan(ledger, table), None)
        for number in range(1, rounds + 1):
            ledger.charge(name, number, heads)
            ledger.store(name, number, b"update")


def test_a_stewards_day(created: Steward) -> None:
    """Create, run twice, look, withdraw a person, run again, verify, export."""
    assert "No run has been admitted yet" in created("show", "ledger.db")
    trained("first")
    trained("second")
    shown = created.json("show", "ledger.db")
    assert [entry["status"]["run"] for entry in shown["runs"]] == ["first", "second"]
    assert shown["records"] == 6
    explained = created("explain", "ledger.db", "r1")
    assert "Run first" in explained
    assert "Run second" in explained
    assert "1 record withdrawn, booked" in created("withdraw", "ledger.db", "r1", "--reason", "letter of 3 May")
    trained("third")
    told = created.json("explain", "ledger.db", "r1")
    assert told["withdrawn"] is True
    assert [entry["q"] > 0 for entry in told["runs"]] == [True, True, False]
    assert "good. 17 events, 6 records, 3 runs" in " ".join(created("verify", "ledger.db").split())
    assert created.json("export", "ledger.db", "all.csv")["records"] == 6
    assert created.json("export", "ledger.db", "all.json", "--without-ids")["records"] == 6


def test_exports(created: Steward, tmp_path: Path) -> None:
    trained("run")
    created("withdraw", "ledger.db", "r2", "--reason", "very personal")
    created("export", "ledger.db", "all.csv")
    created("export", "ledger.db", "numbers.csv", "--without-ids")
    created("export", "ledger.db", "all.json")
    created("export", "ledger.db", "numbers.json", "--without-ids")
    with (tmp_path / "all.csv").open() as one, (tmp_path / "numbers.csv").open() as two:
        everything, numbers = list(csv.DictReader(one)), list(csv.DictReader(two))
    with Ledger.read("ledger.db") as ledger:
        explained = ledger.explain("r3")
    mine = next(row for row in everything if row["record_hash"] == explained.hash)
    assert float(mine["spent_epsilon"]) == explained.spent_epsilon
    assert sum(int(row["withdrawn"]) for row in everything) == 1
    assert "record_hash" not in numbers[0]
    without = [{key: value for key, value in row.items() if key != "record_hash"} for row in everything]
    assert sorted(map(str, without)) == sorted(map(str, numbers))
    assert numbers == sorted(numbers, key=lambda row: [float(value) for value in row.values()])
    whole = json.loads((tmp_path / "all.json").read_text())
    assert [event["kind"] for event in whole["events"]][:3] == ["create", "admit", "charge"]
    assert "very personal" in (tmp_path / "all.json").read_text()
    bare = (tmp_path / "numbers.json").read_text()
    assert "very personal" not in bare
    assert explained.hash not in bare
    assert len(json.loads(bare)["records"]) == 6
    facts = {event["kind"]: event["facts"] for event in json.loads(bare)["events"]}
    hashes = {event["kind"]: event["facts"] for event in whole["events"]}["create"]["records"]
    assert "sha256" in hashes  # who knows all records but one could test a guess with it
    assert facts["create"]["records"] == {name: value for name, value in hashes.items() if name != "sha256"}
    created("export", "ledger.db", "all.csv", code=2)
    created("export", "ledger.db", "all.xml", code=2)


def test_budgets_go_down_freely_and_up_by_signature(created: Steward, tmp_path: Path) -> None:
    assert created.json("lower", "ledger.db", "r0", "r2", "--epsilon", 1.5)["booked"] is True
    assert created.json("explain", "ledger.db", "r2")["epsilon"] == 1.5
    assert "would raise it" in created("lower", "ledger.db", "r0", "--epsilon", 1.7, code=2)
    assert "only with the steward's signature" in created("raise", "ledger.db", "r0", "--epsilon", 3, code=3)
    created("keygen", "stranger", "--passphrase", "abc")
    refused = ("raise", "ledger.db", "r0", "--epsilon", 3, "--reason", "a form", "--steward-key")
    assert "not that of this ledger's steward" in created(*refused, "stranger.key", "--passphrase", "abc", code=3)
    created("raise", "ledger.db", "r0", "--epsilon", 3, "--steward-key", "steward.key", code=2)  # no reason
    created(*refused, "steward.key")
    assert created.json("explain", "ledger.db", "r0")["epsilon"] == 3.0
    BudgetTable(["r4", "r5"], [0.2, 0.3]).write(tmp_path / "lower.csv")
    assert created.json("lower", "ledger.db", "--budgets", "lower.csv")["records"] == 2
    assert created.json("explain", "ledger.db", "r5")["epsilon"] == 0.3
    created("lower", "ledger.db", "r4", "--budgets", "lower.csv", code=2)
    created("lower", "ledger.db", "--epsilon", 0.1, code=2)


def test_a_withdrawal_while_a_run_holds_the_ledger(created: Steward) -> None:
    table = BudgetTable.read("budgets.csv")
    with Ledger.open("ledger.db") as ledger:
        ledger.reserve("run", small.plan(ledger, table), None)
        assert "in force from the next local step on" in " ".join(created("withdraw", "ledger.db", "r3").split())
        assert ledger.switched_off().tolist() == [3]
        assert created.json("show", "ledger.db")["pending_actions"] == 1
        created("add", "ledger.db", "--budgets", "budgets.csv", code=3)
    Ledger.open("ledger.db").close()
    assert created.json("show", "ledger.db")["pending_actions"] == 0


def test_records_are_added(created: Steward, tmp_path: Path) -> None:
    BudgetTable(["n0", "n1"], [1.0, 2.0]).write(tmp_path / "new.csv")
    assert created.json("add", "ledger.db", "--budgets", "new.csv") == {"file": "ledger.db", "added": 2, "records": 8}
    assert "is in the ledger already" in created("add", "ledger.db", "--budgets", "new.csv", code=2)


def test_a_changed_ledger_is_refused_with_every_discrepancy(created: Steward, tmp_path: Path) -> None:
    trained("run")
    path = tmp_path / "ledger.db"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"missed":0', b'"missed":1', 1))
    assert "was changed" in created("verify", "ledger.db", code=3)
    found = created.json("verify", "ledger.db", code=3)
    assert found["good"] is False
    assert {finding["check"] for finding in found["findings"]} == {"chain", "rounds"}


def test_heads(created: Steward, tmp_path: Path) -> None:
    trained("run")
    head = created("head", "ledger.db", "--json")
    (tmp_path / "head.json").write_text(head)
    assert created.json("head", "ledger.db", "--acknowledge", "head.json")["count"] == 5
    (tmp_path / "head.json").write_text(head.replace('"count": 5', '"count": 6'))
    assert "older than its acknowledged state" in created("head", "ledger.db", "--acknowledge", "head.json", code=3)


def test_mistakes_have_a_message(created: Steward, tmp_path: Path) -> None:
    assert "there is no ledger" in created("show", "nowhere.db", code=2)
    assert "never overwritten" in created(
        "create", "ledger.db", "--budgets", "budgets.csv", "--lifetime-delta", 1e-2, code=2
    )
    assert "no record 'nobody'" in created("explain", "ledger.db", "nobody", code=2)
    assert created.json("explain", "ledger.db", "nobody", code=2)["kind"] == "InputError"
    assert "exists and is not overwritten" in created("keygen", "steward", code=2)


def test_a_copy_elsewhere_needs_the_key_for_one_record_only(created: Steward, tmp_path: Path) -> None:
    trained("run")
    (tmp_path / "auditor").mkdir()
    copy = tmp_path / "auditor" / "copy.db"
    copy.write_bytes((tmp_path / "ledger.db").read_bytes())
    assert created.json("verify", copy)["good"] is True
    assert created.json("show", copy)["records"] == 6
    created("explain", copy, "r1", code=2)
    assert created.json("explain", copy, "r1", "--key", "ledger.db.key")["record"] == "r1"


def test_a_copy_while_a_run_goes_on(created: Steward) -> None:
    table = BudgetTable.read("budgets.csv")
    with Ledger.open("ledger.db") as ledger:
        ledger.reserve("run", small.plan(ledger, table), None)
        ledger.charge("run", 1, heads)
        created("copy", "ledger.db", "copy.db")
        ledger.charge("run", 2, heads)
        created("copy", "ledger.db", "copy.db", code=2)
    assert created.json("verify", "copy.db")["good"] is True
    assert created.json("show", "copy.db")["runs"][0]["status"]["announced"] == 1


def test_lifetime_of_a_table_without_delta(created: Steward) -> None:
    assert created.json("explain", "ledger.db", "r0")["delta"] == LIFETIME_DELTA


def test_an_exported_event_names_its_run_and_round(created: Steward, tmp_path: Path) -> None:
    """With ids or without: both are public. An event of no run names none."""
    trained("run", rounds=1)
    for options in ((), ("--without-ids",)):
        name = f"events{len(options)}.json"
        created("export", "ledger.db", name, *options)
        events = json.loads((tmp_path / name).read_text())["events"]
        told = [[event.get(name) for name in ("kind", "run", "round", "joined")] for event in events]
        assert told == [
            ["create", None, None, None],
            ["admit", "run", 0, False],
            ["charge", "run", 1, True],
            ["release", "run", 1, False],
        ]
