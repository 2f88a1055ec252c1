"""What does ``redisworld deployments`` do? It tells which deployments have runs or messages, and who serves them."""

from __future__ import annotations

import argparse
from typing import Any

from redisworld.cli.lists import add_list, print_list
from redisworld.cli.times import ago
from redisworld.world import World
from redisworld.world.deployments import Deployment, read_deployments


def add_to(commands: Any) -> None:
    """Add the command."""
    add_list(
        commands, "deployments", _deployments, things="deployments",
        does="List deployments: their open runs and waiting messages, and whether a live worker serves them.",
        example="redisworld deployments",
    )  # fmt: skip


async def _deployments(world: World, arguments: argparse.Namespace) -> None:
    found = await read_deployments(world)
    print_list(
        arguments,
        found,
        ("DEPLOYMENT", "SERVED BY", "OPEN RUNS", "UNREAD", "PENDING", "OLDEST UNREAD", "STREAMS"),
        [_row(deployment) for deployment in found],
        none="no deployments: no open run, no message, no worker",
    )


def _row(found: Deployment) -> tuple[str, ...]:
    served = f"{found.workers} worker{'' if found.workers == 1 else 's'}" if found.served else "nobody"
    return (
        found.deployment or "(none)",
        served,
        str(found.open_runs) + ("+" if found.more_runs else ""),
        str(found.unread),
        str(found.pending),
        ago(found.oldest_unread_ms) if found.unread else "-",
        "its own" if found.pinned else "shared",
    )
