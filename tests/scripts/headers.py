"""What does the header of a script promise, in words that a test can count?

``@returns`` is a list of alternatives, split by `` | ``. The first word of one is its outcome (``a|b`` are two); the
first later word with a ``|`` in it names the details, which are the second item of the reply.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec

FOLDER = Path(str(files("redisworld.scripts")))
COMMANDS = sorted(path.stem for path in FOLDER.glob("*.lua"))
EVERY_FILE = sorted([*FOLDER.glob("*.lua"), *FOLDER.glob("include/*.lua")])

Answer = tuple[str, str]
"""An outcome word, and one of its details or ``""``."""

_TAG = re.compile(r"^-- @(\w+)\s+(.*?)(?=^-- @|^[^-]|^--$|\Z)", re.MULTILINE | re.DOTALL)


class Header(msgspec.Struct, frozen=True):
    """What a header says. ``stride`` is the size of one item of a batch, 0 where the items differ."""

    args: tuple[str, ...]
    items: str
    stride: int
    is_batch: bool
    answers: frozenset[Answer]
    keys: frozenset[str]
    derived: frozenset[str]
    includes: tuple[str, ...]


@cache
def header(script: str) -> Header:
    """The header of a command."""
    return parse((FOLDER / f"{script}.lua").read_text())


def parse(source: str) -> Header:
    """The header of a script's text."""
    tags: dict[str, list[str]] = {}
    for tag, value in _TAG.findall(source):
        tags.setdefault(tag, []).append(" ".join(line.lstrip("- ").strip() for line in value.splitlines()).strip())
    returns = " ".join(tags["returns"])
    args = tags.get("arg", [])
    many = re.match(r"(items?|deliveries)\s", args[-1])
    each = re.search(r"(\d+) arguments each|(pairs):", args[-1])
    return Header(
        args=tuple(arg.split()[0] for arg in (args[:-1] if many else args)),
        items=many[1] if many else "",
        stride=(int(each[1] or 2) if each else 0) if many else 0,
        is_batch=returns.startswith("list of:"),
        answers=frozenset(_answers(returns.removeprefix("list of:"))),
        keys=frozenset(value.split()[0] for value in tags["key"]),
        derived=frozenset(" ".join(tags.get("derived", [])).split()),
        includes=tuple(" ".join(tags["include"]).split()),
    )


def _answers(returns: str) -> list[Answer]:
    found: list[Answer] = []
    for alternative in returns.split(" | "):
        words, *rest = alternative.replace(",", " ").split()
        details = next((word for word in rest if "|" in word), "")
        found += [(word, detail) for word in words.split("|") for detail in details.split("|")]
    return found
