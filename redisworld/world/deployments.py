"""Which deployments have runs or messages, and does a live worker serve each?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from redisworld.runs import Status
from redisworld.state import Backlog, State
from redisworld.world.listing_runs import page_of_runs
from redisworld.world.reading_state import read_state

if TYPE_CHECKING:
    from redisworld.world.world import World

_RUNS = 1_000
"""Open runs whose deployment is looked at; the newest."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment; ``""`` stands for runs and workers that have none.

    ``pinned``: it has streams of its own (affinity), else its messages are in the shared ones, which any worker reads
    and which are not counted here. ``workers`` are the live ones that serve it. ``more_runs``: only the newest 1,000
    open runs of the namespace were looked at.
    """

    deployment: str
    pinned: bool
    workers: int
    served: bool
    open_runs: int
    more_runs: bool
    unread: int
    pending: int
    oldest_unread_ms: int


async def read_deployments(world: World) -> list[Deployment]:
    """All deployments that open runs, streams or live workers name.

    The three round trips of ``read_state``, and one command for each of at most 1,000 open runs.
    """
    state = await read_state(world)
    page = await page_of_runs(world, statuses=(Status.PENDING, Status.RUNNING), limit=_RUNS)
    runs = Counter(run.deployment for run in page.runs)
    names = runs.keys() | {worker.deployment for worker in state.workers} | {s.deployment for s in state.streams}
    more = bool(page.after)
    return [_deployment(state, name, runs[name], more=more) for name in sorted(names) if name or _any(state, runs[""])]


def _any(state: State, runs: int) -> bool:
    """Whether there is anything without a deployment; the shared streams are always there."""
    return runs > 0 or any(not worker.deployment for worker in state.workers)


def _deployment(state: State, name: str, runs: int, *, more: bool) -> Deployment:
    mine = [stream for stream in state.streams if stream.deployment == name and name]
    backlog = Backlog.together(stream.backlog for stream in mine)
    needed = {stream.stream for stream in mine if stream.backlog.length} or {f"workflows@{name}"}
    readers = [worker for worker in state.workers if not mine or needed & set(worker.streams)]
    return Deployment(
        deployment=name,
        pinned=bool(mine),
        workers=len(readers),
        served=bool(readers) and (not mine or all(any(n in w.streams for w in readers) for n in needed)),
        open_runs=runs,
        more_runs=more,
        unread=backlog.lag,
        pending=backlog.pending,
        oldest_unread_ms=backlog.oldest_unread_ms,
    )
