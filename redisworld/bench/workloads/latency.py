"""How long from the start call to the first body, when the worker is idle?"""

from __future__ import annotations

from redisworld.bench import app, floor
from redisworld.bench.results import Result, beside, quantiles
from redisworld.bench.session import Options, Progress, opened


async def measure(options: Options, progress: Progress, *, count: int) -> list[Result]:
    """One result: of runs of one step, one after the other."""
    async with opened(options, slots=2 * count, progress=progress) as session:
        async with session.workers():
            took, totals = [], []
            before = await session.meter.snapshot()
            for number in range(count):
                progress("starts", number, count)
                slot, began = session.marks.give(1), session.now_ns()
                run = await session.world.start(app.fanout, slot, 1)
                await session.finished(run)
                totals.append((session.now_ns() - began) / 1e6)
                [start] = await session.started(slot, 1)
                took.append((start - began) / 1e6)
                await session.pause()
            spent = session.meter.between(before, await session.meter.snapshot())
        progress("floor", 0, 1)
        bare = await floor.singly(session, count)
    result = Result(
        workload="latency",
        parameters={"count": count, "workers": options.workers},
        latency_ms=quantiles(took),
        total_ms=quantiles(totals),
        per_step=spent.per(count),
    )
    return [beside(result, bare)]
