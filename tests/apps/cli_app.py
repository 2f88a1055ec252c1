"""Which application do the tests of the command line start?"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from datetime import date

from redisworld import Backoff, BaseHook, FatalError, Workflows, get_step_metadata, hook, sleep

wf = Workflows()

not_a_workflow = 3


@dataclass(frozen=True)
class Order:
    """An argument that JSON has no word for."""

    item: str
    due: date


@wf.step
async def double(n: int) -> int:
    return 2 * n


@wf.step(backoff=Backoff(first_ms=1))
def flaky(n: int) -> int:
    if get_step_metadata().attempt == 1:
        raise ValueError("not at the first time")
    return n


@wf.step(max_retries=0)
async def broken() -> None:
    raise FatalError("there is no\nsecond \x1b[31mtry")


@wf.step
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@wf.step(queue="heavy")
async def heavy() -> None:
    """A step of a named queue."""


@wf.workflow
async def doubled(n: int, times: int = 2) -> list[int]:
    return await asyncio.gather(*(double(n) for _ in range(times)), flaky(n))


@wf.workflow(name="order-due")
async def order_due(order: Order) -> date:
    return order.due


@wf.workflow
async def failing() -> None:
    await broken()


@dataclass(frozen=True)
class Approval(BaseHook):
    """A payload that JSON has no word for."""

    by: str
    due: date | None = None


@wf.workflow
async def approved(token: str) -> list[str]:
    approval = await Approval.wait(token=token, metadata={"asks": "kim"})
    return [type(approval).__name__, approval.by, str(approval.due)]


@wf.workflow
async def hooked(first: str, second: str) -> str:
    """Disposes of one hook, and waits at another."""
    async with hook(str, token=first) as taken:
        await taken
    return await hook(str, token=second)


@wf.workflow
async def stamped() -> None:
    """What it asks for depends on the time and on chance."""
    await double(time.time_ns() + uuid.uuid4().int % 1_000)
    await sleep("1h")


@wf.workflow
async def patient() -> None:
    await sleep("1h")


@wf.workflow
async def dawdling(seconds: float) -> str:
    return await slow(seconds)
