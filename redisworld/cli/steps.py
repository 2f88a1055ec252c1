"""What does ``redisworld steps`` do? It lists the steps of a run: their status, who holds them, their last error."""

from __future__ import annotations

import argparse
from typing import Any

from redisworld.cli.lists import add_list, print_list
from redisworld.cli.options import OneOf
from redisworld.cli.plain import one_line
from redisworld.cli.times import ago, iso
from redisworld.runs import OPEN, Status
from redisworld.world import World
from redisworld.world.listing_steps import ListedStep, page_of_steps

_STATUSES = {
    "open": OPEN,
    **{status.value: (status,) for status in (*OPEN, Status.COMPLETED, Status.FAILED)},
}
_ERROR_SHOWN = 60


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = add_list(
        commands, "steps", _steps, things="steps", after="STEP", of=("run_id", "ID", "the run's id"),
        does="List the steps of a run in the order in which its body asked for them.",
        example="redisworld steps publish-cat --status open",
    )  # fmt: skip
    parser.add_argument("--status", metavar="STATUS", type=OneOf(_STATUSES),
                        help=f"only of this status: {', '.join(_STATUSES)}")  # fmt: skip


async def _steps(world: World, arguments: argparse.Namespace) -> None:
    statuses = _STATUSES.get(arguments.status, ())
    page = await page_of_steps(world, arguments.run_id, statuses=statuses, limit=arguments.limit, after=arguments.after)
    now = world.now_ms()
    print_list(
        arguments,
        page.steps,
        ("STEP", "NAME", "STATUS", "ATTEMPT", "STARTED", "RETRY AT", "HELD BY", "ERROR"),
        [_row(step, now) for step in page.steps],
        none="no step" + (" of this status" if statuses else " yet"),
        after=page.after,
    )


def _row(step: ListedStep, now: int) -> tuple[str, ...]:
    place = step.place
    return (
        step.id,
        step.name,
        step.status,
        str(step.attempt),
        iso(step.started_at),
        iso(step.retry_at),
        f"{place.consumer} ({ago(place.idle_ms)} ago)" if place is not None else "-",
        one_line(step.error, _ERROR_SHOWN) or "-",
    )
