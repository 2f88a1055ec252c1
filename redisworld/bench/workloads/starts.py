"""How many runs a second does one caller start?"""

from __future__ import annotations

import asyncio

from redisworld.bench import app, floor
from redisworld.bench.results import Result, beside
from redisworld.bench.session import Options, Progress, opened


async def measure(options: Options, progress: Progress, *, count: int, concurrency: int) -> list[Result]:
    """One result: start calls, so many at once, with no worker to share the machine with."""
    async with opened(options, slots=1, progress=progress) as session:
        numbers = iter(range(count))

        async def start() -> None:
            for number in numbers:
                progress("starts", number, count)
                await session.world.start(app.fanout, -1, 1)

        # sends the script's text and makes the connections
        await asyncio.gather(*(session.world.start(app.fanout, -1, 1) for _ in range(concurrency)))
        before, began = await session.meter.snapshot(), session.now_ns()
        await asyncio.gather(*(start() for _ in range(concurrency)))
        seconds = (session.now_ns() - began) / 1e9
        spent = session.meter.between(before, await session.meter.snapshot())
        progress("floor", 0, 1)
        bare = await floor.adding(session, count, concurrency)
    result = Result(
        workload="starts",
        parameters={"count": count, "concurrency": concurrency},
        starts_per_s=round(count / seconds, 1),
        per_start=spent.per(count),
    )
    return [beside(result, bare)]
