"""Files are found, checked once, and a missing or damaged one names itself, the places and the source."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from rpdp_lab.data.data_files import DATA_FILES, DataError, cache_directory, find_file
from rpdp_lab.data.mnist import load_mnist

from rpdp.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

SMALL = "heart_disease/processed.switzerland.data"


def copy(path: str, source: Path, target: Path) -> Path:
    copied = target / path
    copied.parent.mkdir(parents=True)
    shutil.copyfile(source / path, copied)
    return copied


def test_a_missing_file_names_itself_the_places_and_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPDP_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError) as raised:
        load_mnist()
    message = str(raised.value)
    assert "mnist/train-images-idx3-ubyte.gz not found" in message
    assert str(tmp_path / "nowhere") in message
    assert str(tmp_path / "cache" / "data") in message
    assert "https://ossci-datasets.s3.amazonaws.com/mnist/" in message
    assert isinstance(raised.value, InputError)
    assert raised.value.exit_code == 2


def test_without_the_variable_the_message_offers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RPDP_DATA", raising=False)
    with pytest.raises(DataError, match="or set RPDP_DATA"):
        find_file(SMALL)


def test_a_damaged_file_names_itself(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = copy(SMALL, real_data, tmp_path)
    monkeypatch.setenv("RPDP_DATA", str(tmp_path))
    assert find_file(SMALL) == copied
    content = bytearray(copied.read_bytes())
    content[100] ^= 1
    copied.write_bytes(content)
    with pytest.raises(DataError, match="is damaged: 4109 bytes with sha256") as raised:
        find_file(SMALL)
    assert str(copied) in str(raised.value)
    assert "archive.ics.uci.edu" in str(raised.value)


def test_a_truncated_file_is_damaged(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = copy(SMALL, real_data, tmp_path)
    copied.write_bytes(copied.read_bytes()[:-1])
    monkeypatch.setenv("RPDP_DATA", str(tmp_path))
    with pytest.raises(DataError, match="damaged: 4108 bytes"):
        find_file(SMALL)


def test_the_cache_directory_comes_second(
    real_data: Path, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RPDP_DATA", str(tmp_path / "nowhere"))
    assert find_file_after_copy(real_data, own_cache / "data").is_relative_to(own_cache)
    monkeypatch.setenv("RPDP_DATA", str(real_data))
    assert find_file(SMALL).is_relative_to(real_data)


def find_file_after_copy(source: Path, target: Path) -> Path:
    copy(SMALL, source, target)
    return find_file(SMALL)


def test_a_file_is_hashed_once(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_file(SMALL)
    monkeypatch.setattr("hashlib.file_digest", None)
    assert find_file(SMALL).is_relative_to(real_data)


def test_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_directory() == tmp_path / "cache"
    monkeypatch.delenv("RPDP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "rpdp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "rpdp"


def test_digests_are_those_of_the_data_readme(real_data: Path) -> None:
    readme = (real_data / "README.md").read_text(encoding="utf8")
    listed = {path for path in DATA_FILES if f"| {path} |" in readme}
    assert len(listed) == 17
    for path in listed:
        assert any(f"`{digest}`" in readme for digest in DATA_FILES[path].sha256), path
