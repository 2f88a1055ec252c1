"""How are the values that a run writes to an output stream printed while it writes them?"""

from __future__ import annotations

import argparse
from contextlib import aclosing
from typing import Any

import msgspec

from redisworld.cli.commands import add_verb
from redisworld.cli.plain import as_json
from redisworld.world import Chunk, World


def add_to(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "output", _output, of=("run_id", "ID", "the run's id"),
        does="Print what the steps of a run have written to an output stream, a value a line.",
        example="redisworld run output publish-cat --name progress --follow",
        json="print one JSON object a line instead",
    )  # fmt: skip
    parser.add_argument("--name", metavar="NAME", default="default", help="the output stream (default: default)")
    parser.add_argument("--after", metavar="ID", default="", help="only what comes after the chunk with this id")
    parser.add_argument("--follow", action="store_true", help="go on until it is closed or the run has ended")


async def _output(world: World, arguments: argparse.Namespace) -> None:
    stream = world.run(arguments.run_id).stream(arguments.name, after=arguments.after, follow=arguments.follow)
    async with aclosing(stream):
        async for chunk in stream:
            print(_as_object(chunk) if arguments.json else _as_text(chunk.value), flush=True)


def _as_object(chunk: Chunk[Any]) -> str:
    return as_json(msgspec.structs.asdict(chunk) | {"at": chunk.at})


def _as_text(value: Any) -> str:
    """A text as it is, for a pipe; anything else as JSON."""
    return value if isinstance(value, str) else as_json(value)
