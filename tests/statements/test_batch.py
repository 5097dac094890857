"""Statements for many people: private files under names that tell nobody whose they are, sealed if wished."""

from __future__ import annotations

import base64
import json
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from rpdp import BudgetTable
from rpdp.cli.run import run
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.statements import statement_of
from rpdp.statements.batch import read_passphrase, read_recipients
from rpdp.statements.sealed_page import sealed_page
from rpdp.statements.statement_words import load_words
from tests.ledger import small

if TYPE_CHECKING:
    from rpdp.ledger import Ledger

PASSPHRASE = "correct horse battery"  # noqa: S105  # of pages in this test


@pytest.fixture
def ledger(memory: Path) -> Ledger:
    return small.make(memory, BudgetTable(["a1", "a2", "b1"], np.array([2.0, 2.0, 1.0]), subjects=["a", "a", "b"]))


def private(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def unsealed(page: str, passphrase: str) -> str:
    """What the browser does, with the library that sealed it."""
    data = dict(re.findall(r'data-(\w+)="([^"]*)"', page))
    salt, nonce, sealed = (base64.b64decode(data[name]) for name in ("salt", "nonce", "sealed"))
    key = Scrypt(salt, 32, n=int(data["cost"]), r=int(data["block"]), p=1).derive(passphrase.encode())
    return AESGCM(key).decrypt(nonce, sealed, data["format"].encode()).decode()


def test_a_page_for_everybody_on_a_list(
    ledger: Ledger, memory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(memory)
    people = private(memory / "people.csv", f"person,passphrase\na,{PASSPHRASE}\nb1,Zwölf Boxkämpfer\n")
    command = ["ledger", "statement", str(ledger.ledger_file), "--people", str(people), "--into", "out", "--json"]
    assert run(command) == 0
    written = json.loads(capsys.readouterr().out)["statements"]
    assert set(written) == {"a", "b1"}
    out = memory / "out"
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert {path.name for path in out.iterdir()} == set(written.values())
    for person, passphrase in (("a", PASSPHRASE), ("b1", "Zwölf Boxkämpfer")):
        file = out / written[person]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.name == f"statement-{statement_of(ledger, person).name}.html"
        page = file.read_text(encoding="utf-8")
        assert statement_of(ledger, person).digest in unsealed(page, passphrase)
        assert statement_of(ledger, person).digest not in page
        with pytest.raises(InvalidTag):
            unsealed(page, passphrase + " ")
    assert run(command) == 2  # nothing is overwritten without --force
    assert run([*command, "--force"]) == 0


def test_names_do_not_come_from_ids(ledger: Ledger) -> None:
    assert re.fullmatch("[0-9a-f]{32}", statement_of(ledger, "a").name)
    assert statement_of(ledger, "a").name not in {one.hash for one in statement_of(ledger, "a").accounts}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the first line must be"),
        ("name\na\n", "the first line must be"),
        ("person\n", "names nobody"),
        ("person\na\na\n", "line 3: person 'a' is there twice"),
        ("person,passphrase\na\n", "line 2: needs person and passphrase"),
    ],
)
def test_lists_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_recipients(private(tmp_path / "people.csv", text))


def test_passphrases_are_kept_from_others(tmp_path: Path) -> None:
    people = private(tmp_path / "people.csv", "person,passphrase\na,correct horse\n")
    people.chmod(0o644)
    with pytest.raises(PrivacyRefusal, match="chmod 600"):
        read_recipients(people)
    with pytest.raises(PrivacyRefusal, match="chmod 600"):
        read_passphrase(people)
    with pytest.raises(InputError, match="no passphrase"):
        read_passphrase(private(tmp_path / "empty", ""))
    with pytest.raises(InputError, match="12 or more"):
        sealed_page("page", "too short", load_words())


def test_nothing_is_written_for_a_list_with_an_unknown_person(ledger: Ledger, memory: Path) -> None:
    people = private(memory / "people.csv", "person\na\nnobody\n")
    file, out = str(ledger.ledger_file), memory / "out"
    assert run(["ledger", "statement", file, "--people", str(people), "--into", str(out)]) == 2
    assert not out.exists()
    out.mkdir(mode=0o755)
    private(people, "person\na\n")
    assert run(["ledger", "statement", file, "--people", str(people), "--into", str(out)]) == 3
    assert list(out.iterdir()) == []


def test_options_that_contradict_each_other(ledger: Ledger, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(memory)
    people, word = private(memory / "people.csv", "person\na\n"), private(memory / "word", PASSPHRASE)
    file = str(ledger.ledger_file)
    for options in (
        [],
        ["a", "--people", str(people), "--into", "out"],
        ["--people", str(people)],
        ["--people", str(people), "--into", "out", "--output", "x.html"],
        ["a", "--format", "doc"],
        ["a", "--format", "pdf", "--passphrase-file", str(word)],
        ["a", "--as", "person"],
    ):
        assert run(["ledger", "statement", file, *options]) == 2, options
    assert sorted(path.suffix for path in memory.glob("*tml")) == []
    assert run(["ledger", "statement", file, "a", "--passphrase-file", str(word), "--output", "x.html"]) == 0
    assert statement_of(ledger, "a").digest in unsealed(Path("x.html").read_text(encoding="utf-8"), PASSPHRASE)
