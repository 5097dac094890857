"""Under `python -O`, which drops every assert of the product: nothing that the ledger does may hang on one.

pytest turns the asserts of test modules into ordinary statements before it compiles them, so they hold under `-O` too;
the control shows it. `make test-optimised` runs all tests of the ledger this way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHOSEN = (
    "test_privacy_rules.py",
    "test_ledger.py::TestLedger",
    "test_ledger.py::test_everything_is_there_when_it_is_opened_again",
    "test_heads.py::test_every_public_event_changes_the_head",
    "test_heads.py::test_a_rolled_back_file_is_refused",
    "test_two_writers.py::test_after_a_failed_reservation_nothing_cached_is_used",
    "test_steward.py::test_a_withdrawal_beside_a_run_holds_at_once_and_is_booked_with_the_next_round",
    "test_verification.py::test_a_run_booked_below_its_price_is_found",
)


def optimised(*arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestConfigWarning"]
    command = [sys.executable, "-O", "-m", "pytest", *quiet, *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_the_ledger_keeps_its_books_without_asserts() -> None:
    done = optimised(*(f"tests/ledger/{name}" for name in CHOSEN))
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 30


def test_a_test_that_is_wrong_fails_without_asserts_too(tmp_path: Path) -> None:
    """The control: `assert` in a test module means something under `-O`, and in other modules nothing."""
    (tmp_path / "test_wrong.py").write_text("def test_wrong() -> None:\n    assert __debug__\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = optimised("-c", str(tmp_path / "pytest.ini"), str(tmp_path / "test_wrong.py"))
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout
