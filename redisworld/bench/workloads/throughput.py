"""How many no-op queued steps a second do workers get through that find all of them waiting?"""

from __future__ import annotations

import asyncio

from redisworld.bench import app, floor
from redisworld.bench.results import Result, beside
from redisworld.bench.session import Options, Progress, opened

_BRANCHES = 1_000
"""Of one run; its one inline step in a thousand does not matter."""


async def measure(options: Options, progress: Progress, *, steps: int, concurrency: int) -> list[Result]:
    """One result. The runs are started while no worker is there, then drained: replays and commits included."""
    sizes = [_BRANCHES] * (steps // _BRANCHES) + ([steps % _BRANCHES] if steps % _BRANCHES else [])
    async with opened(options, slots=2 * steps, progress=progress, concurrency=concurrency) as session:
        first = session.marks.give(steps)
        runs = [
            await session.world.start(app.fanout, first + number * _BRANCHES, size) for number, size in enumerate(sizes)
        ]
        before = await session.meter.snapshot()
        async with session.workers(warm=False):
            starts = sorted(await session.started(first, steps, label="draining", poll_s=0.02))
            await asyncio.gather(*(session.finished(run) for run in runs))
            spent = session.meter.between(before, await session.meter.snapshot())
        progress("floor", 0, 1)
        bare = await floor.prepared(session, steps)
    result = Result(
        workload="throughput",
        parameters={"steps": steps, "concurrency": concurrency, "workers": options.workers},
        steps_per_s=floor.middle_rate(starts),
        per_step=spent.per(steps),
    )
    return [beside(result, bare)]
