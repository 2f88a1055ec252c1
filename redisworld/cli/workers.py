"""What does ``redisworld workers`` do? It lists the live workers, and those that are gone and still hold messages."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from redisworld.cli.lists import add_list, print_list
from redisworld.cli.times import ago
from redisworld.world import World
from redisworld.world.serving import Consumer, read_consumers

HEADER = ("CONSUMER", "STATE", "DEPLOYMENT", "STEPS", "REPLAYS", "HOLDS", "UP", "STREAMS")


def add_to(commands: Any) -> None:
    """Add the command."""
    add_list(
        commands, "workers", _workers, things="workers",
        does="List the workers that live, and those that are gone and still hold messages.",
        example="redisworld workers --json",
    )  # fmt: skip


async def _workers(world: World, arguments: argparse.Namespace) -> None:
    found, now = await read_consumers(world), world.now_ms()
    rows = [_row(consumer, now) for consumer in found]
    print_list(arguments, [_object(consumer) for consumer in found], HEADER, rows, none="no worker lives")


def _object(consumer: Consumer) -> dict[str, Any]:
    """``{consumer, state, holds, idle_ms, …}``, the rest as the worker said it, or without it."""
    said = msgspec.to_builtins(consumer.worker) if consumer.worker is not None else {"state": "silent"}
    return {"consumer": consumer.name, "holds": consumer.holds, "idle_ms": consumer.idle_ms, **said}


def _row(consumer: Consumer, now: int) -> tuple[str, ...]:
    worker = consumer.worker
    if worker is None:
        return (consumer.name, "silent", "-", "-", "-", str(consumer.holds), f"idle {ago(consumer.idle_ms)}", "-")
    return (
        consumer.name,
        worker.state,
        worker.deployment or "-",
        f"{worker.steps}/{worker.steps_limit}",
        f"{worker.replays}/{worker.replays_limit}",
        str(consumer.holds),
        ago(now - worker.started_at),
        " ".join(worker.streams) or "none: timers only",
    )
