"""What does ``redisworld timers`` do? It lists what is due later, the soonest first."""

from __future__ import annotations

import argparse
from typing import Any

from redisworld.cli.lists import add_list, print_list
from redisworld.cli.times import ago, iso
from redisworld.world import World
from redisworld.world.listing_delayed import Due, page_of_delayed


def add_to(commands: Any) -> None:
    """Add the command."""
    add_list(
        commands, "timers", _timers, things="timers", after="PLACE",
        does="List timers, retries, delayed starts and messages that were handed back, the soonest first.",
        example="redisworld timers --limit 20",
    )  # fmt: skip


async def _timers(world: World, arguments: argparse.Namespace) -> None:
    found = await page_of_delayed(world, limit=arguments.limit + 1, after=arguments.after)
    shown, now = found[: arguments.limit], world.now_ms()
    print_list(
        arguments,
        shown,
        ("DUE", "IN", "WHAT", "RUN", "ID", "NAME", "STREAM"),
        [_row(due, now) for due in shown],
        none="nothing is due later",
        after=shown[-1].place if len(found) > len(shown) else "",
    )


def _row(due: Due, now: int) -> tuple[str, ...]:
    left = due.due_at - now
    wait = ago(left) if left > 0 else "overdue"
    return (iso(due.due_at), wait, due.what, due.run_id, due.id, due.name or "-", due.stream or "-")
