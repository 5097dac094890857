"""The console in a real browser: wide and on a phone, with the keyboard alone, checked by axe, and used as a steward would."""  # noqa: E501

from __future__ import annotations

import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rpdp.cli.run import run
from rpdp.ledger import Ledger
from tests.console.hospital import Console, make_silo
from tests.report.browser import Browser, find_chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: the console is not opened in a browser"
)

WIDE, PHONE = 1280, 390
AXE = find_spec("axe_core_python")
SERIOUS = ("serious", "critical")
PAGES = {
    "overview": "/",
    "runs": "/runs",
    "budgets": "/budgets",
    "people": "/people",
    "what if": "/what-if",
    "what if, declared": "/what-if?source=declared",
    "what if, ledger": "/what-if?source=ledger",
    "actions": "/actions",
    "verify": "/verify",
    "audit": "/audit",
    "not there": "/nothing",
}
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
STOPS = """[...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")].filter(e =>
  e.type !== "hidden" && e.checkVisibility() && (e.type !== "radio" || e.checked))
  .map((e, i) => (e.dataset.stop = i, i))"""
UNLABELLED = """[...document.querySelectorAll("input, select")].filter(
  e => e.type !== "hidden" && !e.labels.length).length"""


class Visitor:
    """A browser that is signed in to a console."""

    def __init__(self, browser: Browser, console: Console) -> None:
        self.browser, self.console = browser, console

    def visit(self, path: str, width: int = WIDE, dark: bool = False) -> None:
        """Open a page, and wait until it has what it waits for."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.browser.call("Emulation.setEmulatedMedia", features=scheme)
        self.browser.visit(f"http://{self.console.host}{path}", width)
        self.settle()

    def settle(self, patience: float = 90.0) -> None:
        deadline = time.monotonic() + patience
        while self.browser.evaluate("document.querySelector('progress') !== null || !document.querySelector('main')"):
            assert time.monotonic() < deadline
            time.sleep(0.3)

    def text(self) -> str:
        return str(self.browser.evaluate("document.querySelector('main').innerText"))

    def fill(self, form: str, **fields: str) -> None:
        for name, value in fields.items():
            self.browser.click(f"{form} [name={name}]")
            self.browser.evaluate("document.activeElement.select()")
            self.browser.write(value)

    def look_up(self, kind: str, name: str) -> None:
        self.visit("/people")
        self.browser.click(f"[name=kind][value={kind}]")
        self.fill("main form", id=name)
        self.browser.click("main form button", loads=True)
        assert name in self.text()

    def act(self, action: str, **fields: str) -> str:
        button = f"[name=action][value={action}]"
        form = f"form:has({button})"
        self.browser.click(f"details:has({button}) summary")
        self.fill(form, **fields)
        self.browser.click(f"{form} button", loads=True)
        return str(self.browser.evaluate("document.querySelector('[role=status], [role=alert]').innerText"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("silo")


@pytest.fixture(scope="module")
def visitor(browser: Browser, folder: Path) -> Iterator[Visitor]:
    with Console(*make_silo(folder)) as console:
        browser.visit(console.addresses[0], WIDE)
        signed_in = Visitor(browser, console)
        deadline = time.monotonic() + 60.0
        while browser.evaluate("location.pathname") != "/":  # it leads on by itself
            assert time.monotonic() < deadline
            time.sleep(0.1)
        signed_in.settle()
        yield signed_in


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_wide_and_on_a_phone(visitor: Visitor, name: str, width: int) -> None:
    visitor.visit(PAGES[name], width)
    complaints = [text for text in visitor.browser.complaints() if "404" not in text]
    assert complaints == []
    assert visitor.browser.requested() <= {"http", "data"}
    assert all(visitor.console.host in url for url in visitor.browser.addresses() if not url.startswith("data:"))
    assert visitor.browser.evaluate(SIDEWAYS) == 0
    assert visitor.browser.evaluate("document.scripts.length") == 0
    assert visitor.browser.evaluate("document.querySelectorAll('h1').length") == 1
    assert visitor.browser.evaluate(UNLABELLED) == 0


def test_a_page_that_breaks_the_rules_is_noticed(visitor: Visitor) -> None:
    """The checks above can fail: a script, and something wider than the page."""
    visitor.visit("/people", PHONE)
    visitor.browser.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=//evil.example/a onerror=alert(1)>')"
    )
    wide = "<pre>' + 'x'.repeat(500) + '</pre><input>"
    visitor.browser.evaluate(f"document.body.insertAdjacentHTML('beforeend', '{wide}')")
    visitor.browser.evaluate("document.querySelector('pre').style.overflowWrap = 'normal'")
    assert any("Content Security Policy" in text for text in visitor.browser.complaints())
    assert visitor.browser.evaluate(SIDEWAYS) > 0
    assert visitor.browser.evaluate(UNLABELLED) == 1


@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed: pages are not checked for accessibility")
class TestAccessibility:
    def findings(self, visitor: Visitor) -> list[dict[str, Any]]:
        assert AXE is not None
        assert AXE.submodule_search_locations is not None
        source = Path(AXE.submodule_search_locations[0]) / "axe.min.js"
        visitor.browser.evaluate(source.read_text(encoding="utf-8") + "; 1")
        found = visitor.browser.evaluate("axe.run(document, {preload: false}).then(r => JSON.stringify(r.violations))")
        return [one for one in json.loads(found) if one["impact"] in SERIOUS]

    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    @pytest.mark.parametrize("name", PAGES)
    def test_axe_finds_nothing_serious(self, visitor: Visitor, name: str, dark: bool) -> None:
        visitor.visit(PAGES[name], PHONE if dark else WIDE, dark)
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in self.findings(visitor)] == []

    def test_axe_on_a_story_with_open_forms(self, visitor: Visitor) -> None:
        visitor.look_up("subject", "ada")
        visitor.browser.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in self.findings(visitor)] == []

    def test_axe_would_find_something(self, visitor: Visitor) -> None:
        visitor.visit("/people")
        visitor.browser.evaluate("document.querySelectorAll('label').forEach(e => e.replaceWith(...e.children))")
        assert "label" in [one["id"] for one in self.findings(visitor)]


class TestKeyboard:
    @pytest.mark.parametrize("name", PAGES)
    def test_everything_is_reached_and_seen(self, visitor: Visitor, name: str) -> None:
        visitor.visit(PAGES[name])
        wanted = set(visitor.browser.evaluate(STOPS))
        reached, unseen = set(), []
        for _ in range(len(wanted) + 3):
            visitor.browser.press("Tab")
            stop, outline = visitor.browser.evaluate(
                "[document.activeElement.dataset.stop, getComputedStyle(document.activeElement).outlineStyle]"
            )
            if stop is not None:
                reached.add(int(stop))
                unseen += [stop] if outline == "none" else []
        assert wanted == reached
        assert unseen == []

    def test_looking_somebody_up_without_a_mouse(self, visitor: Visitor) -> None:
        visitor.visit("/people")
        visitor.browser.evaluate("document.querySelector('[name=kind]:checked').focus()")
        visitor.browser.press("ArrowDown")
        visitor.browser.press("Tab")
        visitor.browser.write("ada")
        visitor.browser.press("Enter", loads=True)
        assert "Person ada has 2 records" in visitor.text()

    def test_skipping_the_menu(self, visitor: Visitor) -> None:
        visitor.visit("/runs")
        visitor.browser.press("Tab")
        visitor.browser.press("Enter")
        assert visitor.browser.evaluate("document.activeElement.id") == "content"


def test_on_paper_there_is_no_menu(visitor: Visitor) -> None:
    visitor.visit("/budgets")
    visitor.browser.call("Emulation.setEmulatedMedia", media="print")
    shown = visitor.browser.evaluate("['nav', 'figure'].map(e => document.querySelector(e).checkVisibility())")
    visitor.browser.call("Emulation.setEmulatedMedia", media="")
    assert shown == [False, True]


class TestStewardActions:
    """Each action by clicking, and then seen in `rpdp ledger verify` and `rpdp ledger explain`."""

    def told(self, folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
        capsys.readouterr()
        command, *rest = arguments
        assert run(["ledger", command, str(folder / "ledger.db"), *rest]) == 0
        return " ".join(capsys.readouterr().out.split())

    def test_all_actions(self, visitor: Visitor, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        sure = {"actor": "Ada Lovelace", "confirmation": "r7"}
        visitor.look_up("record", "r7")
        assert "1 record withdrawn: booked" in visitor.act("withdraw", **sure, reason="letter of 3 May")
        assert "It has been withdrawn" in visitor.text()
        assert "withdrawn by Ada Lovelace (letter of 3 May)" in self.told(folder, capsys, "explain", "r7")
        assert "taken back in" in visitor.act("reconsent", **sure, reason="form of 9 June")
        assert "ended, with the steward's signature by Ada Lovelace" in self.told(folder, capsys, "explain", "r7")
        assert "lowered: booked" in visitor.act("lower", **sure, epsilon="1.5")
        assert "lowered to ε = 1.5 by Ada Lovelace" in self.told(folder, capsys, "explain", "r7")
        assert "raised" in visitor.act("raise", **sure, epsilon="3", reason="<b>new</b> consent")
        assert "raised, with the steward's signature, to ε = 3" in self.told(folder, capsys, "explain", "r7")
        assert "<b>new</b> consent" in visitor.text()  # as text
        assert "ledger.db: good." in self.told(folder, capsys, "verify")
        visitor.visit("/actions")
        assert visitor.text().count("Ada Lovelace") == 4

    def test_a_person(self, visitor: Visitor, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        visitor.look_up("subject", "ada")
        told = visitor.act("withdraw", actor="Ada", confirmation="ada", reason="")
        assert "2 records withdrawn: booked" in told
        assert "2 of them have withdrawn" in self.told(folder, capsys, "explain", "--subject", "ada")

    def test_without_the_id_typed_nothing_happens(self, visitor: Visitor, folder: Path) -> None:
        visitor.look_up("record", "r9")
        assert "type the id" in visitor.act("withdraw", actor="Ada", confirmation="r8", reason="")
        with Ledger.read(folder / "ledger.db") as ledger:
            assert not ledger.explain("r9").withdrawn

    def test_verify_and_the_package(self, visitor: Visitor) -> None:
        visitor.visit("/verify")
        visitor.browser.click("form[action='/verify'] button", loads=True)
        visitor.settle()
        assert "Good on" in visitor.text()
        visitor.browser.click("form[action='/verify/package'] button", loads=True)
        visitor.settle()
        assert "Download the auditor's package" in visitor.text()
