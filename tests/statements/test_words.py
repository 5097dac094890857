"""Message catalogues are complete: every message is used, in every language, with the same places to fill in."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from rpdp.errors import InputError
from rpdp.planning import PURPOSES
from rpdp.statements.odds_words import Odds, explain_budget, odds_of_budget
from rpdp.statements.statement_words import languages, load_words, places, require_complete

ROOM = Path(str(files("rpdp.statements")))
READ_BY_THE_CODE = {"language", "decimal_mark", "months"}
FAMILIES = {
    "use_": PURPOSES,
    "state_": ("used", "held", "not_used", "cancelled", "expired"),
    "decision_": ("withdraw", "lower", "raise", "reconsent"),
    "picture_": ("chance", "more", "rest"),
    "account_": ("sums", "renyi"),
}
"""Messages whose key is put together in a template: its beginning, and what may follow."""


def asked_for() -> set[str]:
    """The keys of all messages that code and templates ask for."""
    keys = set(READ_BY_THE_CODE)
    for path in [*ROOM.glob("*.py"), *ROOM.glob("templates/*")]:
        text = path.read_text(encoding="utf-8")
        for key, goes_on in re.findall(r'\b(?:t|words|self)\("(\w+)"( ~)?', text):
            if goes_on:
                keys |= {key + end for end in FAMILIES[key]}
            else:
                keys.add(key)
    return keys


@pytest.mark.parametrize("language", languages())
def test_a_catalogue_has_what_is_asked_for_and_no_more(language: str) -> None:
    messages = tomllib.loads((ROOM / f"messages/{language}.toml").read_text(encoding="utf-8"))
    assert set(messages) == asked_for()
    require_complete(messages, language)
    assert all(text for text in messages.values())


def test_there_are_english_and_german() -> None:
    assert languages() == ["de", "en"]
    assert load_words("de").language == "de"
    assert load_words("de").date("2026-03-07T10:00:00+00:00") == "7. März 2026"
    assert load_words("de").number(99.4, 1) == "99,4"
    assert load_words().date("long ago") == "long ago"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"coin": None}, "missing: coin"),
        ({"surprise": "x"}, "unknown: surprise"),
        ({"guess": "always {odds.__class__}"}, "not a plain name"),
        ({"guess": "always"}, r"must have the places \['odds'\]"),
        ({"guess": "{odds"}, "guess"),
        ({"months": ["January"]}, "a list of 12"),
        ({"coin": 7}, "must be a text"),
    ],
)
def test_an_incomplete_catalogue_is_refused(change: dict[str, object], said: str) -> None:
    messages = dict(load_words().messages) | change
    with pytest.raises(InputError, match=said):
        require_complete({key: text for key, text in messages.items() if text is not None}, "mine.toml")


def test_a_hospital_adds_its_own_catalogue(tmp_path: Path) -> None:
    text = (ROOM / "messages/en.toml").read_text(encoding="utf-8")
    own = tmp_path / "plain.toml"
    own.write_text(text.replace('language = "en"', 'language = "en-GB"', 1), encoding="utf-8")
    assert load_words(str(own)).language == "en-GB"
    own.write_text("guess = ", encoding="utf-8")
    with pytest.raises(InputError, match="not a message catalogue"):
        load_words(str(own))
    with pytest.raises(InputError, match="cannot be read"):
        load_words(str(tmp_path / "absent.toml"))
    with pytest.raises(InputError, match="one of de, en"):
        load_words("fr")


def test_places_are_plain_names() -> None:
    assert places("{a} and {b}", "x") == {"a", "b"}
    with pytest.raises(InputError):
        places("{a[0]}", "x")


@pytest.mark.parametrize(
    ("guesses", "shown", "figures"),
    [
        (50.0, "50", 50),
        (50.001, "51", 51),
        (73.1, "74", 74),
        (99.0, "99", 99),
        (99.33, "99.4", 100),
        (99.94, "99.94", 100),
    ],
)
def test_odds_are_rounded_up(guesses: float, shown: str, figures: int) -> None:
    odds = Odds(guesses)
    assert (odds.text(load_words()), odds.figures) == (shown, figures)
    assert odds.shown >= guesses


def test_hopeless_odds_are_100() -> None:
    assert odds_of_budget(900.0, 0.5).text(load_words()) == "100"
    assert odds_of_budget(0.0, 0.0).text(load_words()) == "50"
    assert "99,4 von 100" in explain_budget(5.0, 1e-5, load_words("de"))[1]
