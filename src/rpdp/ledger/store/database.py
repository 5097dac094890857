"""One SQLite file, written so that every committed change survives a crash or a power cut.

It uses a write-ahead log with `synchronous=EXTRA` on SQLite ≥ 3.51.3; earlier versions have the WAL-reset bug, which
can corrupt a file. A commit returns after the log is on disk. Readers never wait for the writer, nor the writer for
them. All of this is checked when a file is opened, never assumed.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from rpdp.errors import InputError, PrivacyRefusal, Reason, RpdpError
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.schema import APPLICATION_ID, DAMAGED, FORMAT, LATER_TABLES, OLDER_FORMATS, statements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Schema = set[tuple[Any, Any, Any, Any]]

OLDEST_SQLITE = (3, 51, 3)
_EXTRA = 3
_PATIENCE_MS = 5000
"""How long to wait while another process recovers the log. A second writer does not wait: the lock refuses it."""


class Database:
    """A ledger file that is open for writing or reading.

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
            # Until the ledger is accepted: closing a refused one must not move the log into the file.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            self._check(writable=writable, vfs=vfs)
        except RpdpError:
            self._connection.close()
            raise

    @classmethod
    def build(cls, path: Path) -> Database:
        """Create a file with empty tables, fast but not durable. The caller syncs it and moves it into place."""
        _require_sqlite()
        database = cls.__new__(cls)
        database.path, database._broken = path, False
        with database._explained():
            database._connection = apsw.Connection(str(path))
            settings = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT}"
            for statement in (f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {settings}", *statements()):
                database.rows(statement)
        return database

    def finish_building(self) -> None:
        """Switch to the write-ahead log and close."""
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
            if self._value("user_version") not in (FORMAT, *OLDER_FORMATS):
                raise InputError(
                    f"{self.path} has format {self._value('user_version')}, but this version of rpdp reads formats up "
                    f"to {FORMAT}; use the version of rpdp that wrote it"
                )
            if writable:
                self._require_durable()

    @property
    def format(self) -> int:
        """The format of the file."""
        return int(self._value("user_version"))

    def has(self, table: str) -> bool:
        """Whether the file has a table, which came with some format."""
        return all(since <= self.format for since, tables in LATER_TABLES.items() if table in tables)

    def upgrade(self) -> None:
        """Make a file of an older format one of today's, so that versions which know only that one refuse it.

        No row is touched. The caller opens the transaction: an interruption leaves the file as it was.
        """
        for statement in statements(after=self.format):
            self.rows(statement)
        crash_points.reached("upgrade: tables made")
        self.rows(f"PRAGMA user_version={FORMAT}")
        crash_points.reached("upgrade: written")

    def _require_durable(self) -> None:
        if self._value("journal_mode") != "wal":
            raise PrivacyRefusal(
                f"{self.path}: the journal mode is {self._value('journal_mode')}, not WAL, so committed changes may be "
                "lost. Another program changed it; go back to a copy, or run `PRAGMA journal_mode=WAL`"
            )
        self.rows(f"PRAGMA synchronous={_EXTRA}")
        if self._value("synchronous") != _EXTRA:
            raise PrivacyRefusal(f"{self.path}: SQLite does not accept synchronous=EXTRA here")

    def _value(self, pragma: str) -> Any:
        return self.rows(f"PRAGMA {pragma}")[0][0]

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return all of its rows."""
        with self._explained():
            return self._connection.execute(statement, tuple(values)).fetchall()

    def each(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run a statement and yield its rows one by one, for large rows."""
        with self._explained():
            yield from self._connection.execute(statement, tuple(values))

    def schema(self) -> Schema:
        """Return all tables and indexes as defined in the file."""
        return _schema(self._connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one transaction. If it ends without an exception, everything in it is on disk."""
        if self._broken:
            raise PrivacyRefusal(
                f"{self.path}: an earlier write failed; close the ledger and open it again to go on", Reason.STORAGE
            )
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
        """Read one consistent state of the file inside the block, whatever a writer does meanwhile."""
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

    def accept(self) -> None:
        """Let closing the file move the log into it, once the two are known to belong together."""
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)

    def shorten_log(self) -> None:
        """Move the log into the file and truncate it. This is optional: committed changes are safe in the log."""
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):  # a reader needs the log, or the disk is full
            return
        except apsw.IOError:
            self._broken = True

    def shrink(self) -> None:
        """Return the space of removed rows to the disk. This is optional: SQLite would reuse the space."""
        try:
            self._connection.execute("PRAGMA temp_store=MEMORY; VACUUM").fetchall()
        except (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.NoMemError):
            return
        except apsw.IOError:
            self._broken = True
            return
        self.shorten_log()

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy, even while a run is in progress."""
        with self._explained():
            target = apsw.Connection(str(path))
            with target.backup("main", self._connection, "main") as backup:
                while not backup.done:
                    backup.step(4096)
            target.close()

    def close(self) -> None:
        """Close the file; committed changes stay."""
        self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite into refusals that say what happened and how to continue."""
        try:
            yield
        except apsw.FullError:
            raise PrivacyRefusal(
                f"{self.path}: the disk is full. Nothing was changed and nothing was released; free some space and try "
                "again",
                Reason.STORAGE,
            ) from None
        except apsw.IOError as error:
            self._broken = True
            raise PrivacyRefusal(
                f"{self.path}: the disk reported an error ({error}). Nothing was released; check the disk, then open "
                "the ledger again: it holds everything that was committed",
                Reason.STORAGE,
            ) from None
        except apsw.NotADBError:
            raise InputError(f"{self.path} is not a ledger, or its header is damaged") from None
        except (apsw.CorruptError, apsw.MismatchError, UnicodeDecodeError) as error:
            raise PrivacyRefusal(f"{self.path} is damaged ({error}); {DAMAGED}") from None
        except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError) as error:
            raise InputError(
                f"{self.path} cannot be opened or written ({error}); check that this user may write the file and its "
                "directory"
            ) from None
        except (apsw.BusyError, apsw.LockedError) as error:
            raise PrivacyRefusal(
                f"{self.path}: another program keeps the file busy ({error}); nothing was changed. Try again when it "
                "has finished"
            ) from None
        except apsw.Error as error:
            raise PrivacyRefusal(f"{self.path}: {type(error).__name__}: {error}; {DAMAGED}") from None


def expected_schema(file_format: int = FORMAT) -> Schema:
    """Return what `schema` returns for an intact ledger of a format."""
    connection = apsw.Connection(":memory:")
    for statement in statements(file_format):
        connection.execute(statement)
    return _schema(connection)


def _schema(connection: apsw.Connection) -> Schema:
    columns = ", ".join(f"CAST({name} AS BLOB)" for name in ("type", "name", "tbl_name", "sql"))
    rows = connection.execute(f"SELECT {columns} FROM sqlite_schema").fetchall()  # noqa: S608
    return {(kind, name, table, text) for kind, name, table, text in rows}


def _connect(path: Path, flags: int, vfs: str | None) -> apsw.Connection:
    name = str(path)
    if flags == apsw.SQLITE_OPEN_READONLY and not os.access(path.parent, os.W_OK):
        # Readers register in a file beside the ledger. If the directory is read-only they cannot, but nobody can write
        # the ledger there either, so it may be opened as immutable.
        name, flags = f"{path.absolute().as_uri()}?immutable=1", flags | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(name, flags=flags, vfs=vfs)
    connection.set_busy_timeout(_PATIENCE_MS)
    return connection


def _require_sqlite() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < OLDEST_SQLITE:
        raise PrivacyRefusal(
            f"SQLite {apsw.sqlite_lib_version()} is too old for a ledger (3.51.3 fixes a bug that corrupts files); "
            "install rpdp[ledger] with a current apsw"
        )


def _require_file(path: Path) -> None:
    """Refuse what is no file. SQLite reads the header: to close a descriptor of our own would drop its locks."""
    if not path.is_file():
        raise InputError(f"there is no ledger {path}; create one with `rpdp ledger create`")
