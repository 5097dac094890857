"""The runner itself: what counts as caught, and what does not, in a package of three lines."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mutants import runner
from tests.mutants.copies import Copy, Seen, WrongCopyError
from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.report import names_in, page
from tests.mutants.runner import ControlError, Outcome, attempt, control, judge, require_control
from tests.mutants.warm_copies import WarmCopy

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = "def noise():\n    return 1.0\n\n\ndef unseen():\n    return 2.0\n"
TESTS = """
import pytest
import rpdp


@pytest.mark.parametrize("times", [1, 2])
def test_noise(times):
    assert times * rpdp.noise() == times


def test_weak():
    assert rpdp.noise() > 0


@pytest.mark.skip
def test_skipped():
    assert rpdp.noise() == 1.0


def test_wrong():
    assert rpdp.noise() == 7.0
"""
NOISE, WEAK = "tests/test_it.py::test_noise", "tests/test_it.py::test_weak"
SMALLER = Mutant("smaller", "rule 1", "__init__.py", "return 1.0", "return 0.9", (NOISE,))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What looks like our repository to a copy."""
    root = tmp_path_factory.mktemp("project")
    (root / "src" / "rpdp").mkdir(parents=True)
    (root / "src" / "rpdp" / "__init__.py").write_text(SOURCE)
    shutil.copytree(ROOT / "tests" / "mutants", root / "tests" / "mutants")
    (root / "tests" / "__init__.py").touch()
    (root / "tests" / "test_it.py").write_text(TESTS)
    return root


@pytest.fixture(scope="module")
def copy(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmCopy]:
    with (
        Copy(tmp_path_factory.mktemp("copy"), project, loaded=()) as made,
        WarmCopy(made, ["tests/test_it.py"]) as warm,
    ):
        yield warm


def verdict(copy: WarmCopy, **changes: object) -> tuple[str, str, str]:
    outcome = attempt(copy, replace(SMALLER, **changes))  # type: ignore[arg-type]
    assert outcome.seconds > 0.0
    return outcome.verdict, outcome.test, outcome.error


def test_a_failed_test_catches(copy: WarmCopy) -> None:
    assert verdict(copy) == ("caught", f"{NOISE}[1]", "call: AssertionError")


def test_a_mutant_that_nobody_notices_survives(copy: WarmCopy) -> None:
    assert verdict(copy, tests=(WEAK,)) == ("survived", "", "")
    assert verdict(copy, find="return 2.0", replace="return 3.0")[0] == "survived"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import nothing_of_this_name", "collect: collection"),
        ("return nothing_of_this_name", "call: NameError"),
        ("return (1.0).nothing", "call: AttributeError"),
        ("return return", "collect: collection"),
    ],
)
def test_what_is_no_program_any_more_is_not_caught(copy: WarmCopy, text: str, error: str) -> None:
    """Anybody would notice; it says nothing about the tests."""
    find = "def noise():" if text.startswith("import") else "return 1.0"
    made = f"{text}\n\n\ndef noise():" if text.startswith("import") else text
    found = verdict(copy, find=find, replace=made)
    assert (found[0], found[2]) == ("broken", error)


def test_a_mutant_without_end_is_told(copy: WarmCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TIMEOUT", 3.0)
    assert verdict(copy, replace="while True:\n        pass") == ("timeout", "", "no end after 3 s")
    monkeypatch.undo()
    assert verdict(copy)[0] == "caught"  # the next one runs


def test_the_copy_is_as_it_was_afterwards(copy: WarmCopy, project: Path) -> None:
    path = SMALLER.path(copy.copy.root)
    before = path.stat().st_mtime_ns
    with copy.copy.mutated(SMALLER):
        assert "return 0.9" in path.read_text()
        assert path.stat().st_mtime_ns != before
    assert (path.read_text(), path.stat().st_mtime_ns) == (SOURCE, before)
    assert SMALLER.path(project).read_text() == SOURCE
    control(copy, [SMALLER])


@pytest.mark.parametrize(
    ("test", "words"),
    [("test_wrong", "fails 1 tests"), ("test_skipped", "1 named tests did not run"), ("test_absent", "did not run")],
)
def test_the_control_wants_every_named_test_to_pass(copy: WarmCopy, test: str, words: str) -> None:
    with pytest.raises((ControlError, WrongCopyError), match=f"{words}|not found"):
        control(copy, [replace(SMALLER, tests=(NOISE, f"tests/test_it.py::{test}"))])


def test_another_package_than_that_of_the_copy_is_noticed(project: Path, tmp_path: Path) -> None:
    """Without a source of its own the copy imports what is installed."""
    shutil.copytree(project / "tests", tmp_path / "source" / "tests")
    (tmp_path / "source" / "tests" / "test_it.py").write_text("import rpdp\n\n\ndef test_noise():\n    pass\n")
    (tmp_path / "copy").mkdir()
    (tmp_path / "other").mkdir()
    with (
        Copy(tmp_path / "copy", tmp_path / "source", loaded=()) as copy,
        pytest.raises(WrongCopyError, match="tests ran"),
    ):
        copy.run([NOISE], until_first_failure=True, timeout=60.0)
    with (
        Copy(tmp_path / "other", tmp_path / "source", loaded=()) as copy,
        pytest.raises(WrongCopyError, match="not against the copy"),
    ):
        WarmCopy(copy, [NOISE])


# What was seen


def seen(test: str, when: str = "call", outcome: str = "failed", error: str | None = "AssertionError") -> Seen:
    return Seen(test, when, outcome, error)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ([seen(NOISE)], "caught"),
        ([seen(f"{NOISE}[a]", error="Failed")], "caught"),
        ([seen(NOISE, when="setup")], "broken"),
        ([seen(NOISE, error="ImportError")], "broken"),
        ([seen("tests/test_it.py::test_noise_too")], "broken"),
        ([seen(NOISE, outcome="passed", error=None)], "survived"),
        ([], "survived"),
    ],
)
def test_judgement(what: list[Seen], expected: str) -> None:
    assert judge(SMALLER, what, 1.0).verdict == expected


def test_a_control_that_passes() -> None:
    require_control([seen(f"{NOISE}[1]", outcome="passed", error=None)], [NOISE])


def test_the_page_lists_every_outcome() -> None:
    outcomes = [
        Outcome(SMALLER, "caught", f"{NOISE}[1|2]", "call: AssertionError", 1.25),
        Outcome(replace(SMALLER, name="larger", caught_by="audit"), "caught", "tests/audit/test_a.py::test_b", "", 2.0),
        Outcome(replace(SMALLER, name="unseen"), "survived", "", "", 0.5),
    ]
    text = page(outcomes)
    assert names_in(text) == ["smaller", "larger", "unseen"]
    assert "**2 of 3 caught, in 4 s** (1 of them by the audit alone)" in text
    assert "| smaller | rule 1 | `__init__.py` | `test_it.py::test_noise` | 1.2 |" in text
    assert "| larger | rule 1 | `__init__.py` | audit: `audit/test_a.py::test_b` | 2.0 |" in text
    assert "| unseen | rule 1 | `__init__.py` | **survived** | 0.5 |" in text
    later = page([replace(outcomes[2], verdict="caught", test=NOISE)], text, ["unseen", "smaller"])
    assert names_in(later) == ["unseen", "smaller"]
    assert "**2 of 2 caught, in 2 s** (0 of them by the audit alone)" in later
