"""How does a process write its log? One line per fact on stderr, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from redisworld.observe import tracer

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


class _Text(logging.Formatter):
    """Time, level, message; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower():<7} {_escaped(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    """One object a line: time, level, logger, message, the fields of a fact, trace_id and span_id in a span, exc.

    The message of a fact is what happened and no more, so that lines of one kind have one message.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": getattr(record, "fact", None) or record.getMessage(),
        }
        fields |= {name: value for name, value in getattr(record, "fields", {}).items() if name not in fields}
        if (traces := tracer()) is not None:
            fields |= traces.ids()
        if record.exc_info:
            fields["exc"] = self.formatException(record.exc_info)
        return json.dumps(fields)


@contextmanager
def to_stderr(level: str, form: str = "text") -> Iterator[None]:
    """Let everything from ``level`` on go to stderr while the context is open; the application's own logs too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _escaped(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")
