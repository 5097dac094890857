"""The catalogue does not rot: every mutant still applies, names tests that exist, and every rule has some."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.mutants.__main__ import chosen, main
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import ROOT, Mutant, StaleMutantError
from tests.mutants.report import names_in

SUITES = ("tests/ledger/account_suite.py", "tests/ledger/hold_suite.py")
"""Where the tests are that several test classes inherit."""

RULES = [*(f"rule {number}" for number in range(1, 18)), *(f"section {number}" for number in (1, 2, 3, 4, 6, 7, 8, 9))]


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_is_a_program(mutant: Mutant) -> None:
    original = mutant.path(ROOT).read_text(encoding="utf-8")
    mutated = mutant.applied(original)
    assert mutated != original
    compile(mutated, mutant.file, "exec")


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_the_tests_of_a_mutant_are_there(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        texts = [(ROOT / place).read_text(encoding="utf-8") for place in (file, *SUITES)]
        assert any(re.search(rf"^\s*def {name.split('::')[-1]}\(", text, re.MULTILINE) for text in texts)
        assert (mutant.caught_by == "audit") == file.startswith("tests/audit/")


def test_names_are_unique_words_with_hyphens() -> None:
    names = Counter(mutant.name for mutant in CATALOGUE)
    assert max(names.values()) == 1
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
    assert len({(mutant.file, mutant.find, mutant.replace) for mutant in CATALOGUE}) == len(CATALOGUE) >= 60


def test_every_rule_has_at_least_two() -> None:
    found = Counter(mutant.rule for mutant in CATALOGUE)
    assert set(found) == set(RULES)
    assert min(found.values()) >= 2


def test_the_table_in_the_docs_is_that_of_this_catalogue() -> None:
    """Else `make mutants` was not run since it was changed."""
    text = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    assert names_in(text) == [mutant.name for mutant in CATALOGUE]
    assert f"**{len(CATALOGUE)} of {len(CATALOGUE)} caught" in text


def test_a_text_that_is_not_there_once_is_refused() -> None:
    mutant = Mutant("m", "rule 1", "a.py", "x = 1", "x = 2", ())
    assert mutant.applied("x = 1\n") == "x = 2\n"
    for text, times in (("y = 1\n", 0), ("x = 1\nx = 1\n", 2)):
        with pytest.raises(StaleMutantError, match=f"occurs {times} times in a.py"):
            mutant.applied(text)


def test_samples_repeat_by_seed() -> None:
    assert chosen([], 10, 3) == chosen([], 10, 3) != chosen([], 10, 4)
    assert len({mutant.name for mutant in chosen([], 10, 3)}) == 10
    assert chosen(["cap-not-enforced"], None, 0)[0].name == "cap-not-enforced"


@pytest.mark.parametrize(
    "arguments", [["--only", "nothing"], ["--sample", "0"], ["--only", "cap-not-enforced", "--docs", "x.md"]]
)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "error:" in capsys.readouterr().err
