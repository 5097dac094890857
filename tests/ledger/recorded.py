"""A file layer for SQLite that records every write and sync, and makes the images that a power cut could leave.

Model of a disk: what was written before a sync of its file survives; of what was written after the last sync, any part
may survive, in any order, whole or torn at sectors of 512 bytes. A name that was deleted may be back, unless its
directory was synced. Between two syncs nothing else is promised, and nothing else is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

if TYPE_CHECKING:
    import random

SECTOR = 512


@dataclass(frozen=True)
class Operation:
    """Something that was done to a file: write, cut, sync or delete; `mark` is a note of the test."""

    kind: str
    file: str
    offset: int = 0
    data: bytes = b""
    mark: Any = None


@dataclass
class Recording:
    """All operations in their order, after the files as they were at the beginning."""

    start: dict[str, bytes]
    operations: list[Operation] = field(default_factory=list)

    def mark(self, value: Any) -> None:
        """From here on the test has been told this."""
        self.operations.append(Operation("mark", "", mark=value))

    def image(self, end: int, chance: random.Random, *, honours_sync: bool = True) -> tuple[dict[str, bytes], Any]:
        """The files that a power cut after `end` operations may leave, and the last mark before it."""
        files = {name: bytearray(content) for name, content in self.start.items()}
        pending: dict[str, list[Operation]] = {}
        told = None
        for operation in self.operations[:end]:
            if operation.kind == "mark":
                told = operation.mark
            elif operation.kind == "sync":
                if honours_sync:
                    for earlier in pending.pop(operation.file, []):
                        apply(files, earlier)
            else:
                pending.setdefault(operation.file, []).append(operation)
        for operations in pending.values():
            keep = chance.random()
            for operation in operations:
                if chance.random() < keep:
                    apply(files, torn(operation, chance))
        return {name: bytes(content) for name, content in files.items()}, told


def apply(files: dict[str, bytearray], operation: Operation) -> None:
    """What an operation leaves on the disk."""
    if operation.kind == "delete":
        files.pop(operation.file, None)
        return
    content = files.setdefault(operation.file, bytearray())
    if operation.kind == "cut":
        del content[operation.offset :]
        return
    end = operation.offset + len(operation.data)
    content.extend(bytes(max(0, end - len(content))))
    content[operation.offset : end] = operation.data


def torn(operation: Operation, chance: random.Random) -> Operation:
    """In one of three cases only a beginning of the write, up to a sector, has arrived."""
    if operation.kind != "write" or chance.random() < 2 / 3:
        return operation
    kept = chance.randrange(0, len(operation.data) // SECTOR + 1) * SECTOR
    return Operation("write", operation.file, operation.offset, operation.data[:kept])


class RecordingVFS(apsw.VFS):
    """The usual file layer, watched."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        found = [path for path in directory.iterdir() if path.name in ("ledger.db", "ledger.db-wal")]
        self.recording = Recording({path.name: path.read_bytes() for path in found})
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _RecordedFile(self.recording, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.recording.operations.append(Operation("delete", Path(filename).name))
        if syncdir:
            self.recording.operations.append(Operation("sync", Path(filename).name))


class _RecordedFile(apsw.VFSFile):
    def __init__(self, recording: Recording, name: Any, flags: list[int]) -> None:
        self._name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name).name
        self._log = recording.operations
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._log.append(Operation("write", self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._log.append(Operation("cut", self._name, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._log.append(Operation("sync", self._name))
