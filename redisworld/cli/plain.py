"""How are user values and texts written for a terminal and as JSON?"""

from __future__ import annotations

import enum
import json
import math
import sys
from datetime import date, time
from typing import Any

from redisworld.contents import contents_of, is_named


def plain(value: Any) -> Any:
    """The value in JSON's words; what JSON has no word for becomes a readable text."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        named = {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
        # 1 and "1" are two keys, of which JSON would keep one.
        return named if len(named) == len(value) else [[plain(key), plain(item)] for key, item in value.items()]
    if is_named(type(value)):
        return {name: plain(part) for name, part in contents_of(value).parts.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value)


def _number(value: int) -> int | str:
    """In hexadecimal where it has more digits than Python writes (``sys.get_int_max_str_digits``)."""
    try:
        str(value)
    except ValueError:
        return hex(value)
    return value


def as_json(value: Any) -> str:
    """One line of JSON; in ASCII where stdout takes no other characters, so that it is JSON there, too."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return json.dumps(plain(value), ensure_ascii=not encoding.lower().startswith("utf"))


def one_line(text: str, longest: int | None = None) -> str:
    """The text on one line, without characters that could move the cursor, cut to ``longest``."""
    shown = visible(" ".join(text.split()))
    return shown if longest is None or len(shown) <= longest else f"{shown[: longest - 1]}…"


def visible(line: str) -> str:
    """A line without characters that could move the cursor: they are written out."""
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def facts(*pairs: tuple[str, str], width: int = 11) -> str:
    """Names and values, one pair a line."""
    return "\n".join(f"{name:<{width}} {value}".rstrip() for name, value in pairs)
