"""A file layer for SQLite in which the nth write or sync fails: a full disk, or a broken one."""

from __future__ import annotations

from typing import Any

import apsw

FULL, BROKEN_WRITE, BROKEN_SYNC = "full", "broken write", "broken sync"
KINDS = (FULL, BROKEN_WRITE, BROKEN_SYNC)


class FaultyVFS(apsw.VFS):
    """Counts writes and syncs; from the nth on, as long as `armed`, they fail."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = FULL
        self.left: int | None = None
        self.failed = 0
        super().__init__(name, "")

    def arm(self, kind: str, after: int) -> None:
        """Let the operation after so many fail, and all that follow."""
        self.kind, self.left, self.failed = kind, after, 0

    def disarm(self) -> None:
        """The disk is well again."""
        self.left = None

    def count(self, is_sync: bool) -> None:
        if self.left is None or is_sync != (self.kind == BROKEN_SYNC):
            return
        if self.left > 0:
            self.left -= 1
            return
        self.failed += 1
        raise apsw.FullError("no space") if self.kind == FULL else apsw.IOError("the disk is broken")

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _FaultyFile(self, name, flags)


class _FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: FaultyVFS, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._vfs.count(is_sync=False)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._vfs.count(is_sync=True)
        super().xSync(flags)
