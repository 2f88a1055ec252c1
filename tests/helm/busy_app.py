"""Which application do the tests of a running pod start?"""

from __future__ import annotations

import asyncio
import time

from redisworld import Workflows, sleep

wf = Workflows()


@wf.step
async def slept(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@wf.step(max_retries=2, timeout="10m")
def burnt(seconds: float) -> float:
    """Keeps a CPU busy for so long by the clock."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(10_000))
    return seconds


@wf.step(queue="side")
async def aside(number: int) -> int:
    return number


@wf.workflow
async def busy(branches: int, seconds: float) -> int:
    return len(await asyncio.gather(*(burnt(seconds) for _ in range(branches))))


@wf.workflow
async def waiting(seconds: float) -> float:
    return await slept(seconds)


@wf.workflow
async def lifelong(branches: int, seconds: float, pause: str) -> int:
    """Steps on two queues, a durable pause, and steps again."""
    first = await asyncio.gather(*(slept(seconds) for _ in range(branches)), aside(1))
    await sleep(pause)
    return len(first) + await aside(2)
