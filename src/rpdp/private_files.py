"""Reading and writing files that others must not see: budgets, plans of a silo, keys, ledgers and reports from them.

Everything in rpdp that holds budgets creates its files here.

| | what holds |
|---|---|
| `private_file` | only its owner may read it; complete or absent; never through a link; nothing of others is replaced |
| `write_durably` | the same, and on disk when it returns |
| `read_regular` | never waits: a pipe, a device, a directory or a link is refused |
| `read_owned` | the same, and nobody but the owner of another file, or root, can have written it |
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rpdp.errors import InputError, PrivacyRefusal

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER_ONLY = 0o600


@contextmanager
def private_file(path: str | Path, *, overwrite: bool, mode: int = OWNER_ONLY) -> Iterator[IO[bytes]]:
    """Write a file that only its owner may read. It has its name once everything is written, or not at all.

    Args:
        path: The file. A link of that name is refused, wherever it points.
        overwrite: Whether a regular file of one's own may be replaced. Otherwise nothing may have that name.
        mode: Other permissions, for a page that holds nothing private.
    """
    path = Path(path)
    try:
        _require_free(path, overwrite=overwrite)
        partial = _partial(path)
        try:
            with _new_file(partial, mode) as file:
                yield file
            if overwrite:
                partial.replace(path)
            else:
                os.link(partial, path)  # unlike a rename, never over something that appeared meanwhile
        finally:
            partial.unlink(missing_ok=True)
    except FileExistsError:
        raise InputError(f"{path} exists and is not overwritten; choose another name") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}; choose another place") from None


def _require_free(path: Path, *, overwrite: bool) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not overwrite:
        raise FileExistsError
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is not a regular file, and what is written here must stay here; choose another name")
    if status.st_uid != os.geteuid():
        raise InputError(f"{path} belongs to another user and is not overwritten; choose another name")


def write_durably(path: Path, content: bytes, mode: int, *, owner: os.stat_result | None = None) -> None:
    """Write a file that is complete or absent, and on disk when this returns.

    `owner` is the status of a file whose owner shall own this one too, if root writes it.
    """
    partial = _partial(path)
    try:
        with _new_file(partial, mode) as writer:
            if owner is not None:
                hand_over(writer.fileno(), owner)
            writer.write(content)
            writer.flush()
            os.fsync(writer.fileno())
        partial.replace(path)
        sync_directory(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def hand_over(file: int, owner: os.stat_result) -> None:
    """Give a file that root has created to the owner of another file. Everybody else owns what they create."""
    status = os.fstat(file)
    if os.geteuid() == 0 and (status.st_uid, status.st_gid) != (owner.st_uid, owner.st_gid):
        os.fchown(file, owner.st_uid, owner.st_gid)


def read_regular(path: Path, most: int | None = None) -> bytes:
    """Read a regular file, up to `most` bytes. Anything else is refused with an `OSError`, without waiting for it."""
    with _regular(path) as reader:
        return reader.read(-1 if most is None else most)


def read_owned(path: Path, like: Path) -> bytes:
    """Read a regular file that belongs to the owner of another one, or to root, and that nobody else can write."""
    with _regular(path) as reader:
        status, owner = os.fstat(reader.fileno()), like.stat().st_uid
        if status.st_uid not in (owner, 0):
            raise PrivacyRefusal(
                f"{path} belongs to user {status.st_uid}, and {like} to user {owner}; run `chown --reference={like} "
                f"{path}` if what it says is right"
            )
        if status.st_mode & 0o022:
            raise PrivacyRefusal(f"{path}: others can write it, so it is not the silo's own; run `chmod go-w {path}`")
        return reader.read()


@contextmanager
def _regular(path: Path) -> Iterator[IO[bytes]]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with os.fdopen(file, "rb", closefd=False) as reader:
            yield reader
    finally:
        os.close(file)


def sync_directory(path: Path) -> None:
    """Sync a directory: its new names are on disk when this returns."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def _new_file(path: Path, mode: int) -> IO[bytes]:
    """Open a file that did not exist. The mode holds from the start, so that nobody can open it in between."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(path, "wb", opener=lambda name, _: os.open(name, flags, mode))
