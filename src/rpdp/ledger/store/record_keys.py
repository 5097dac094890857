"""Record ids as keyed hashes: the ledger knows every record again, and nobody can read an id out of it.

The key (32 random bytes) lies beside the ledger in a file of its own with mode 0600, not inside: so a copy of the
ledger can be given to an auditor, who can check every number and cannot test whether a certain person is in it. Who
loses the key cannot find a record any more: back it up like the ledger, at another place.
"""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.progress_callback import silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rpdp.ledger.progress_callback import Progress

KEY_BYTES = 32
HASH_BYTES = 16
_AT_ONCE = 65_536


class RecordKey:
    """The key of a ledger's record hashes (BLAKE2b, 128 bits)."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise InputError(f"a ledger key has {KEY_BYTES} bytes, not {len(secret)}")
        self._secret = secret

    @classmethod
    def find_or_make(cls, path: Path) -> RecordKey:
        """The key in this file; a new one, on the disk before this returns, if there is no file."""
        if path.exists():
            return cls.read(path)
        secret = secrets.token_bytes(KEY_BYTES)
        write_durably(path, secret.hex().encode() + b"\n", mode=0o600)
        return cls(secret)

    @classmethod
    def read(cls, path: Path) -> RecordKey:
        """The key in this file; refused if others may read it."""
        try:
            text = path.read_text("ascii").strip()
            others = path.stat().st_mode & 0o077
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}: the key of the ledger cannot be read ({error}); records are found by it"
            ) from None
        if others:
            raise PrivacyRefusal(
                f"{path} can be read by others; with it they could test who is in the ledger: chmod 600"
            )
        try:
            return cls(bytes.fromhex(text))
        except ValueError:
            raise InputError(f"{path} is not the key of a ledger") from None

    @property
    def check(self) -> str:
        """A value by which a ledger knows its key again; it reveals nothing about it."""
        return blake2b(b"the key of this ledger", key=self._secret, digest_size=HASH_BYTES, person=b"check").hexdigest()

    def record(self, record: str) -> NDArray[np.uint64]:
        """The hash of one record id, as two words."""
        hashes = self.records(pa.chunked_array([pa.array([record], pa.string())]))
        return hashes.reshape(2)

    def records(self, ids: pa.ChunkedArray, progress: Progress = silent) -> NDArray[np.uint64]:
        """The hashes of record ids: one row of two words for each, in their order."""
        return self._hashes(ids, b"record", progress)

    def subjects(self, ids: pa.ChunkedArray) -> NDArray[np.uint64]:
        """The hashes of subjects, which have nothing in common with those of records of the same name."""
        return self._hashes(ids, b"subject", silent)

    def _hashes(self, ids: pa.ChunkedArray, purpose: bytes, progress: Progress) -> NDArray[np.uint64]:
        hashes = np.empty((len(ids), 2), dtype=np.uint64)
        for start in range(0, len(ids), _AT_ONCE):
            part = ids.slice(start, _AT_ONCE).cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
            joined = b"".join(self._each(part, purpose))
            hashes[start : start + len(part)] = np.frombuffer(joined, ">u8").reshape(-1, 2)
            progress("hashing ids", start + len(part), len(ids))
        return hashes

    def _each(self, texts: list[bytes], purpose: bytes) -> Iterator[bytes]:
        """Copies of a hash that has the key in it already: a third faster for millions of short texts."""
        begun = blake2b(key=self._secret, digest_size=HASH_BYTES, person=purpose).copy
        for text in texts:
            one = begun()
            one.update(text)
            yield one.digest()


def as_bytes(hashes: NDArray[np.uint64]) -> bytes:
    """Hashes as they are stored: big-endian, so that bytes sort as the words do."""
    return hashes.astype(">u8").tobytes()


def from_bytes(blob: bytes) -> NDArray[np.uint64]:
    """Stored hashes as rows of two words."""
    return np.frombuffer(blob, ">u8").astype(np.uint64).reshape(-1, 2)


def write_durably(path: Path, content: bytes, mode: int) -> None:
    """A file that is whole or not there, and on the disk when this returns."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        partial.replace(path)
        sync_directory(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """New names in a directory are on the disk when this returns."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
