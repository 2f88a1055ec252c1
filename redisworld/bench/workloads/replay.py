"""How long does a cold replay take, for each event of the log?"""

from __future__ import annotations

from redisworld.bench import app
from redisworld.bench.results import Result, quantile, quantiles
from redisworld.bench.resuming import resumed, waiting
from redisworld.bench.session import Options, Progress, opened

_EVENTS_PER_STEP = 3
_TOKEN = "bench-replay"


async def measure(options: Options, progress: Progress, *, events: int, rounds: int) -> list[Result]:
    """One result: a resume of a run with that log, by a worker that keeps no bodies, against one that has it warm."""
    async with opened(options, slots=2 * rounds + 2, progress=progress) as session:
        steps = max(1, events // _EVENTS_PER_STEP)
        progress(f"a log of {events} events", 0, 1)
        async with session.workers():
            run = await session.world.start(app.hooked, _TOKEN, steps, 2 * rounds + 2)
            await waiting(session, _TOKEN)
            await resumed(session, _TOKEN, 1, label="")
            warm = await resumed(session, _TOKEN, rounds, label="warm")
        length = (await run.row()).log_length
        async with session.workers(REDISWORLD_STICKY_RUNS="0"):
            cold = await resumed(session, _TOKEN, rounds, label="cold")
            await resumed(session, _TOKEN, 1, label="")
            await session.finished(run)
    extra_ms = quantile(cold, 0.5) - quantile(warm, 0.5)
    return [
        Result(
            workload="replay",
            parameters={"events": length, "rounds": rounds, "workers": options.workers},
            total_ms=quantiles(cold),
            warm_ms=quantiles(warm),
            us_per_event=round(extra_ms * 1000 / length, 3),
        )
    ]
