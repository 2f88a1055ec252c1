"""Where do the Lua scripts come from, and what does each one promise?

One file per command. Its header lists keys, arguments and outcome words; ``@include`` names fragments of
``include/`` that are put before the body. Lua 5.1 and cjson only, no shebang: the same text runs on Redis 6.2+,
Valkey and fakeredis.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

import msgspec


class Script(msgspec.Struct, frozen=True):
    """A script ready to be sent. ``sha`` is what EVALSHA takes; ``args`` and ``returns`` are its header's words."""

    name: str
    text: str
    sha: str
    args: tuple[str, ...]
    returns: tuple[str, ...]


_HEADER = re.compile(r"^-- @(\w+)\s+(.*)$", re.MULTILINE)


@cache
def load(name: str) -> Script:
    """The script of that name with its includes. Raises FileNotFoundError for one that does not exist."""
    source = _read(f"{name}.lua")
    tags: dict[str, list[str]] = {}
    for tag, value in _HEADER.findall(source):
        tags.setdefault(tag, []).append(value.strip())
    includes = " ".join(tags.get("include", [])).split()
    text = "\n".join([*(_read(f"include/{part}.lua") for part in includes), source])
    return Script(
        name=name,
        text=text,
        sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
        args=tuple(value.split()[0] for value in tags.get("arg", [])),
        returns=tuple(tags.get("returns", [])),
    )


@cache
def load_all() -> None:
    """Read all scripts now: a process that reads one later may get that of another version, or may not open files."""
    for name in names():
        load(name)
    _read.cache_clear()


@cache
def _read(path: str) -> str:
    return files(__package__).joinpath(path).read_text()


def names() -> list[str]:
    """The names of all scripts, sorted."""
    return sorted(item.name.removesuffix(".lua") for item in files(__package__).iterdir() if item.name.endswith(".lua"))
