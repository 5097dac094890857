"""Ledgers that commits between two releases wrote, in formats 2 and 3: see README.md beside the archives.

What each says is compared with what the code that wrote it read out of the same files (`expected.json`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rpdp.cli.run import run
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Ledger
from rpdp.ledger.format_upgrade import upgrade
from rpdp.ledger.store.schema import FORMAT, OLDER_FORMATS
from tests.compatibility.test_release_0_1 import assert_holds, unpacked
from tests.ledger import small

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.ledger.inspection.verification import Verification

LEDGERS = [(2, "sums"), (3, "renyi"), (3, "sums")]
EVERY = pytest.mark.parametrize(("file_format", "account"), LEDGERS)
Json = dict[str, Any]


@pytest.fixture
def home(tmp_path: Path, file_format: int) -> Path:
    return unpacked(tmp_path, Path(__file__).with_name(f"ledgers-of-format-{file_format}.tar.gz"))


@pytest.fixture
def path(home: Path, account: str) -> Path:
    return home / account / "ledger.db"


@pytest.fixture
def then(home: Path, account: str) -> Json:
    """What the code that wrote the ledger said of it."""
    found: Json = json.loads((home / "expected.json").read_text(encoding="utf-8"))[f"{account}/ledger.db"]
    return found


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], path: Path) -> Callable[..., Json]:
    def command(name: str, *more: str) -> Json:
        assert run(["ledger", name, str(path), *more, "--json"]) == 0
        found: Json = json.loads(capsys.readouterr().out)
        found.pop("file", None)
        return found

    return command


def read(path: Path) -> Verification:
    with Ledger.read(path) as ledger:
        return ledger.verify()


def test_every_older_format_has_an_archive() -> None:
    """Format 1 is that of release 0.1, which has an archive of its own."""
    assert {1, *(file_format for file_format, _ in LEDGERS)} == set(OLDER_FORMATS)


@EVERY
def test_it_says_what_it_said_before_and_after_the_upgrade(
    path: Path, then: Json, say: Callable[..., Json], file_format: int
) -> None:
    for upgraded in (False, True):
        if upgraded:
            assert say("upgrade") == {"before": file_format, "after": FORMAT}
        for name in ("verify", "show", "head", "holds"):
            expected = {key: value for key, value in then[name].items() if key != "file"}
            assert_holds(say(name), expected, name)
        assert then["verify"]["good"]
        for record, story in then["explain"].items():
            assert_holds(say("explain", record), story, record)


@EVERY
def test_a_run_goes_on_and_a_cancelled_one_does_not(path: Path, file_format: int) -> None:
    with pytest.raises(InputError, match=f"has format {file_format}"):
        Ledger.open(path)
    upgrade(path)
    with Ledger.open(path) as ledger:
        states = {one.run: (one.state, one.announced) for one in ledger.status().runs}
        assert states == {
            "winter": ("committed", 3),
            "called-off": ("cancelled", 0),
            "spring": ("committed", 2),
            "held": ("held", 0),
        }
        assert ledger.stored("spring", 1) == b"update of spring 1"
        assert ledger.charge("spring", 2, small.tails).joined  # as it was drawn then
        assert not ledger.charge("spring", 3, small.tails).joined
        assert ledger.charge("held", 1, small.heads).joined
        with pytest.raises(PrivacyRefusal, match="cancelled"):
            ledger.charge("called-off", 1, small.heads)
        assert ledger.pending() == []  # the last withdrawal was in the inbox only
        assert ledger.verify().findings == ()


@EVERY
def test_a_changed_word_is_still_found(path: Path) -> None:
    """The control of the verdicts above."""
    assert read(path).findings == ()
    content = path.read_bytes()
    assert content.count(b'"reason":"the study was stopped"') >= 1
    path.write_bytes(content.replace(b"the study was stopped", b"the study was halted!"))
    assert {one.check for one in read(path).findings} >= {"chain"}
