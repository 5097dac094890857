"""One SQLite file, written so that what was committed survives a crash or a power cut.

Write-ahead log with `synchronous=EXTRA`, on SQLite ≥ 3.51.3 (older ones have the WAL-reset bug, which can corrupt a
file). A commit returns after the log is on the disk; readers never wait for the writer, nor it for them. All of this
is checked when a file is opened, never assumed.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.ledger.store.schema import APPLICATION_ID, DAMAGED, FORMAT, STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Schema = set[tuple[Any, Any, Any, Any]]

OLDEST_SQLITE = (3, 51, 3)
_MAGIC = b"SQLite format 3\x00"
_EXTRA = 3
_PATIENCE_MS = 5000
"""How long to wait while another process recovers the log; never for another writer, who is refused by the lock."""


class Database:
    """A ledger file, opened for writing or for reading.

    Args:
        path: The file; it must exist.
        writable: Whether this process is the writer.
        vfs: The name of another SQLite file layer, for fault injection in tests.
    """

    def __init__(self, path: Path, *, writable: bool, vfs: str | None = None) -> None:
        self.path = path
        self._broken = False
        _require_sqlite()
        _require_file(path)
        flags = apsw.SQLITE_OPEN_READWRITE if writable else apsw.SQLITE_OPEN_READONLY
        with self._explained():
            self._connection = _connect(path, flags, vfs)
        try:
            self._check(writable=writable, vfs=vfs)
        except RpdpError:
            self._connection.close()
            raise

    @classmethod
    def build(cls, path: Path) -> Database:
        """A new file with empty tables, fast and not durable: the caller syncs it and moves it into place."""
        _require_sqlite()
        database = cls.__new__(cls)
        database.path, database._broken = path, False
        with database._explained():
            database._connection = apsw.Connection(str(path))
            settings = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT}"
            for statement in (f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {settings}", *STATEMENTS):
                database.rows(statement)
        return database

    def finish_building(self) -> None:
        """Switch to the log and close."""
        with self._explained():
            self._connection.execute("PRAGMA journal_mode=WAL").fetchall()
            self._connection.close()

    def _check(self, *, writable: bool, vfs: str | None) -> None:
        with self._explained():
            if vfs is not None:
                self.rows("PRAGMA locking_mode=EXCLUSIVE")  # such layers share no memory between processes
            for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "fullfsync=ON"):
                self.rows(f"PRAGMA {pragma}")
            if self._value("application_id") != APPLICATION_ID:
                raise InputError(f"{self.path} is not a ledger of rpdp")
            if self._value("user_version") != FORMAT:
                raise InputError(f"{self.path} has format {self._value('user_version')}; this rpdp knows {FORMAT}")
            if writable:
                self._require_durable()

    def _require_durable(self) -> None:
        if self._value("journal_mode") != "wal":
            raise PrivacyRefusal(
                f"{self.path}: the journal mode is {self._value('journal_mode')}, not WAL: what is committed may not "
                "be safe. Another program has changed it; go back to a copy, or run `PRAGMA journal_mode=WAL`"
            )
        self.rows(f"PRAGMA synchronous={_EXTRA}")
        if self._value("synchronous") != _EXTRA:
            raise PrivacyRefusal(f"{self.path}: SQLite does not accept synchronous=EXTRA here")

    def _value(self, pragma: str) -> Any:
        return self.rows(f"PRAGMA {pragma}")[0][0]

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; all of its rows."""
        with self._explained():
            return self._connection.execute(statement, tuple(values)).fetchall()

    def each(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run a statement; its rows one by one, for rows that are large."""
        with self._explained():
            yield from self._connection.execute(statement, tuple(values))

    def schema(self) -> Schema:
        """All tables and indexes as they are defined in the file."""
        return _schema(self._connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. When the block is left without an exception, everything in it is on the disk."""
        if self._broken:
            raise PrivacyRefusal(f"{self.path}: an earlier write failed; close the ledger and open it again to go on")
        with self._explained():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._undo()
                raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One state of the file for all that is read in the block, whatever a writer does meanwhile."""
        if self._connection.in_transaction:
            yield
            return
        with self._explained():
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._undo()

    def _undo(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                self._broken = True

    def shorten_log(self) -> None:
        """Bring the log into the file and cut it to nothing. Not needed for anything: what is committed is safe."""
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):  # a reader needs the log; or it waits for space
            return
        except apsw.IOError:
            self._broken = True

    def shrink(self) -> None:
        """Give the space of removed rows back to the disk. Not needed for anything: it would be used again."""
        try:
            self._connection.execute("PRAGMA temp_store=MEMORY; VACUUM").fetchall()
        except (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.NoMemError):
            return
        except apsw.IOError:
            self._broken = True
            return
        self.shorten_log()

    def copy_to(self, path: Path) -> None:
        """A consistent copy, also while a run goes on."""
        with self._explained():
            target = apsw.Connection(str(path))
            with target.backup("main", self._connection, "main") as backup:
                while not backup.done:
                    backup.step(4096)
            target.close()

    def close(self) -> None:
        """Close the file; whatever was committed stays."""
        self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of SQLite as refusals that say what happened and how to go on."""
        try:
            yield
        except apsw.FullError:
            raise PrivacyRefusal(
                f"{self.path}: the disk is full. Nothing was changed and nothing released; free some space and ask "
                "again"
            ) from None
        except apsw.IOError as error:
            self._broken = True
            raise PrivacyRefusal(
                f"{self.path}: the disk reports an error ({error}). Nothing was released; check the disk, then open "
                "the ledger again: what was committed is found there"
            ) from None
        except (apsw.CorruptError, apsw.NotADBError, apsw.MismatchError, UnicodeDecodeError) as error:
            raise PrivacyRefusal(f"{self.path} is damaged ({error}); {DAMAGED}") from None
        except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError) as error:
            raise InputError(
                f"{self.path} cannot be opened or written ({error}); check that this user may write the file and its "
                "directory"
            ) from None
        except (apsw.BusyError, apsw.LockedError) as error:
            raise PrivacyRefusal(
                f"{self.path}: another program keeps the file busy ({error}); nothing was changed. Ask again when it "
                "is done"
            ) from None
        except apsw.Error as error:
            raise PrivacyRefusal(f"{self.path}: {type(error).__name__}: {error}; {DAMAGED}") from None


def expected_schema() -> Schema:
    """What `schema` returns for a ledger as this version makes it."""
    connection = apsw.Connection(":memory:")
    for statement in STATEMENTS:
        connection.execute(statement)
    return _schema(connection)


def _schema(connection: apsw.Connection) -> Schema:
    columns = ", ".join(f"CAST({name} AS BLOB)" for name in ("type", "name", "tbl_name", "sql"))
    rows = connection.execute(f"SELECT {columns} FROM sqlite_schema").fetchall()  # noqa: S608
    return {(kind, name, table, text) for kind, name, table, text in rows}


def _connect(path: Path, flags: int, vfs: str | None) -> apsw.Connection:
    name = str(path)
    if flags == apsw.SQLITE_OPEN_READONLY and not os.access(path.parent, os.W_OK):
        # Readers leave traces beside the file (who reads which state); where that is not possible nobody writes either.
        name, flags = f"{path.absolute().as_uri()}?immutable=1", flags | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(name, flags=flags, vfs=vfs)
    connection.set_busy_timeout(_PATIENCE_MS)
    return connection


def _require_sqlite() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < OLDEST_SQLITE:
        raise PrivacyRefusal(
            f"SQLite {apsw.sqlite_lib_version()} is too old for a ledger (3.51.3 mends a bug that corrupts files): "
            "install rpdp[ledger] with a current apsw"
        )


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"there is no ledger {path}; make one with `rpdp ledger create`")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise InputError(f"{path} is not a ledger, or its beginning is damaged")
