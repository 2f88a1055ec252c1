"""What does a step cost in a run of thousands of steps, compared with one at its beginning?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from redisworld import Settings, Workflows, World, scripts
from tests.conformance.harness import Consumers

wf = Workflows()


@wf.step
async def one(number: int) -> int:
    return number


@wf.workflow
async def sequential(count: int) -> int:
    total = 0
    for number in range(count):
        total += await one(number + 1_000_000)  # arguments of one width
    return total


@wf.workflow
async def in_chains(chains: int, length: int) -> int:
    async def chain(first: int) -> int:
        return sum([await one(first + number) for number in range(length)])

    return sum(await asyncio.gather(*(chain(1_000_000 + length * number) for number in range(chains))))


@dataclass(frozen=True)
class Cost:
    """Script calls and bytes (arguments and replies), per step."""

    calls: float
    bytes: float


@dataclass(frozen=True)
class Measured:
    """A run's result, and its costs around the tenth step and at the end."""

    result: int
    early: Cost
    late: Cost


_WINDOW = 10


async def measure(url: str, raw: redis.Redis, workflow: str, *args: int, steps: int, **settings: Any) -> Measured:
    """Run the workflow on an emptied Redis, counting what each step costs."""
    for name in scripts.names():
        raw.script_load(scripts.load(name).text)
    async with World.connect(settings=Settings(url=url, partitions=1, **settings)) as world:
        meter = _Meter(world)
        consumers = Consumers(world, wf, raw, metrics=False)
        await world.queue.ensure_groups([consumers.stream("steps"), consumers.stream("workflows")])
        run = await world.start(wf.workflows[workflow], *args)
        await consumers.drain()
        result = await run.result(timeout=10)
        consumers.orchestrator.close()
        return Measured(result, meter.cost(_WINDOW), meter.cost(steps - 2 * _WINDOW))


class _Meter:
    """Counts a World's script calls and bytes up to each completion."""

    def __init__(self, world: World) -> None:
        self._call = world.call
        self._calls = self._bytes = 0
        self._marks: list[tuple[int, int]] = []
        world.call = self._counting  # type: ignore[method-assign]

    async def _counting(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        reply = await self._call(name, *args, **kwargs)
        self._calls += 1
        self._bytes += _size(args[1:]) + _size(reply)
        if name == "complete_many" or "did" in args:  # the end of a step, alone or with the pass that it leads to
            self._marks.append((self._calls, self._bytes))
        return reply

    def cost(self, start: int) -> Cost:
        calls, size = (after - before for before, after in zip(*self._window(start), strict=True))
        return Cost(calls / _WINDOW, size / _WINDOW)

    def _window(self, start: int) -> tuple[tuple[int, int], tuple[int, int]]:
        return self._marks[start], self._marks[start + _WINDOW]


def _size(value: object) -> int:
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, Sequence):
        return sum(map(_size, value))
    return len(str(value))
