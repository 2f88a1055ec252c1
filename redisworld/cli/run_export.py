"""How does everything that is known of runs leave Redis? As lines of JSON: for a bug report, an archive, a program."""

from __future__ import annotations

import argparse
import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from redisworld.cli.commands import add_verb
from redisworld.cli.event_lines import entry_of, event_object
from redisworld.cli.plain import as_json
from redisworld.world import World


def add_to(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "export", _export,
        does="Write all that is known of runs as one JSON object a line: the run, its events, what it has written out.",
        example="redisworld run export publish-cat > publish-cat.ndjson",
        json="as without it: an export is JSON",
    )  # fmt: skip
    parser.add_argument("run_ids", metavar="ID", nargs="+", help="ids of runs")


async def _export(world: World, arguments: argparse.Namespace) -> None:
    for run_id in arguments.run_ids:
        async with aclosing(_lines(world, run_id)) as lines:
            async for line in lines:
                print(as_json(line))


async def _lines(world: World, run_id: str) -> AsyncGenerator[dict[str, Any], None]:
    """``{record, run_id, …}``; ``record`` is run, event or chunk. Nothing is held in memory whole."""
    row = await world.row(run_id)
    attributes = await world.attributes.read(run_id)
    yield {"record": "run", **msgspec.to_builtins(row), "attributes": attributes}
    number = 0
    while number < row.log_length and (page := await world.log(run_id, number)):
        for element in page:
            number += 1
            entry = entry_of(number, element)
            data = entry.event.payload if entry.event is not None else element
            told = event_object(entry) | {"data": base64.b64encode(data).decode()}
            yield {"record": "event", "run_id": run_id, **told}
    for output in await world.outputs.of(run_id):
        async with aclosing(world.outputs.read(run_id, output.name, follow=False)) as chunks:
            async for chunk in chunks:
                told = msgspec.structs.asdict(chunk) | {"at": chunk.at}
                yield {"record": "chunk", "run_id": run_id, "output": output.name, **told}
