"""How is a fact written to the log? One line: what happened, then its fields. docs/logs.md lists every line.

The line reads ``step retrying: run=r1 step=s2 attempt=1 error="ValueError: no"``. A record also has ``fact``, the words
before the colon, and ``fields``, for whoever writes its log as JSON.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

_NOWHERE: Mapping[str, object] = {}

_log = logging.getLogger("redisworld")


def fact(
    level: int,
    what: str,
    where: Mapping[str, object] = _NOWHERE,
    /,
    *,
    trace: BaseException | None = None,
    **fields: object,
) -> None:
    """Log that ``what`` has happened; with the traceback of ``trace``.

    ``where`` are fields that several lines share. A field that is None is left out.
    """
    if not _log.isEnabledFor(level):
        return
    known = {name: _plain(value) for name, value in {**where, **fields}.items() if value is not None}
    said = " ".join(f"{name}={_word(value)}" for name, value in known.items())
    text = f"{what}: {said}" if said else what
    extra = {"fact": what, "fields": known}
    _log.log(level, "%s", text, exc_info=trace, extra=extra, stacklevel=2)


def named(error: BaseException) -> str:
    """An error with its type, as the last line of a traceback; redis-py's own repr hides what Redis has said."""
    return f"{type(error).__name__}: {error}"


def _plain(value: object) -> str | int | float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _word(value: object) -> str:
    """As one word, in quotes where it is none by itself."""
    text = str(value)
    if text and text.isprintable() and not any(sign in text for sign in ' "'):
        return text
    return json.dumps(text, ensure_ascii=False)
