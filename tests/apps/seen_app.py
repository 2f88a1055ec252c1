"""The application of the observability tests: one workflow for each thing that a board has to show."""

from __future__ import annotations

import asyncio
import os

import redis

from redisworld import Backoff, Workflows, get_step_metadata, hook, sleep

wf = Workflows()


@wf.step
async def leaf(number: int) -> int:
    return number


@wf.step(queue="side")
async def aside() -> int:
    return 1


@wf.step(max_retries=2, backoff=Backoff(first_ms=50))
async def second_time() -> None:
    if get_step_metadata().attempt == 1:
        raise ValueError("not at the first time")


@wf.step(max_retries=0)
async def never() -> None:
    raise ValueError("never")


@wf.step
async def gated(gate: str) -> None:
    """Waits until the key ``gate`` is there; says that it waits by the list ``<gate>:held``, of process ids."""
    with redis.Redis.from_url(os.environ["CHAOS_REDIS"]) as client:
        client.rpush(f"{gate}:held", os.getpid())
        while not client.exists(gate):  # noqa: ASYNC110 the gate is in Redis
            await asyncio.sleep(0.02)


@wf.workflow
async def fans_out(width: int) -> int:
    """The first child runs inline, all others are queued, and so is the one of the queue ``side``."""
    return sum(await asyncio.gather(*(leaf(n) for n in range(width)), aside()))


@wf.workflow
async def retries() -> None:
    await second_time()


@wf.workflow
async def fails() -> None:
    await never()


@wf.workflow
async def sleeps(seconds: float) -> None:
    await sleep(seconds)


@wf.workflow
async def asks(token: str) -> str:
    return await hook(str, token=token)


@wf.workflow
async def waits(gate: str) -> None:
    await asyncio.gather(leaf(0), gated(gate))
