"""Statement, sealed letter and consent form in a real browser: wide and narrow, offline, by keyboard, readable."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.statements import statement_of, statement_page
from rpdp.statements.consent_form import ConsentForm, consent_form_page
from rpdp.statements.pdf import pdf_of
from rpdp.statements.sealed_page import sealed_page
from rpdp.statements.statement_words import load_words
from tests.ledger import small
from tests.report.browser import Browser, find_chromium
from tests.statements.forms import CHOICES, HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: pages are not opened in a browser"
)

WIDE, PHONE = 1280, 390
PASSPHRASE = "Öl, Brot & 12 Äpfel"  # noqa: S105  # of a letter in this test
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FAINT = """(() => {
  const parts = color => color.match(/[\\d.]+/g).map(Number);
  const linear = part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
  const light = color => {
    const [red, green, blue] = parts(color).map(part => linear(part / 255));
    return .2126 * red + .7152 * green + .0722 * blue;
  };
  const ground = element => {
    for (let one = element; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if ((parts(color)[3] ?? 1) > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = element => {
    const pair = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
    return (pair[0] + .05) / (pair[1] + .05);
  };
  const says = element => [...element.childNodes].some(node => node.nodeType == 3 && node.data.trim());
  const shown = [...document.querySelectorAll("main *")].filter(one => says(one) && !one.closest("noscript, svg"));
  return shown.filter(one => contrast(one) < 4.5).map(one => one.textContent.trim().slice(0, 40));
})()"""
"""Texts with less contrast than people with weak eyes need (WCAG 2, level AA)."""

UNNAMED = """[...document.querySelectorAll("input, button, svg[role=img]")].filter(one => {
  const label = one.labels && one.labels.length ? one.labels[0].textContent : one.textContent;
  return !(one.getAttribute("aria-label") || label.trim());
}).map(one => one.outerHTML)"""
"""What a screen reader would have no name for."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    table = BudgetTable(["a1", "a2"], np.array([1.0, 1.0]), subjects=["a", "a"])
    with small.make(folder, table) as ledger:
        ledger.reserve("run", small.plan(ledger, table), None)
        ledger.lower_budgets(subjects=["a"], epsilon=0.8, reason=HOSTILE)
        statement = statement_page(ledger, "a", hospital="Universitätsklinikum-" * 4)
        digest = statement_of(ledger, "a").digest
    made = {
        "statement": statement,
        "sealed": sealed_page(statement, PASSPHRASE, load_words("de")),
        "form": consent_form_page(ConsentForm.of(CHOICES), load_words()),
        "formular": consent_form_page(ConsentForm.of(CHOICES), load_words("de")),
    }
    assert digest in statement
    assert digest not in made["sealed"]
    paths = {name: folder / f"{name}.html" for name in made}
    for name, page in made.items():
        paths[name].write_text(page, encoding="utf-8")
    return paths


def press(browser: Browser, key: str, code: int, text: str = "") -> None:
    values: dict[str, Any] = {"key": key, "code": key if key != " " else "Space", "windowsVirtualKeyCode": code}
    browser.call("Input.dispatchKeyEvent", type="keyDown", **values, **({"text": text} if text else {}))
    browser.call("Input.dispatchKeyEvent", type="keyUp", **values)


def tab(browser: Browser) -> None:
    press(browser, "Tab", 9)


def enter(browser: Browser) -> None:
    press(browser, "Enter", 13, "\r")


def wait_for(browser: Browser, condition: str) -> None:
    deadline = time.monotonic() + 60.0
    while not browser.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


def require_good(browser: Browser) -> None:
    assert browser.evaluate(SIDEWAYS) == 0
    assert browser.evaluate(FAINT) == []
    assert browser.evaluate(UNNAMED) == []
    assert browser.evaluate("document.documentElement.lang") in ("en", "de")
    assert browser.complaints() == []
    assert browser.requested() <= {"file", "data", "blob"}


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("name", ["statement", "sealed", "form", "formular"])
def test_a_page_in_a_browser(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    browser.open(pages[name], width)
    browser.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    require_good(browser)
    figures = {"statement": 1, "sealed": 0}.get(name, len(CHOICES["choice"]))
    assert browser.evaluate("document.querySelectorAll('svg.people > g').length") == 100 * figures


def test_the_checks_see_what_is_wrong(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    worse = tmp_path / "worse.html"
    text = pages["form"].read_text(encoding="utf-8").replace("--muted: #4c5664", "--muted: #b9c0c8")
    worse.write_text(re.sub(r'<label for="person">.*?</label>', "", text), encoding="utf-8")
    browser.open(worse, WIDE)
    assert browser.evaluate(FAINT)
    assert "person" in str(browser.evaluate(UNNAMED))


def test_a_sealed_letter_opens_with_its_passphrase_alone(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["sealed"], WIDE)
    assert browser.evaluate("document.activeElement.id") == "passphrase"
    browser.call("Input.insertText", text=PASSPHRASE.lower())
    enter(browser)
    wait_for(browser, "document.querySelector('[role=status]').textContent.startsWith('Diese Passphrase')")
    browser.call("Input.insertText", text=PASSPHRASE)  # the wrong one is selected
    enter(browser)
    wait_for(browser, "document.querySelector('h1').textContent.startsWith('What your data')")
    plain = pages["statement"].read_text(encoding="utf-8")
    assert browser.evaluate("document.querySelector('.digest').textContent") in plain
    assert browser.evaluate("document.title") == load_words()("title")
    require_good(browser)


def test_a_form_is_filled_in_by_keyboard(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.open(pages["form"], PHONE)
    assert browser.evaluate("document.querySelectorAll('input:checked').length") == 0
    tab(browser)
    assert browser.evaluate("document.activeElement.dataset.label") == "Little"
    tab(browser)
    assert browser.evaluate("document.activeElement.id") == "person"
    enter(browser)
    assert "choose one" in browser.evaluate("document.getElementById('status').textContent")
    assert browser.evaluate("document.activeElement.dataset.label") == "Little"  # where to go on
    press(browser, " ", 32, " ")
    press(browser, "ArrowDown", 40)
    assert browser.evaluate("document.querySelector('input:checked').dataset.label") == "Some"
    tab(browser)
    browser.call("Input.insertText", text="=cmd()")
    enter(browser)
    assert browser.evaluate("document.getElementById('person').getAttribute('aria-invalid')") == "true"
    browser.evaluate("document.getElementById('person').select()")
    browser.call("Input.insertText", text='Müller, "Eva"')
    enter(browser)
    assert browser.evaluate("document.getElementById('status').textContent") == "Saved on this device: Some"
    saved = tmp_path / "my-choice.csv"
    deadline = time.monotonic() + 30.0
    while not saved.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    require_good(browser)
    assert list(tmp_path.iterdir()) == [saved]
    assert saved.read_text(encoding="utf-8") == 'subject,epsilon,delta\n"Müller, ""Eva""",1.0,1e-05\n'
    records = tmp_path / "records.csv"
    records.write_text('record,subject\nr1,"Müller, ""Eva"""\nr2,"Müller, ""Eva"""\n', encoding="utf-8")
    table = BudgetTable.read(saved, records=records)
    assert table.epsilon.tolist() == [1.0, 1.0]
    assert table.delta is not None


def test_a_portal_names_the_person_and_takes_the_choice(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.open(pages["form"], WIDE)
    browser.evaluate(
        """document.addEventListener("rpdp-choice", e => { window.taken = e.detail; e.preventDefault(); })"""
    )
    browser.evaluate("document.getElementById('person').value = 'p-17'")
    browser.evaluate("document.querySelectorAll('input[name=choice]')[2].click()")
    browser.evaluate("document.querySelector('button').click()")
    assert browser.evaluate("window.taken") == {"subject": "p-17", "epsilon": 3.0, "delta": 1e-5, "label": HOSTILE}
    assert list(tmp_path.iterdir()) == []


def test_a_statement_is_printed(pages: dict[str, Path]) -> None:
    pdf = pdf_of(pages["statement"].read_text(encoding="utf-8"))
    assert pdf.startswith(b"%PDF-")
    assert 1 <= len(re.findall(rb"/Type */Page\b", pdf)) <= 4
