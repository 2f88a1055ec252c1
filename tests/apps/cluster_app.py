"""Which application do the tests of a Redis Cluster run? Everything that touches keys of more than one kind."""

from __future__ import annotations

import asyncio

from redisworld import Workflows, get_writable, hook, sleep

wf = Workflows()


@wf.step
async def square(number: int) -> int:
    return number * number


@wf.step(queue="heavy")
async def add(numbers: list[int]) -> int:
    return sum(numbers)


@wf.step
async def tell(total: int) -> None:
    async with get_writable() as out:
        for number in range(3):
            await out.write(total + number)


@wf.workflow
async def whole(branches: int, token: str) -> list[int]:
    """A fan-out, a step of another queue, a durable sleep, an output stream, and a hook."""
    total = await add(list(await asyncio.gather(*(square(n) for n in range(branches)))))
    await sleep(0.2)
    await tell(total)
    return [total, await hook(int, token=token)]


@wf.workflow
async def loaded(rounds: int) -> int:
    """Fan-outs and short sleeps in turn: some of each is under way whenever something happens to Redis."""
    total = 0
    for number in range(rounds):
        total += await add(list(await asyncio.gather(*(square(number) for _ in range(3)))))
        await sleep(0.05)
    return total


def total_of(rounds: int) -> int:
    """What ``loaded`` returns."""
    return sum(3 * number * number for number in range(rounds))
