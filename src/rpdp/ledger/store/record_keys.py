"""Record ids as keyed hashes: the ledger recognises every record, and nobody can read an id from it.

The key (32 random bytes) is not in the ledger but in a file beside it, with mode 0600. An auditor with a copy of the
ledger can check every number, but cannot test whether a certain person is in it. Without the key no record can be found
any more: back it up as you do the ledger, in another place.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.progress_callback import silent
from rpdp.private_files import write_durably

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
            raise InputError(f"a ledger key must have {KEY_BYTES} bytes, not {len(secret)}")
        self._secret = secret

    @classmethod
    def find_or_make(cls, path: Path, wanted: RecordKey | None = None) -> RecordKey:
        """Read the key in this file. If there is no file, write a key that is on disk before this returns.

        That is `wanted`, or a new one. A file that holds another key than `wanted` is refused.
        """
        if path.exists():
            found = cls.read(path)
            if wanted is not None and found.check != wanted.check:
                raise InputError(f"{path} is the key of another ledger, which keeps its records; choose another name")
            return found
        secret = secrets.token_bytes(KEY_BYTES) if wanted is None else wanted._secret
        write_durably(path, secret.hex().encode() + b"\n", mode=0o600)
        return cls(secret)

    @classmethod
    def read(cls, path: Path) -> RecordKey:
        """Read the key in this file; refused if other users may read it."""
        try:
            text = path.read_text("ascii").strip()
            others = path.stat().st_mode & 0o077
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}: the key of the ledger cannot be read ({error}), and records cannot be found without it; "
                "restore it from its backup"
            ) from None
        if others:
            raise PrivacyRefusal(
                f"{path} can be read by others, who could use it to test who is in the ledger; run chmod 600 on it"
            )
        try:
            return cls(bytes.fromhex(text))
        except ValueError:
            raise InputError(f"{path} is not the key of a ledger") from None

    @property
    def check(self) -> str:
        """A value by which a ledger recognises its key; it reveals nothing about the key."""
        return blake2b(b"the key of this ledger", key=self._secret, digest_size=HASH_BYTES, person=b"check").hexdigest()

    def record(self, record: str) -> NDArray[np.uint64]:
        """Return the hash of one record id as two words."""
        hashes = self.records(pa.chunked_array([pa.array([record], pa.string())]))
        return hashes.reshape(2)

    def records(self, ids: pa.ChunkedArray, progress: Progress = silent) -> NDArray[np.uint64]:
        """Return the hashes of record ids in order, each as a row of two words."""
        return self._hashes(ids, b"record", progress)

    def subject(self, subject: str) -> NDArray[np.uint64]:
        """Return the hash of one subject as two words."""
        return self.subjects(pa.chunked_array([pa.array([subject], pa.string())])).reshape(2)

    def subjects(self, ids: pa.ChunkedArray) -> NDArray[np.uint64]:
        """Return the hashes of subjects. They are unrelated to the hashes of records with the same name."""
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
        """Copy a hash object that already holds the key: a third faster for millions of short texts."""
        begun = blake2b(key=self._secret, digest_size=HASH_BYTES, person=purpose).copy
        for text in texts:
            one = begun()
            one.update(text)
            yield one.digest()


def as_bytes(hashes: NDArray[np.uint64]) -> bytes:
    """Return hashes as they are stored: big-endian, so that bytes sort like the words."""
    return hashes.astype(">u8").tobytes()


def from_bytes(blob: bytes) -> NDArray[np.uint64]:
    """Return stored hashes as rows of two words."""
    return np.frombuffer(blob, ">u8").astype(np.uint64).reshape(-1, 2)
