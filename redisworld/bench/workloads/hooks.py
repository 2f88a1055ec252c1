"""How long from the resume call to the body that goes on?"""

from __future__ import annotations

from redisworld.bench import app, floor
from redisworld.bench.results import Result, beside, quantiles
from redisworld.bench.resuming import resumed, waiting
from redisworld.bench.session import Options, Progress, opened


async def measure(options: Options, progress: Progress, *, count: int) -> list[Result]:
    """One result: payloads for one run, one after the other, each followed by a step."""
    async with opened(options, slots=2 * count, progress=progress) as session:
        async with session.workers():
            run = await session.world.start(app.hooked, "bench-hook", 0, count + 1)
            await waiting(session, "bench-hook")
            await resumed(session, "bench-hook", 1, label="")
            before = await session.meter.snapshot()
            took = await resumed(session, "bench-hook", count, label="resumes")
            spent = session.meter.between(before, await session.meter.snapshot())
            await session.finished(run)
        progress("floor", 0, 1)
        bare = await floor.singly(session, count)
    result = Result(
        workload="hooks",
        parameters={"count": count, "workers": options.workers},
        latency_ms=quantiles(took),
        per_step=spent.per(count),
    )
    return [beside(result, bare)]
