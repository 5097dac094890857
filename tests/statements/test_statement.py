"""A statement says what the account holds: checked against an export, whatever ids and reasons there are."""

from __future__ import annotations

import json
import math
import re
import stat
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.cli.run import run
from rpdp.errors import InputError
from rpdp.ledger import Ledger, StewardKey
from rpdp.planning import assign_allowed
from rpdp.statements import statement_of, statement_page
from tests.ledger import small
from tests.statements.attacker import accounts

HOSTILE = "</title><script>alert('x')</script>\"'><img src=x onerror=alert(1)>&{{ 7*7 }}{% raw %}"


class Words(HTMLParser):
    """The words of a page, without those of its style; and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.said: list[str] = []
        self.elements: list[str] = []
        self._inside = ""
        self.feed(page)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.elements += [tag, *(name for name, _ in attrs)]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside != "style":
            self.said.append(data)


@pytest.fixture
def table() -> BudgetTable:
    return BudgetTable(["a1", "a2", "b1"], np.array([2.0, 2.0, 1.0]), subjects=["a", "a", "b"])


@pytest.fixture
def ledger(memory: Path, table: BudgetTable) -> Ledger:
    """Two persons, three runs; a withdraws after the second one, and a run is called off."""
    made = small.make(memory, table, steward=StewardKey().public)
    for name in ("one", "two"):
        made.reserve(name, small.plan(made, table), None)
        made.charge(name, 1, small.heads)
    made.reserve("off", small.plan(made, table), None)
    made.cancel("off", by="steward", reason="a wrong plan", actor="Ada")
    made.withdraw(subjects=["a"], reason="a letter", actor="Dr. Bo")
    made.left(table, small.LIFETIME_DELTA)
    made.reserve("three", small.plan(made, table), None)
    made.charge("three", 1, small.heads)
    return made


def test_two_records_three_runs_a_withdrawal(ledger: Ledger, memory: Path) -> None:
    """The odds follow from the export: ε and δ that are booked, for both records as a group, as (e^ε + δ)/(1 + e^ε)."""
    subject = statement_of(ledger, "a").accounts[0].hash
    held = accounts(ledger, memory / "export.json")
    own = [one for one in held.values() if one.subject == held[subject].subject]
    assert len(own) == 2
    epsilon = own[0].booked + own[1].booked
    delta = min(
        own[0].booked_delta + math.exp(own[0].booked) * own[1].booked_delta,
        own[1].booked_delta + math.exp(own[1].booked) * own[0].booked_delta,
    )
    odds = 100.0 * (math.exp(epsilon) + delta) / (1.0 + math.exp(epsilon))
    statement = statement_of(ledger, "a")
    assert statement.for_life.guesses == pytest.approx(odds, rel=1e-6)
    assert statement.for_life.guesses >= odds
    assert [(use.run, use.state, use.records) for use in statement.uses] == [
        ("one", "used", 2),
        ("two", "used", 2),
        ("off", "cancelled", 0),
        ("three", "not used", 0),
    ]
    said = Words(statement_page(ledger, "a", hospital="Hospital A", contact="4711")).text
    assert f"That guess is right in at most {math.ceil(odds)} of 100 cases." in said
    assert "This counts all uses so far. No more will come unless you consent again." in said
    assert said.count("A computer model was trained") == 4
    assert said.count("Your data could take part. About 25 % of what you allow was set aside for it.") == 1
    assert "Called off before it began. Your data was not used." in said
    assert "Run: three" in said
    assert "Reason: a wrong plan" in said
    assert "Your data was withdrawn from further uses. By: Dr. Bo · Reason: a letter" in said
    assert "Your data has been withdrawn. It is not used any more." in said
    assert "computers of Hospital A" in said
    assert "Ask: 4711" in said
    assert statement.digest in said
    assert "This account belongs to a simulation." in said


def test_somebody_who_takes_part(ledger: Ledger) -> None:
    said = Words(statement_page(ledger, "b", language="de")).text
    statement = statement_of(ledger, "b")
    assert statement.odds.shown == 74.0  # (e + 0.01) / (1 + e)
    assert "Er rät in höchstens 74 von 100 Fällen richtig." in said
    assert statement.so_far is not None
    assert f"höchstens {math.ceil(statement.so_far.guesses)} von 100 Fällen" in said
    assert 50.0 < statement.so_far.guesses < statement.for_life.guesses
    assert "Höchstens 58 % dessen, was Sie erlauben, sind verbraucht; etwa 42 % sind" in said
    assert said.count("Ihre Daten konnten beteiligt sein.") == 3


def test_any_id_of_a_person_gives_the_whole_person(ledger: Ledger) -> None:
    whole = statement_of(ledger, "a")
    for record in ("a1", "a2"):
        one = statement_of(ledger, record)
        assert (one.digest, one.name, one.for_life) == (whole.digest, whole.name, whole.for_life)
    assert len(ledger.explain_anybody("a2").records) == 2
    assert statement_of(ledger, "b").name != whole.name
    with pytest.raises(InputError, match="no subject or record 'x' is among the 3 records"):
        statement_of(ledger, "x")
    with pytest.raises(InputError, match="no record 'a' is among"):
        statement_of(ledger, "a", "record")


def test_an_id_that_could_be_two_people_is_refused(memory: Path) -> None:
    with small.make(memory, BudgetTable(["7", "8"], np.array([1.0, 3.0]), subjects=["8", "7"])) as ledger:
        with pytest.raises(InputError, match="also a record of somebody else"):
            statement_of(ledger, "7")
        assert statement_of(ledger, "7", "record").for_life.epsilon == pytest.approx(1.0)
        assert statement_of(ledger, "7", "subject").for_life.epsilon == pytest.approx(3.0)


def test_the_account_number_changes_with_the_account(ledger: Ledger, table: BudgetTable) -> None:
    before = {person: statement_of(ledger, person).digest for person in "ab"}
    assert {person: statement_of(ledger, person).digest for person in "ab"} == before
    ledger.lower_budgets(subjects=["b"], epsilon=0.9)
    assert statement_of(ledger, "a").digest == before["a"]
    assert statement_of(ledger, "b").digest != before["b"]


def test_a_renyi_account_gives_no_number_for_a_part(memory: Path) -> None:
    table = BudgetTable(["r"], np.array([1.0]))
    with Ledger.create(memory / "l.db", table, kind="simulation", lifetime_delta=1e-5, account="renyi") as ledger:
        unused = Words(statement_page(ledger, "r")).text
        assert "Your data has not been used." in unused
        assert "The uses so far alone: at most 50 of 100 cases." in unused
        left = ledger.left(table, 1e-5)
        ledger.reserve("run", assign_allowed(small.public(), table.ids, small.part(left, 0.5)), None)
        said = Words(statement_page(ledger, "r")).text
        assert "The uses so far alone" not in said
        assert "Planned, not begun." in said
        assert statement_of(ledger, "r").odds.shown == 64.0  # 63.34 by B at its order; 73.11 by (ε, δ)
        ledger.withdraw(["r"])
        assert "gives no smaller number for a part" in Words(statement_page(ledger, "r")).text


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_page_is_text_whatever_it_holds(memory: Path, language: str) -> None:
    table = BudgetTable([HOSTILE], np.array([1.0]), subjects=[HOSTILE + "s"])
    with small.make(memory, table) as ledger:
        public = small.public(study=HOSTILE)
        ledger.reserve(HOSTILE, small.by_hand(public, table.ids, 0.1), None)
        ledger.withdraw([HOSTILE], reason=HOSTILE, actor=HOSTILE)
        page = statement_page(ledger, HOSTILE, language=language, hospital=HOSTILE, contact=HOSTILE)
        harmless = statement_page(ledger, HOSTILE + "s", language=language)
    shown = Words(page)
    assert set(shown.elements) == set(Words(harmless).elements)
    assert not {"script", "img", "onerror", "iframe", "src", "href"} & set(shown.elements)
    assert shown.text.count("alert('x')") >= 6
    assert "49" not in shown.text.replace(HOSTILE, "").split()
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|url\(|@import", page)


def test_the_command(
    ledger: Ledger, memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(memory)
    file = str(ledger.ledger_file)
    assert run(["ledger", "statement", file, "a1", "--language", "de"]) == 0
    (page,) = memory.glob("statement-*.html")
    assert page.name == f"statement-{statement_of(ledger, 'a').name}.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "von 100 Fällen richtig" in " ".join(capsys.readouterr().out.split())
    assert run(["ledger", "statement", file, "a1"]) == 2
    assert "exists and is not overwritten" in capsys.readouterr().err
    assert run(["ledger", "statement", file, "a1", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["digest"] == statement_of(ledger, "a").digest
    assert facts["right_guesses_of_100"]["for_life"] == statement_of(ledger, "a").odds.shown
    assert facts["file"] is None
    assert run(["ledger", "statement", file, "nobody", "--output", "x.html"]) == 2
    assert run(["ledger", "statement", file, "a", "--language", "fr", "--output", "x.html"]) == 2
    assert not Path("x.html").exists()
