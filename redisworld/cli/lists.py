"""How are lists printed? As a table for people, as one JSON list of objects for programs, page by page."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from redisworld.cli.commands import Act, add_verb
from redisworld.cli.options import Parser, whole
from redisworld.cli.plain import as_json
from redisworld.cli.tables import table

_SHOWN = 50
"""Two screens; more is a page away."""


def add_list(
    verbs: Any, name: str, act: Act, *, things: str, does: str, example: str, after: str = "",
    of: tuple[str, str, str] | None = None, prepare: Callable[[argparse.Namespace], None] | None = None,
) -> Parser:  # fmt: skip
    """A verb that lists ``things``. With ``after`` (what a place in the list is called) it goes page by page."""
    parser = add_verb(
        verbs, name, act, of=of, prepare=prepare, does=does, example=example, json="print one JSON list instead"
    )
    if after:
        parser.add_argument("--limit", metavar="N", type=whole(1, 100_000), default=_SHOWN,
                            help=f"{things} at most (default: {_SHOWN})")  # fmt: skip
        parser.add_argument("--after", metavar=after, default="", help=f"go on behind this {after.lower()}")
    return parser


def print_list(
    arguments: argparse.Namespace,
    objects: Sequence[Any],
    header: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    none: str,
    after: str = "",
) -> None:
    """Print a page. ``none`` is told where it is empty, ``after`` is where the next page begins, if there is one."""
    if arguments.json:
        print(as_json(objects))
    else:
        print(table(header, rows) if rows else none)
    if after:  # beside the list for programs, below it for people
        print(f"(more: --after {shlex.quote(after)})", file=sys.stderr if arguments.json else sys.stdout)
