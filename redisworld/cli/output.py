"""How are the values that a run writes to an output stream printed while it writes them?"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import aclosing
from typing import Any

import msgspec

from redisworld.cli.options import Parser, connected
from redisworld.cli.plain import as_json
from redisworld.world import Chunk

DOES = "Print what the steps of a run have written to an output stream, a value a line."
EXAMPLE = "redisworld run output publish-cat --name progress --follow"


def add_options(parser: Parser) -> None:
    """What the command takes."""
    parser.add_argument("--name", metavar="NAME", default="default", help="the output stream (default: default)")
    parser.add_argument("--after", metavar="ID", default="", help="only what comes after the chunk with this id")
    parser.add_argument("--follow", action="store_true", help="go on until it is closed or the run has ended")


def output(arguments: argparse.Namespace) -> int:
    """``redisworld run output``."""
    return asyncio.run(_output(arguments))


async def _output(arguments: argparse.Namespace) -> int:
    async with connected(arguments, create=False) as world:
        stream = world.run(arguments.run_id).stream(arguments.name, after=arguments.after, follow=arguments.follow)
        async with aclosing(stream):
            async for chunk in stream:
                print(_as_object(chunk) if arguments.json else _as_text(chunk.value), flush=True)
    return 0


def _as_object(chunk: Chunk[Any]) -> str:
    return as_json(msgspec.structs.asdict(chunk) | {"at": chunk.at})


def _as_text(value: Any) -> str:
    """A text as it is, for a pipe; anything else as JSON."""
    return value if isinstance(value, str) else as_json(value)
