"""Every tutorial and guide works as it stands: its commands are typed, its files saved, its output compared."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.deployment.processes import free_port
from tests.compatibility.test_release_0_1 import NORTH, unpacked
from tests.docs.console import DOCS, ROOT, commands, fences, matches, run_page
from tests.programs import needs_nginx

if TYPE_CHECKING:
    from collections.abc import Iterator

TUTORIALS = DOCS / "tutorials"
LEDGER, HOSPITALS = TUTORIALS / "first-ledger.md", TUTORIALS / "two-hospitals.md"
REAL_RUN, UPGRADE = DOCS / "how-to" / "real-run.md", DOCS / "how-to" / "upgrade-ledger.md"
YEARS = DOCS / "how-to" / "plan-for-years.md"
SPECIAL = (LEDGER, REAL_RUN, UPGRADE, YEARS)


def has_commands(page: Path) -> bool:
    """Whether a page shows commands to run."""
    return any(fence.is_console for fence in fences(page.read_text(encoding="utf-8")))


CANDIDATES = [ROOT / "README.md", *sorted(TUTORIALS.glob("*.md")), *sorted((DOCS / "how-to").glob("*.md"))]
PAGES = [page for page in CANDIDATES if has_commands(page)]


@pytest.fixture(autouse=True)
def directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory with a short name, for a silo's socket; modules that a page saves there are forgotten."""
    made = tmp_path_factory.mktemp("d")
    monkeypatch.chdir(made)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield made
    for path in made.glob("*.py"):
        sys.modules.pop(path.stem, None)


def text_of(page: Path) -> str:
    """The page, with a port that is free here."""
    text = page.read_text(encoding="utf-8").replace("port 8443", "port …")
    return text.replace("federation --trial\n", f"federation --trial --port {free_port()}\n")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in SPECIAL], ids=lambda page: page.stem)
def test_a_page_works_as_it_stands(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_page(text_of(page), capsys)


@needs_nginx
@pytest.mark.slow
def test_two_hospitals_with_all_processes(capsys: pytest.CaptureFixture[str]) -> None:
    said = run_page(text_of(HOSPITALS), capsys, slow=True)
    assert "run trial-2" in said
    assert Path("federation/server/runs/trial-2/model.safetensors").is_file()


def test_all_tutorials_are_run() -> None:
    tutorials = set(TUTORIALS.glob("*.md"))
    assert len(tutorials) == 10
    assert tutorials - set(PAGES) - {page for page in tutorials if ">>> " in page.read_text(encoding="utf-8")} == {
        TUTORIALS / "notebook.md"  # run by the site, see test_notebook
    }


def test_the_ledger_tutorial_covers_a_stewards_day(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(run_page(text_of(LEDGER), capsys).split())
    for words in ("300 records", "Run spring", "Run summer", "withdrawn, booked", "it sat out", "ledger.db: good."):
        assert words in said
    assert len((directory / "accounts.csv").read_text().splitlines()) == 301


def test_two_real_runs(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second with the new id that the page asks for."""
    first, title, second = text_of(REAL_RUN).partition("## The next run\n")
    assert title
    run_page(first, capsys)
    study = directory / "real.toml"
    study.write_text(study.read_text().replace('id = "spring"', 'id = "summer"'))
    assert "north.db: good." in run_page(second, capsys)
    assert [found.name for found in sorted((directory / "study").glob("[!.]*"))] == ["heads.json", "spring", "summer"]


def test_an_upgrade_of_a_ledger_of_release_0_1(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ledger in the fixture of that release; what is said of it before and after is the same."""
    there = (unpacked(directory) / NORTH).parent
    for path in there.glob("ledger.db*"):
        path.rename(directory / path.name)
    said = run_page(text_of(UPGRADE), capsys)
    before, after = (part.strip() for part in re.split(r"ledger.db: (?:upgraded|has format 4).*\n.*", said)[:2])
    assert "north-0001 came with" in before
    assert before == after


def test_a_study_that_is_planned_for_years(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a fresh, a half-used and a used-up ledger, each time with the new id that the page asks for."""
    study = directory / "study.toml"
    first, *later = text_of(YEARS).split("\nGive the run a new `id`")
    run_page(first, capsys)
    for number, part in enumerate(later, start=2):
        study.write_text(study.read_text().replace(f'id = "run-{number - 1}"', f'id = "run-{number}"'))
        run_page(part, capsys)
    assert len(later) == 2
    assert [found.name for found in sorted((directory / "study").glob("[!.]*"))] == ["heads.json", "run-1", "run-2"]
    report = (directory / "study" / "run-1" / "report.html").read_text()
    assert "<li>silo north: 200 of 200 records can take part in full" in report


class TestTheRunnerItself:
    """A page that is wrong fails."""

    def test_a_command_that_fails(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(AssertionError, match="ends with 2"):
            run_page("```console\n$ rpdp budgets check missing.csv\n```\n", capsys)

    def test_a_refusal(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(AssertionError, match="ends with 2"):
            run_page("```console refused\n$ rpdp budgets check missing.csv\n```\n", capsys)

    def test_what_goes_to_standard_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        page = "```python a.py\nimport sys\nprint('a')\nprint('b', file=sys.stderr)\n```\n"
        run_page(page + "```console all\n$ python a.py\nb\na\n```\n```console\n$ python a.py\na\n```\n", capsys)

    def test_output_that_differs(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(AssertionError, match="and the page says"):
            run_page("```console\n$ rpdp --version\nrpdp 99\n```\n", capsys)

    def test_another_program(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(AssertionError, match="mark the block not-run"):
            run_page("```console\n$ make run\n```\n", capsys)

    def test_what_is_not_run(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run_page("```console not-run\n$ make run\n```\n```console slow\n$ make\n```\n", capsys) == ""

    def test_files_are_saved(self, capsys: pytest.CaptureFixture[str]) -> None:
        page = '```python a.py\nprint("a")\n```\n```console\n$ python a.py  # says a\na\n```\n'
        assert run_page(page, capsys) == "a\n"

    def test_commands_and_what_they_print(self) -> None:
        assert list(commands("$ a\n$ b\n1\n2\n")) == [("a", ""), ("b", "1\n2\n")]

    @pytest.mark.parametrize(
        ("expected", "same"),
        [("a b", True), ("a\nb", True), ("…b", True), ("a …", True), ("a", False), ("b a", False), ("a … c", False)],
    )
    def test_matching(self, expected: str, same: bool) -> None:
        assert matches(expected, "a  b\n") is same

    def test_numbers_alike(self) -> None:
        assert matches("ε 0.91 ± 0.02 of 1,865", "ε 0.9034 ± 0.1 of 3", any_number=True)
        assert not matches("ε 0.91", "ε 0.92")
        assert not matches("ε 0.91", "q 0.91", any_number=True)
