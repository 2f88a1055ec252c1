"""Which application do the situations of docs/operations.md happen to?"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redisworld import RetryableError, Workflows, hook, sleep

wf = Workflows()


@wf.step
async def resize(image: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return image


@wf.step(max_retries=5)
async def pay(order: str) -> str:
    raise RetryableError("the bank does not answer", retry_after=timedelta(hours=1))


@wf.step(queue="gpu")
async def render(film: str) -> str:
    return film


@wf.step(queue="mail", max_retries=0)
async def send(address: str) -> str:
    raise ValueError(f"no such mailbox: {address}")


@wf.workflow
async def publish(image: str, seconds: float = 0) -> list[str]:
    return await asyncio.gather(*(resize(image, seconds) for _ in range(2)))


@wf.workflow
async def fulfil(order: str) -> str:
    return str(await hook(str, token=f"order:{order}"))


@wf.workflow
async def charge(order: str) -> str:
    return await pay(order)


@wf.workflow
async def film(name: str) -> str:
    return await render(name)


@wf.workflow
async def invite(address: str) -> str:
    return await send(address)


@wf.workflow
async def remind(text: str) -> str:
    await sleep("2h")
    return text
