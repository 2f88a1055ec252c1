"""What does ``redisworld hook list`` do? It lists the hooks of open runs, or of one."""

from __future__ import annotations

import argparse
from typing import Any

from redisworld.cli.lists import add_list, print_list
from redisworld.cli.times import ago, iso
from redisworld.errors import InvalidInput
from redisworld.world import World
from redisworld.world.listing_hooks import HookPage, hooks_of, page_of_hooks


def add_to(verbs: Any) -> None:
    """Add the verb."""
    parser = add_list(
        verbs, "list", _list, things="hooks, all of each run,", after="ID", prepare=_check,
        does="List the hooks that wait for a payload, those of the newest run first.",
        example="redisworld hook list --run fulfil-42",
    )  # fmt: skip
    parser.add_argument("--run", metavar="ID", default="", help="only the hooks of this run")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.run and arguments.after:
        raise InvalidInput("--after goes on behind a run, and --run names the only one: give one of the two")


async def _list(world: World, arguments: argparse.Namespace) -> None:
    if arguments.run:
        page = HookPage(await hooks_of(world, arguments.run), "")
    else:
        page = await page_of_hooks(world, limit=arguments.limit, after=arguments.after)
    now = world.now_ms()
    print_list(
        arguments,
        page.hooks,
        ("TOKEN", "RUN", "WORKFLOW", "HOOK", "RUN CREATED", "AGE"),
        [
            (h.token, h.run_id, h.workflow, h.hook_id, iso(h.run_created_at), ago(now - h.run_created_at))
            for h in page.hooks
        ],
        none="no hook is open" + (f" in run {arguments.run}" if arguments.run else ""),
        after=page.after,
    )
