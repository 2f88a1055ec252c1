"""What does ``redisworld queues`` do? It tells what waits in the streams, since when, and who reads them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from redisworld.cli.lists import add_list, print_list
from redisworld.cli.times import ago
from redisworld.state import Backlog, State, StreamState
from redisworld.world import World, read_state

HEADER = ("STREAM", "UNREAD", "PENDING", "OLDEST UNREAD", "OLDEST PENDING", "WORKERS", "CONSUMERS")


class StreamLine(msgspec.Struct, frozen=True, kw_only=True):
    """A stream, in one partition or in all; ``workers`` are the live ones that read it. Ages in ms by Redis."""

    stream: str
    partition: int | None
    unread: int
    pending: int
    oldest_unread_ms: int
    oldest_pending_ms: int
    workers: int
    consumers: int


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = add_list(
        commands, "queues", _queues, things="streams",
        does="Tell what waits in each stream: unread and pending messages, the oldest of them, who reads it.",
        example="redisworld queues --json",
    )  # fmt: skip
    parser.add_argument("--by-partition", action="store_true", help="each stream of each partition, not all together")


async def _queues(world: World, arguments: argparse.Namespace) -> None:
    state = await read_state(world)
    lines = lines_of(state, by_partition=arguments.by_partition)
    print_list(arguments, lines, HEADER, rows_of(lines), none="no streams")
    if not arguments.json:
        print(f"\n{footer(state)}")


def lines_of(state: State, *, by_partition: bool = False) -> list[StreamLine]:
    """A line for each stream, its partitions together unless they are asked for."""
    if by_partition:
        return [_line(state, found.stream, found.partition, found.backlog) for found in state.streams]
    together: dict[str, list[StreamState]] = {}
    for found in state.streams:
        together.setdefault(found.stream, []).append(found)
    return [_line(state, stream, None, _together(parts)) for stream, parts in together.items()]


def rows_of(lines: Iterable[StreamLine]) -> list[tuple[str, ...]]:
    """Cells for people."""
    return [
        (
            line.stream if line.partition is None else f"{line.partition}:{line.stream}",
            str(line.unread),
            str(line.pending),
            ago(line.oldest_unread_ms) if line.unread else "-",
            ago(line.oldest_pending_ms) if line.pending else "-",
            str(line.workers) if line.workers else "nobody",
            str(line.consumers),
        )
        for line in lines
    ]


def footer(state: State) -> str:
    """What waits elsewhere."""
    overdue = f", {state.timers_overdue} overdue since {ago(state.timers_overdue_ms)}" if state.timers_overdue else ""
    return f"delayed {state.timers_pending}{overdue}  dead letters {state.dead_letters}"


def _together(parts: Sequence[StreamState]) -> Backlog:
    return Backlog.together(part.backlog for part in parts)


def _line(state: State, stream: str, partition: int | None, backlog: Backlog) -> StreamLine:
    return StreamLine(
        stream=stream,
        partition=partition,
        unread=backlog.lag,
        pending=backlog.pending,
        oldest_unread_ms=backlog.oldest_unread_ms,
        oldest_pending_ms=backlog.oldest_pending_ms,
        workers=sum(stream in worker.streams for worker in state.workers),
        consumers=backlog.consumers,
    )
