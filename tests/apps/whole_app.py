"""Runs that use all there is, to see what is left of them (case A41)."""

from __future__ import annotations

import asyncio

from redisworld import Workflows, hook, sleep
from tests.apps.chaos_app import noted

wf = Workflows()


@wf.step
async def one(number: int) -> int:
    return number


@wf.step
async def endless() -> None:
    noted("endless")
    await asyncio.sleep(3_600)


@wf.workflow
async def whole(number: int) -> int:
    """Four steps, a timer, and a hook of its own."""
    handle = hook(token=f"token-{number}")
    total = await one(1) + sum(await asyncio.gather(one(2), one(3)))
    await sleep(0.01)
    handle.dispose()
    return total + await one(4)


@wf.workflow
async def half(number: int) -> str:
    """Waits for ever in its second step, with a hook open and a timer set."""
    hook(token=f"half-{number}")
    await one(1)
    timer = asyncio.ensure_future(sleep("1h"))
    await endless()
    await timer
    return "never"


@wf.workflow
async def waits_for_a_hook(token: str) -> int:
    async with hook(int, token=token) as handle:
        return await handle


@wf.workflow
async def sleeps(seconds: float) -> int:
    await sleep(seconds)
    return await one(7)
