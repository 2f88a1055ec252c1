"""What does ``redisworld events tail`` do? It follows the log of a run while it is written."""

from __future__ import annotations

import argparse
from typing import Any

from redisworld.cli.commands import add_noun, add_verb
from redisworld.cli.event_lines import Entry, entry_of, event_object, event_row
from redisworld.cli.options import whole
from redisworld.cli.plain import as_json
from redisworld.world import World

_LAST = 10
_PAYLOAD_SHOWN = 80
_WIDTHS = (4, 10, 16, 18, 2)
"""Of number, time, kind, id and attempt: a line is printed before the next ones are known."""


def add_to(commands: Any) -> None:
    """Add the noun and its verb."""
    add_noun(
        commands, "events", (_add_tail,), does="Follow the log of a run: tail.",
        example="redisworld events tail publish-cat",
    )  # fmt: skip


def _add_tail(verbs: Any) -> None:
    parser = add_verb(
        verbs, "tail", _tail, of=("run_id", "ID", "the run's id"),
        does="Print the last events of a run and go on with each new one until the run ends.",
        example="redisworld events tail publish-cat --lines 100 --json",
        json="print one JSON object a line instead",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--lines", metavar="N", type=whole(0, 1_000_000), default=_LAST,
                       help=f"begin with the last N events (default: {_LAST})")  # fmt: skip
    where.add_argument("--after", metavar="NR", type=whole(0, 1_000_000), help="begin behind the event of this number")
    parser.add_argument("--payloads", action="store_true", help="show payloads whole, not shortened")


async def _tail(world: World, arguments: argparse.Namespace) -> None:
    row = await world.row(arguments.run_id)
    number = max(0, row.log_length - arguments.lines) if arguments.after is None else arguments.after
    longest = None if arguments.payloads else _PAYLOAD_SHOWN
    with world.endings.watch(arguments.run_id) as ended:
        while True:
            over = (await world.row(arguments.run_id)).status.terminal  # before the log: nothing follows its last event
            while page := await world.log(arguments.run_id, number):
                for element in page:
                    number += 1
                    entry = entry_of(number, element)
                    told = as_json(event_object(entry)) if arguments.json else _line(entry, row.created_at, longest)
                    print(told, flush=True)
            if over:
                return
            await ended.wait()  # a second at the longest


def _line(entry: Entry, created: int, longest: int | None) -> str:
    *cells, detail = event_row(entry, created, longest)
    return "  ".join([*(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)), detail]).rstrip()
