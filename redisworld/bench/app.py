"""Which workflows does a bench run? An application like any other: ``redisworld worker redisworld.bench.app:wf``.

Its steps do nothing but mark their start, so what is measured is redisworld.
"""

from __future__ import annotations

import asyncio
import os

from redisworld import Workflows, hook, sleep
from redisworld.bench import marks, tether

wf = Workflows()

_marks = marks.inherited()
if _marks is not None:
    tether.hold()


@wf.step
async def noop(slot: int, body_ms: int = 0) -> int:
    """Mark the start, and last ``body_ms``."""
    if _marks is not None:
        _marks.mark(slot)
    if body_ms:
        await asyncio.sleep(body_ms / 1000)
    return slot


@wf.step
async def me() -> int:
    """The process that runs this step; it keeps the slot for a moment, so that others get some too."""
    await asyncio.sleep(0.005)
    return os.getpid()


@wf.workflow
async def who(steps: int) -> list[int]:
    """The processes that ran so many steps."""
    return await asyncio.gather(*(me() for _ in range(steps)))


@wf.workflow
async def fanout(first: int, branches: int, body_ms: int = 0) -> int:
    """``branches`` steps at once; a negative ``first`` marks nothing."""
    slots = range(first, first + branches) if first >= 0 else [-1] * branches
    return len(await asyncio.gather(*(noop(slot, body_ms) for slot in slots)))


@wf.workflow
async def sequence(first: int, steps: int) -> int:
    """``steps`` steps, each after the one before it."""
    for slot in range(first, first + steps):
        await noop(slot)
    return steps


@wf.workflow
async def timer(first: int, delay_ms: int) -> int:
    """A step, a durable sleep, a step."""
    await noop(first)
    await sleep(f"{delay_ms}ms")
    return await noop(first + 1)


@wf.workflow
async def hooked(token: str, steps: int, payloads: int) -> int:
    """A log of so many unmarked steps, then a marked step for each payload, which names the slot."""
    for _ in range(steps):
        await noop(-1)
    taken = 0
    async with hook(int, token=token) as slots:
        async for slot in slots:
            await noop(slot)
            taken += 1
            if taken == payloads:
                break
    return taken
