"""What does the chart's README say? ``python -m tests.helm.readme`` makes its table from the comments of the values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.helm.schema import CHART

README = CHART / "README.md"
VALUES = CHART / "values.yaml"

_BEGIN, _END = "<!-- values: python -m tests.helm.readme -->\n", "<!-- /values -->"
_LONGEST = 60
_KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9]*):")


def documented() -> dict[str, str]:
    """What values.yaml says of each key that has a comment beginning with ``# --``."""
    found: dict[str, str] = {}
    path: list[str] = []
    words: list[str] = []
    for line in VALUES.read_text().splitlines():
        comment = line.strip().removeprefix("#").strip() if line.strip().startswith("#") else None
        if comment is not None and comment.startswith("-- "):
            words = [comment.removeprefix("-- ")]
        elif comment is not None and words:
            words.append(comment)
        elif key := _KEY.match(line):
            path = [*path[: len(key[1]) // 2], key[2]]
            if words:
                found[".".join(path)] = " ".join(words)
            words = []
        else:
            words = []
    return found


def leaves(values: Any, path: str = "") -> Iterator[str]:
    """The paths of all values that are no map with something in it."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, f"{path}.{key}" if path else key)
    else:
        yield path


def value_at(path: str, value: Any) -> Any:
    """What stands at a path of the values."""
    for key in path.split("."):
        value = value[key]
    return value


def table() -> str:
    """The table of all documented values."""
    values = yaml.safe_load(VALUES.read_text())
    rows = ["| value | default | what it is |", "|---|---|---|"]
    for path, meaning in documented().items():
        default = json.dumps(value_at(path, values))
        shown = f"`{default}`" if len(default) <= _LONGEST else "see values.yaml"
        rows.append(f"| `{path}` | {shown} | {meaning} |".replace("||", "\\|\\|"))
    return "\n".join(rows) + "\n"


def text() -> str:
    """The README with its table brought up to date."""
    before, _, rest = README.read_text().partition(_BEGIN)
    return before + _BEGIN + table() + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    README.write_text(text())
