"""What a budget means in words, and forms on which people choose one."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from rpdp.cli.run import run
from rpdp.errors import InputError
from rpdp.statements.consent_form import ConsentForm, consent_form_page
from rpdp.statements.statement_words import load_words
from tests.statements.forms import CHOICES, HOSTILE
from tests.statements.test_statement import Words

FILE = """
title = "How much?"
purpose = "To learn."
[[choice]]
label = "Little"
epsilon = 0.1
delta = 1e-5
changes = "Rarely used."
[[choice]]
label = "Some"
epsilon = 1
delta = 1e-5
changes = "Used more often."
[[choice]]
label = "Much"
epsilon = 5
delta = 1e-5
changes = "Used nearly always."
"""


def test_a_form_shows_what_each_choice_means() -> None:
    page = Words(consent_form_page(ConsentForm.of(CHOICES), load_words()))
    for odds in (53, 74, 96):
        assert f"right in at most {odds} of 100 cases" in page.text
    assert "You can also say no." in page.text
    assert page.elements.count("fieldset") == 1
    assert "checked" not in page.elements
    assert not {"img", "onerror", "href"} & set(page.elements)
    assert page.elements.count("script") == 1


def changed(**values: Any) -> dict[str, Any]:
    return deepcopy(CHOICES) | values


def test_files_of_choices_that_mislead_are_refused() -> None:
    few, same, unlike = CHOICES["choice"][:2], CHOICES["choice"][:1] * 3, deepcopy(CHOICES["choice"])
    unlike[1]["epsilon"] = 0
    for values, said in (
        (changed(choice=few), "3 to 5 choices"),
        (changed(choice=same), "same label"),
        (changed(choice=unlike), r"choice 2.epsilon=0 must be above 0"),
        (changed(column="name"), "must be one of subject, record"),
        (changed(colour="red"), "form.colour is not a setting"),
        (changed(title=""), "not empty"),
        (changed(choices=[]), "write each choice as"),
        (changed(choice=[{**one, "sigma": 1} for one in CHOICES["choice"]]), "choice 1.sigma is not a setting"),
    ):
        with pytest.raises(InputError, match=said):
            ConsentForm.of(values)


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("choices.toml").write_text(FILE, encoding="utf-8")
    assert run(["budgets", "form", "choices.toml", "--output", "form.html", "--language", "de", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["right_guesses_of_100"] for one in shown["choices"]] == [53.0, 74.0, 99.4]
    assert "Wie viel erlauben Sie?" in Path("form.html").read_text(encoding="utf-8")
    assert run(["budgets", "form", "choices.toml", "--output", "form.html"]) == 2
    Path("broken.toml").write_text("title =", encoding="utf-8")
    assert run(["budgets", "form", "broken.toml", "--output", "x.html"]) == 2
    assert run(["budgets", "explain", "0.5", "--delta", "1e-5", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["right_guesses_of_100"] == 63.0
    assert run(["budgets", "explain", "0.5", "--delta", "1e-5", "--language", "de"]) == 0
    assert "höchstens 63 von 100" in " ".join(capsys.readouterr().out.split())
    assert run(["budgets", "explain", "-1", "--delta", "1e-5"]) == 2
    assert run(["budgets", "explain", "1", "--delta", "2"]) == 2


def test_texts_of_a_form_stay_texts() -> None:
    page = consent_form_page(ConsentForm.of(CHOICES), load_words("de"))
    assert HOSTILE not in page
    assert "&lt;/title&gt;&lt;script&gt;" in page
