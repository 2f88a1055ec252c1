"""What does a worker cost that has nothing to do?"""

from __future__ import annotations

import asyncio

from redisworld.bench.results import Result
from redisworld.bench.session import Options, Progress, opened

_SETTLE_S = 8.0
"""After warming up: loops that had something come to rest, and the first sweep, after a fifth of a lease, is over."""


async def measure(options: Options, progress: Progress, *, seconds: int) -> list[Result]:
    """One result, for all workers together: counts per second; memory and CPU where there is /proc.

    A worker sweeps all streams once a lease (30 s): a shorter time may hold a whole sweep or none.
    """
    async with opened(options, slots=1, progress=progress) as session, session.workers() as processes:
        await asyncio.sleep(_SETTLE_S)
        before, began = await session.meter.snapshot(), session.now_ns()
        cpu_before = [process.cpu_s() for process in processes]
        for second in range(seconds):
            progress("idle", second, seconds)
            await asyncio.sleep(1)
        after, took = await session.meter.snapshot(), (session.now_ns() - began) / 1e9
        cpu_after, rss = [process.cpu_s() for process in processes], [process.rss_mib() for process in processes]
    per_second = session.meter.between(before, after).per(took)
    return [
        Result(
            workload="idle",
            parameters={"seconds": seconds, "workers": options.workers},
            commands_per_s=per_second.commands,
            script_calls_per_s=per_second.script_calls,
            redis_us_per_s=per_second.redis_us,
            bytes_per_s=per_second.bytes,
            cpu_ms_per_s=_total(
                [
                    None if a is None or b is None else (b - a) * 1000 / took
                    for a, b in zip(cpu_before, cpu_after, strict=True)
                ]
            ),
            rss_mib=_total(rss),
        )
    ]


def _total(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 1) if len(known) == len(values) else None
