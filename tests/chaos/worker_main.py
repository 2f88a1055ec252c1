"""What runs in a worker process of a chaos test? ``python -m tests.chaos.worker_main <app> <url> <settings as JSON>``

``CHAOS_KILL`` makes the process SIGKILL itself: ``before:7`` or ``after:7`` (its seventh counted call to Redis),
or ``point:<name>``, see ``_POINTS``. ``CHAOS_TRACE`` names a file that gets one line per counted call.
With ``CHAOS_FLUSH`` Redis forgets all scripts before each call, counted or not.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from consumers.signals import run_until_signalled
from consumers.worker import Worker
from redisworld import Settings, World
from redisworld.observe import Observation, StepClaimed, StepEnded, observing
from redisworld.world import Recorded
from redisworld.world.connection import Connection
from redisworld.world.consuming import Deliveries

_BACKGROUND = frozenset(
    {"ping", "info", "open_namespace", "create_group", "consumers", "reclaim_stale", "wait_nudge", "promote_due",
     "remove_consumer", "reap_expired", "read_releases", "release_token", "forget_releases", "page_open_runs",
     "look_at_runs", "end_read"}
)  # fmt: skip
"""Calls a worker makes whether or not there is a run: killing at one is killing between two others."""

_POINTS = ("claimed", "completed", "responsible")
"""After a claim that started; after a completion was recorded; after one that made this worker responsible."""


def die() -> None:
    """As the kernel's OOM killer does it: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


def inject(kill: str, trace: str) -> Callable[[Observation], None]:
    """Put the fault into this process; returns the observer that watches for named points."""
    where, _, what = kill.partition(":")
    original = Connection._repeat
    counted = 0

    async def repeat(self: Connection, op: str, attempt: Callable[[], Awaitable[Any]], patience_ms: int | None) -> Any:
        nonlocal counted
        if "CHAOS_FLUSH" in os.environ:
            await self.commands.script_flush()
        if op in _BACKGROUND:
            return await original(self, op, attempt, patience_ms)
        if op != "read":  # an empty read is no boundary of anything
            counted += 1
            mine = counted
            _note(trace, f"{mine} {op}")
            if where == "before" and what == str(mine):
                die()
        reply = await original(self, op, attempt, patience_ms)
        if op == "read":
            if not reply:
                return reply
            counted += 1
            mine = counted
            _note(trace, f"{mine} {op}")
            if where == "before" and what == str(mine):
                die()
        if where == "after" and what == str(mine):
            die()
        return reply

    Connection._repeat = repeat  # type: ignore[method-assign]
    if where == "point":
        assert what in _POINTS, what
        if what == "responsible":
            _die_when_responsible()

    def watch(seen: Observation) -> None:
        if where != "point":
            return
        if what == "claimed" and isinstance(seen, StepClaimed) and seen.outcome == "started":
            die()
        if what == "completed" and isinstance(seen, StepEnded) and seen.outcome == "completed":
            die()

    return watch


def _die_when_responsible() -> None:
    original = Deliveries.complete_then

    def complete_then(self: Deliveries, item: Any, done: Callable[[Recorded | BaseException], None]) -> None:
        def recorded(answer: Recorded | BaseException) -> None:
            if isinstance(answer, Recorded) and answer.detail == "responsible":
                die()
            done(answer)

        original(self, item, recorded)

    Deliveries.complete_then = complete_then  # type: ignore[method-assign]


def _note(trace: str, line: str) -> None:
    if trace:
        with open(trace, "a") as file:
            file.write(line + "\n")


async def main(app_name: str, url: str, options: dict[str, Any]) -> int:
    """Work until SIGTERM; returns how many bodies still run in threads."""
    module, _, name = app_name.partition(":")
    app = getattr(importlib.import_module(module), name or "wf")
    watch = inject(os.environ.get("CHAOS_KILL", ""), os.environ.get("CHAOS_TRACE", ""))
    async with World.connect(settings=Settings(url=url, **options)) as world:
        with observing(watch):
            worker = Worker(world, app)
            await run_until_signalled(worker)
            return worker.abandoned


if __name__ == "__main__":
    logging.basicConfig(
        level=os.environ.get("CHAOS_LOG", "INFO"), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    if anyio.run(main, sys.argv[1], sys.argv[2], json.loads(sys.argv[3])):
        os._exit(0)  # as `redisworld worker` does: the interpreter would wait for those threads
