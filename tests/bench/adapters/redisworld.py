"""redisworld: durable workflows, replayed from their log; steps travel on Redis Streams.

An adapter of the peers' harness (see ../README.md): it is copied beside the others there, and ``common`` is theirs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

import common
from adapters.base import BaseAdapter

from redisworld import Run, Settings, Workflows, World

wf = Workflows()

_AT_ONCE = 64
_BRANCHES = 500


@wf.step
async def step(i: int) -> None:
    """The no-op task."""
    common.mark(i)


@wf.workflow
async def noop(i: int) -> None:
    """A task by itself: a run of one step."""
    await step(i)


@wf.workflow
async def branches(base: int, b: int) -> None:
    """Tasks as queued steps of one run."""
    await asyncio.gather(*(step(i) for i in range(base, base + b)))


@wf.workflow
async def fan(base: int, b: int) -> None:
    """Branches, and a step that marks the join: a body has no clock of its own."""
    await asyncio.gather(*(step(i) for i in range(base, base + b)))
    await step(base + b)


@wf.workflow
async def steps(base: int, k: int) -> None:
    """Steps one after the other."""
    for i in range(base, base + k):
        await step(i)


class Adapter(BaseAdapter):
    """All through the public names: World.start, Run.result and ``redisworld worker``."""

    variants = {  # noqa: RUF012  as the harness has it
        "": "defaults, concurrency 64, no /metrics; a task is a run of one step, which its worker does inline",
        "steps": "W1's tasks are the steps of fan-outs of 500, so 499 of 500 go through the queue",
        "queued": "as the first, with max_inline_steps 0: every step goes through the queue",
        "metrics": "as the first, and the worker serves /metrics",
        "p1": "as the first, with one partition instead of four",
        "uvloop": "as the first, and the worker runs on uvloop",
        "steps-uvloop": "as steps, and the worker runs on uvloop",
    }
    fanout_style = "workflow"
    chain_style = "workflow"

    def worker_argv(self) -> list[str]:
        """The command line that a user has."""
        port = "0" if self.variant == "metrics" else "none"
        return [
            *(sys.executable, "-m", "redisworld", "worker", "adapters.redisworld:wf", "--url", common.REDIS_URL),
            *("--concurrency", str(common.CONCURRENCY), "--metrics-host", "127.0.0.1", "--metrics-port", port),
            *("--log-level", "warning", "--uvloop" if self.variant.endswith("uvloop") else "--no-uvloop"),
        ]

    def worker_env(self) -> dict[str, str]:
        """Settings without an option."""
        return {"REDISWORLD_MAX_INLINE_STEPS": "0"} if self.variant == "queued" else {}

    async def open(self) -> None:
        """Connect; the first one makes the namespace, with its partitions."""
        partitions = 1 if self.variant == "p1" else 4
        self.connecting = World.connect(settings=Settings(url=common.REDIS_URL, partitions=partitions))
        self.world = await self.connecting.__aenter__()

    async def close(self) -> None:
        """Disconnect."""
        await self.connecting.__aexit__(None, None, None)

    async def enqueue(self, i: int) -> None:
        """Start a run of one step."""
        await self.world.start(noop, i)

    async def enqueue_many(self, indices: Iterable[int]) -> None:
        """Start runs, 64 at once; in the variant ``steps`` few runs of many steps."""
        numbers = iter(indices)
        if self.variant.startswith("steps"):
            tasks = list(numbers)
            for k in range(0, len(tasks), _BRANCHES):
                chunk = tasks[k : k + _BRANCHES]
                await self.world.start(branches, chunk[0], len(chunk))
            return

        async def start() -> None:
            for i in numbers:
                await self.world.start(noop, i)

        await asyncio.gather(*(start() for _ in range(_AT_ONCE)))

    async def fanout(self, base: int, b: int) -> Run:
        """Start the workflow."""
        return await self.world.start(fan, base, b)

    async def fanout_result(self, handle: Any) -> None:
        """The result is pushed."""
        await handle.result()

    async def chain(self, base: int, k: int) -> None:
        """Start the workflow."""
        await self.world.start(steps, base, k)
