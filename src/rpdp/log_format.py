"""Log lines of the long-running processes: text for people, or one JSON object per line for machines.

    {"time": "2026-03-01T09:30:00.123Z", "level": "info", "logger": "rpdp.silo", "message": "…"}

A traceback, if there is one, is in `traceback`: a line of the log is always one line.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Literal

LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = ("text", "json")

_TEXT = "%(asctime)s %(levelname)s %(message)s"


class JsonLines(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = {
            "time": when.removesuffix("+00:00") + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return json.dumps(facts)


def log_formatter(chosen: LogFormat, text: str = _TEXT) -> logging.Formatter:
    """The formatter for a format; `text` is the layout of text lines."""
    return JsonLines() if chosen == "json" else logging.Formatter(text)


def begin_logging(chosen: LogFormat, *, verbose: bool = False, stream: IO[str] | None = None) -> None:
    """Log to standard error: warnings of everybody, and what rpdp does."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(log_formatter(chosen))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("rpdp").setLevel(logging.DEBUG if verbose else logging.INFO)
