"""The tool that samples changes: what it changes, which tests it chooses, what it says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.mutants.copies import Copy, WrongCopyError
from tests.mutants.general import campaign, changes
from tests.mutants.general.campaign import Record, Result
from tests.mutants.general.changes import Change, files_in_scope, made, places_in, sample
from tests.mutants.general.equivalent import EQUIVALENT, REASONS
from tests.mutants.general.page import page, read_results, summary, unexplained, write_results
from tests.mutants.mutant import PACKAGE, ROOT

SOURCE = """\
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT = 3


def noise(times: int | None) -> float:
    values: list[int] = []
    values.append(1)
    if times is None:
        raise ValueError("none")
    return 1.0 * times


def unseen() -> float:
    return 2.0
"""
TESTS = """\
import pytest
import rpdp


def test_noise():
    assert rpdp.noise(2) == 2.0


def test_none():
    with pytest.raises(ValueError):
        rpdp.noise(None)
"""


def all_changes(source: str) -> list[Change]:
    ways = [way for place in places_in(source) for way in place.ways]
    return [change for way in ways if (change := made("__init__.py", source, *way)) is not None]


def test_annotations_and_what_only_type_checkers_read_are_not_changed() -> None:
    lines = {change.line for change in all_changes(SOURCE)}
    assert lines == {11, 12, 13, 14, 18}


def test_operators_numbers_conditions_and_statements_are_changed() -> None:
    after = {change.after for change in all_changes(SOURCE)}
    assert {"pass", "if times is not None:", "return 1.0 + times", "return 2.0 * times"} <= after
    assert {"values.append( 2)", "values.append(2)"} & after


def test_changes_of_lines_that_read_the_same_have_names_of_their_own() -> None:
    twice = "def refuse(a: int, b: int) -> None:\n" + 2 * "    if a == b:\n        raise ValueError(a)\n"
    names = [change.name for change in all_changes(twice)]
    assert len(names) == len(set(names))
    assert [name for name in names if "pass" in name] == [
        "__init__.py | remove-statement | raise ValueError(a) | pass",
        "__init__.py | remove-statement | raise ValueError(a) | pass (again, 1)",
    ]


def test_every_file_gets_its_share_and_a_seed_repeats_it() -> None:
    scope = ("accounting/schedule.py", "accounting/calibration.py")
    drawn = sample(12, 1, scope)
    assert [change.name for change in drawn] == [change.name for change in sample(12, 1, scope)]
    assert [change.name for change in drawn] != [change.name for change in sample(12, 2, scope)]
    assert {change.file for change in drawn} == set(files_in_scope(scope)) == set(scope)
    for change in drawn:
        original = change.path(ROOT).read_text(encoding="utf-8")
        assert change.applied(original) != original
        compile(change.text, change.file, "exec")


def test_the_scope_is_what_the_promise_rests_on() -> None:
    files = files_in_scope()
    assert "federation/silo.py" in files
    assert "federation/server.py" not in files
    assert {file.partition("/")[0] for file in files} == {
        "accounting",
        "planning",
        "ledger",
        "federation",
        "deployment",
    }


RECORD = Record(
    ["tests/ledger/a.py::slow", "tests/cli/b.py::fast", "tests/ledger/a.py::quick", "tests/ledger/a.py::beside"],
    [15.0, 0.1, 1.0, 8.0],
    {"ledger/x.py": {"3": [0, 1, 2], "4": []}},
)


@pytest.mark.parametrize(
    ("line", "tests", "left_out"),
    [
        (3, ["tests/ledger/a.py::quick", "tests/ledger/a.py::slow", "tests/cli/b.py::fast"], 1),
        (4, ["tests/ledger/a.py::quick", "tests/ledger/a.py::slow", "tests/cli/b.py::fast"], 1),  # runs on import
    ],
)
def test_tests_of_the_same_area_and_fast_ones_first(line: int, tests: list[str], left_out: int) -> None:
    found, absent = RECORD.tests_of(Change("ledger/x.py", line, "operator", "a", "b", ""))
    assert (sorted(found), absent) == (sorted(tests), left_out)
    assert RECORD.expected(found) == pytest.approx(16.1)


def test_parts_of_a_record_are_joined() -> None:
    other = Record(["tests/cli/c.py::one"], [2.0], {"ledger/x.py": {"3": [0], "5": [0]}})
    whole = campaign.merged([RECORD, other])
    assert (whole.tests, whole.seconds) == ([*RECORD.tests, *other.tests], [*RECORD.seconds, 2.0])
    assert whole.lines == {"ledger/x.py": {"3": [0, 1, 2, 4], "4": [], "5": [4]}}


def test_a_change_that_no_test_runs_is_uncovered() -> None:
    assert RECORD.tests_of(Change("ledger/y.py", 1, "operator", "a", "b", "")) == ([], 0)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What looks like our repository, with one small module."""
    root = tmp_path / "project"
    (root / "src" / "rpdp").mkdir(parents=True)
    (root / "src" / "rpdp" / "__init__.py").write_text(SOURCE)
    shutil.copytree(ROOT / "tests" / "mutants", root / "tests" / "mutants")
    (root / "tests" / "__init__.py").touch()
    (root / "tests" / "test_it.py").write_text(TESTS)
    monkeypatch.setattr(changes, "ROOT", root)
    monkeypatch.setattr(campaign, "Copy", lambda directory: Copy(directory, root, loaded=()))
    return root


def test_a_campaign_tells_the_noticed_from_the_unnoticed_and_goes_on_where_it_stopped(project: Path) -> None:
    every = all_changes(SOURCE)
    some = [
        next(one for one in every if one.after == after)
        for after in ("if times is not None:", "return 1.0 + times", "pass", "return 3.0")
    ]
    log = project / "log.jsonl"
    results = campaign.run(some[:2], log, tests=["tests/test_it.py"])
    assert [one.verdict for one in results] == ["killed", "killed"]
    assert results[1].test == "tests/test_it.py::test_noise"
    told: list[Result] = []
    results = campaign.run(some, log, tests=["tests/test_it.py"], on_result=told.append)
    assert [one.verdict for one in results] == ["killed", "killed", "survived", "survived"]
    assert [one.name for one in told] == [one.name for one in some[2:]]  # the first two were known
    assert unexplained(results) == results[2:]
    assert "4 changes: 2 killed, 0 timeout, 0 explained, 2 survived" in summary(results)
    assert "| `__init__.py` | 4 | 2 | 0 | 0 | 2 |" in page(results, 0, 4)
    assert "4 of the 5 sampled changes have a result: 0 from the first sample" in page(results, 0, 5)
    write_results(project / "results.csv", results)
    kept = read_results(project / "results.csv")
    assert {name: one.verdict for name, one in kept.items()} == {one.name: one.verdict for one in results}
    log.unlink()
    told.clear()
    campaign.run(some, log, tests=["tests/test_it.py"], before=kept, on_result=told.append)
    assert told == []
    assert len(campaign.run(all_changes(SOURCE), log, before=kept, minutes=0.0)) == 4  # no time for the others
    campaign.run(some, log, tests=["tests/test_it.py"], before=kept, again=True, on_result=told.append)
    assert [one.name for one in told] == [one.name for one in some[2:]]  # a test may have come since


def test_a_test_that_fails_anyway_notices_nothing(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(f"{TESTS}\n\ndef test_anyway():\n    assert False\n")
    names = [f"tests/test_it.py::test_{name}" for name in ("noise", "anyway")]
    assert campaign.failing_untouched(names, project / "log.jsonl", ["tests/test_it.py"]) == names[1:]


STRANGE = """

class Strange:
    @property
    def __class__(self):
        raise FutureWarning("deprecated")


STRANGE = Strange()
"""


def test_an_object_that_does_not_tell_its_class_is_no_reason_to_say_killed(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(f"{TESTS}{STRANGE}")  # such as torch.distributed.reduce_op
    some = [next(one for one in all_changes(SOURCE) if one.after == after) for after in ("pass", "return 1.0 + times")]
    results = campaign.run(some, project / "log.jsonl", tests=["tests/test_it.py"])
    assert [(one.verdict, one.test) for one in results] == [
        ("survived", ""),
        ("killed", "tests/test_it.py::test_noise"),
    ]


def test_a_failure_of_the_tool_is_no_verdict(project: Path) -> None:
    broken = "\ndef change_functions(path, before, after):\n    raise FutureWarning('deprecated')\n"
    with (project / "tests" / "mutants" / "live_change.py").open("a") as file:
        file.write(broken)
    with pytest.raises(WrongCopyError, match="could not be made: FutureWarning"):
        campaign.run(all_changes(SOURCE)[:1], project / "log.jsonl", tests=["tests/test_it.py"])


def test_a_process_that_ends_without_an_answer_is_tried_anew(project: Path) -> None:
    with (project / "tests" / "mutants" / "live_change.py").open("a") as file:
        file.write("\ndef change_functions(path, before, after):\n    import os\n    os._exit(1)\n")
    some = [next(one for one in all_changes(SOURCE) if one.after == after) for after in ("pass", "return 1.0 + times")]
    results = campaign.run(some, project / "log.jsonl", tests=["tests/test_it.py"])
    assert [one.verdict for one in results] == ["survived", "killed"]


def test_reasons_are_known_and_their_lines_still_there() -> None:
    for name, reason in EQUIVALENT.items():
        assert reason in REASONS, name
        file, _, lines = name.split(" | ", 2)  # a line may have the separator in it, too
        source = (ROOT / PACKAGE / file).read_text(encoding="utf-8").splitlines()
        assert any(lines.startswith(f"{line.strip()} | ") for line in source if line.strip()), name
