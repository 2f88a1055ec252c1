"""How does a run go on? ``redisworld run watch`` tells each change until its end."""

from __future__ import annotations

import argparse
from typing import Any

from redisworld.cli.commands import add_verb
from redisworld.cli.endings import FAILED
from redisworld.cli.plain import as_json
from redisworld.cli.run_why import as_object, headline
from redisworld.cli.times import iso
from redisworld.runs import Status
from redisworld.world import World
from redisworld.world.waiting import Standing, read_standing

_NAMED = 3
"""Things that a line names; the others are counted."""


def add_to(verbs: Any) -> None:
    """Add the verb."""
    add_verb(
        verbs, "watch", _watch, of=("run_id", "ID", "the run's id"),
        does="Tell what a run does and waits for, a line each time that changes, until it ends (exit code 1: without a "
        "result).",
        example="redisworld run watch publish-cat",
        json="print one JSON object a line instead",
    )  # fmt: skip


async def _watch(world: World, arguments: argparse.Namespace) -> int:
    told = ""
    with world.endings.watch(arguments.run_id) as ended:
        while True:
            standing = await read_standing(world, arguments.run_id)
            if (line := _line(standing)) != told:
                told = line
                print(as_json(as_object(standing)) if arguments.json else f"{iso(standing.at_ms)}  {line}", flush=True)
            if standing.row.status.terminal:
                return 0 if standing.row.status is Status.COMPLETED else FAILED
            await ended.wait()  # a second at the longest


def _line(standing: Standing) -> str:
    row = standing.row
    done = sum(standing.steps.get(status, 0) for status in (Status.COMPLETED, Status.FAILED))
    text = row.status + (f" ({row.code})" if row.code else "")
    if standing.steps:
        text += f"  steps {done}/{sum(standing.steps.values())}"
    if row.status.terminal:
        return text
    named = ", ".join(headline(what) for what in standing.waits_for[:_NAMED])
    more = len(standing.waits_for) + standing.more - _NAMED
    return f"{text}  waits for {named}" + (f" and {more} more" if more > 0 else "")
