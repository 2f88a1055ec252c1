"""How do tests read a page of docs whose console blocks are real, and compare what is on it with what comes now?"""

from __future__ import annotations

import re

import msgspec

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_CHANGING = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"(unix|redis)://[^\s:]\S*", "URL"),
    (r"\S+:\d+:[0-9a-f]{8}", "CONSUMER"),
    (r"\d+/\d{13}-\d+", "LETTER"),
    (r"\d{13}-\d+", "ENTRY"),
    (r"\b\d+(\.\d+)? ?(ms|[dhms])( \d+[hms])?\b", "LENGTH"),
    (r"\+\d+\.\d{3}s", "SINCE"),
    (r"[ -]{2,}", "  "),
)
"""What is another one each time: moments, lengths, ids, and the widths of columns that hold them."""


class Command(msgspec.Struct, frozen=True):
    """A command of a page, without ``$``, and the lines below it."""

    line: str
    output: str


def sections(page: str) -> dict[str, list[Command]]:
    """The commands of each section that has some, by its heading."""
    _, *parts = _SECTION.split(page)
    found = dict(zip(parts[::2], map(commands, parts[1::2]), strict=True))
    return {heading: some for heading, some in found.items() if some}


def commands(text: str) -> list[Command]:
    """The commands of all console blocks of a text."""
    lines = "".join(_BLOCK.findall(text))
    _, *parts = re.split(r"^\$ (.+)\n", lines, flags=re.MULTILINE)
    return [Command(line, output) for line, output in zip(parts[::2], parts[1::2], strict=True)]


def shape(output: str) -> list[str]:
    """The lines of an output, with a word for all that is another each time."""
    for pattern, word in _CHANGING:
        output = re.sub(pattern, word, output)
    return [line.strip() for line in output.strip().splitlines()]
