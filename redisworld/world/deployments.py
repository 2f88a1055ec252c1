"""Which deployments have runs or messages, does a live worker serve each, and how do its runs go to another?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from redisworld.errors import InvalidInput
from redisworld.runs import OPEN
from redisworld.state import Backlog, State
from redisworld.world.listing_runs import page_of_runs
from redisworld.world.moving import Move, Mover, Tick, nothing
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


class Deployments:
    """The deployments of a namespace."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def known(self) -> list[Deployment]:
        """All that open runs, streams or live workers name."""
        return await read_deployments(self._world)

    async def look(self, deployment: str, to: str = "") -> Move:
        """What ``move`` would take along now. Raises InvalidInput."""
        return await self._mover(deployment, to).look()

    async def move(self, deployment: str, to: str = "", *, leave_held: bool = False, tick: Tick = nothing) -> Move:
        """Give the open runs of a deployment, and all messages that wait for its workers, to another one, or to none.

        A run that was bound to the streams of its deployment is bound to those of the other, or to none: then any
        worker may take it. One call moves each run, delayed message and delivery, so a move that was killed is
        repeated, and goes on. What live workers hold they finish, with the code of the old deployment; what comes of it
        goes to the new one. That has to be allowed with ``leave_held``. Runs that are started meanwhile are left to a
        repeat. Raises DeploymentBusy, InvalidInput, RedisUnavailable.
        """
        return await self._mover(deployment, to, tick).move(leave_held=leave_held)

    def _mover(self, deployment: str, to: str, tick: Tick = nothing) -> Mover:
        if not deployment or deployment == to:
            raise InvalidInput(f"runs of deployment {deployment!r} cannot be moved to {to!r}: name two that differ")
        return Mover(self._world, deployment, to, tick=tick)


async def read_deployments(world: World) -> list[Deployment]:
    """All deployments that open runs, messages in streams or live workers name.

    The three round trips of ``read_state``, and one command for each of at most 1,000 open runs.
    """
    state = await read_state(world)
    page = await page_of_runs(world, statuses=OPEN, limit=_RUNS)
    runs = Counter(run.deployment for run in page.runs)
    working = {worker.deployment for worker in state.workers if worker.streams}
    names = runs.keys() | working | {stream.deployment for stream in state.streams if stream.backlog.length}
    more = bool(page.after)
    return [_deployment(state, name, runs[name], more=more) for name in sorted(names) if name or _any(state, runs[""])]


def _any(state: State, runs: int) -> bool:
    """Whether there is anything without a deployment; the shared streams are always there."""
    return runs > 0 or any(worker.streams and not worker.deployment for worker in state.workers)


def _deployment(state: State, name: str, runs: int, *, more: bool) -> Deployment:
    mine = [stream for stream in state.streams if stream.deployment == name and name]
    backlog = Backlog.together(stream.backlog for stream in mine)
    needed = {stream.stream for stream in mine if stream.backlog.length} or {f"workflows@{name}"}
    readers = [worker for worker in state.workers if worker.streams and (not mine or needed & set(worker.streams))]
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
