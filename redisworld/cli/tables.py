"""How are tables drawn? Aligned for everybody; with colours where a terminal shows them and nobody has said no."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

BOLD, _RED, _GREEN, _YELLOW, _CYAN = "1", "31", "32", "33", "36"
_COLOURS = {
    "completed": _GREEN,
    "running": _CYAN,
    "pending": _YELLOW,
    "failed": _RED,
    "cancelled": _RED,
    "parked": _RED,
    "nobody": _RED,
    "silent": _RED,
    "overdue": _RED,
}
"""Cells that are such a word: what a person looks for in a long table."""


def coloured() -> bool:
    """Whether stdout takes colours: a terminal, and no ``NO_COLOR`` (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, colour: str) -> str:
    """The text in a colour, where there are colours."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and text and coloured() else text


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, widest: int | None = None) -> str:
    """Columns aligned to the left, two spaces apart; lines are cut to ``widest``."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [painted("  ".join(_fitted(header, widths, widest)), BOLD)]
    lines += [
        "  ".join(painted(cell, _COLOURS.get(cell.strip(), "")) for cell in _fitted(r, widths, widest)) for r in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def _fitted(row: tuple[str, ...], widths: list[int], widest: int | None) -> list[str]:
    """The cells at their widths; the last one is not padded, and none goes beyond ``widest``."""
    cells, left = [], widest
    for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
        text = cell.ljust(width) if number + 1 < len(row) else cell
        if left is not None:
            text = text if len(text) <= left else text[: max(0, left - 1)] + "…" * (left > 0)
            left = max(0, left - len(text) - 2)
        cells.append(text)
    return cells
