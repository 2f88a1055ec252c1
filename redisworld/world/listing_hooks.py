"""Which hooks are open, and of which runs?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from redisworld.runs import OPEN
from redisworld.world.listing_runs import ListedRun, page_of_runs
from redisworld.world.replies import text_of

if TYPE_CHECKING:
    from redisworld.world.world import World

_CHUNK = 100
_LOOKED_AT = 10_000
"""Open runs that one page looks at for hooks."""


class ListedHook(msgspec.Struct, frozen=True, kw_only=True):
    """A hook that holds a token, or is about to. ``run_created_at`` is epoch ms by Redis."""

    token: str
    hook_id: str
    run_id: str
    workflow: str
    run_created_at: int


class HookPage(msgspec.Struct, frozen=True):
    """Hooks, and the run id to go on behind, or ``""`` where that was all."""

    hooks: list[ListedHook]
    after: str


async def page_of_hooks(world: World, *, limit: int, after: str = "") -> HookPage:
    """The hooks of open runs, newest run first, behind the run ``after``: all of each run, until ``limit`` is reached.

    Two commands for each open run that is looked at, at most 10,000 runs: then the page is short and its ``after`` goes
    on. Raises InvalidInput for an ``after`` that is not listed.
    """
    found: list[ListedHook] = []
    for _ in range(_LOOKED_AT // _CHUNK):
        page = await page_of_runs(world, statuses=OPEN, limit=_CHUNK, after=after)
        for number, (run, hooks) in enumerate(zip(page.runs, await _hooks(world, page.runs), strict=True)):
            found += hooks
            if len(found) >= limit:
                return HookPage(found, "" if not page.after and number + 1 == len(page.runs) else run.run_id)
        if not page.after:
            return HookPage(found, "")
        after = page.after
    return HookPage(found, after)


async def hooks_of(world: World, run_id: str) -> list[ListedHook]:
    """The hooks of one run; three commands. Raises RunNotFound."""
    row = await world.row(run_id)
    run = ListedRun(run_id=run_id, status=row.status, workflow=row.workflow, created_at=row.created_at)
    return (await _hooks(world, [run]))[0]


async def _hooks(world: World, runs: Sequence[ListedRun]) -> list[list[ListedHook]]:
    if not runs:
        return []
    keys = [world.partition(run.run_id).hooks(run.run_id) for run in runs]
    answers = await world.connection.pipe("read_hooks", lambda pipe: [pipe.hgetall(key) for key in keys])
    return [
        [
            ListedHook(
                token=text_of(token),
                hook_id=text_of(hook_id),
                run_id=run.run_id,
                workflow=run.workflow,
                run_created_at=run.created_at,
            )
            for hook_id, token in sorted(held.items())
        ]
        for run, held in zip(runs, answers, strict=True)
    ]
