"""How late does a run go on after a durable sleep?"""

from __future__ import annotations

import asyncio

from redisworld.bench import app
from redisworld.bench.results import Result, quantiles
from redisworld.bench.session import Options, Progress, opened


async def measure(options: Options, progress: Progress, *, count: int, delay_ms: int) -> list[Result]:
    """One result: from the due time to the body of the step that follows the sleep.

    The due time is taken from the step before the sleep, by the clock of the bodies, so no two clocks are compared.
    """
    async with opened(options, slots=2 * count, progress=progress) as session, session.workers():
        first, runs = session.marks.give(2 * count), []
        for number in range(count):
            progress("sleeps", number, count)
            runs.append(await session.world.start(app.timer, first + 2 * number, delay_ms))
            await session.pause()
        await asyncio.gather(*(session.finished(run) for run in runs))
        stamps = await session.started(first, 2 * count)
    late = [(after - before) / 1e6 - delay_ms for before, after in zip(stamps[::2], stamps[1::2], strict=True)]
    return [
        Result(
            workload="timers",
            parameters={"count": count, "delay_ms": delay_ms, "workers": options.workers},
            lateness_ms=quantiles(late),
        )
    ]
