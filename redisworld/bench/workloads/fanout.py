"""How long until the first and the last branch of a fan-out start, and what does a branch cost?"""

from __future__ import annotations

from redisworld.bench import app, floor
from redisworld.bench.results import Result, beside, quantiles
from redisworld.bench.session import Options, Progress, Session, opened


async def measure(
    options: Options, progress: Progress, *, branches: list[int], rounds: int, concurrency: int, body_ms: int
) -> list[Result]:
    """One result for each number of branches, all on one Redis and with the same workers."""
    slots = sum(branches) * 2 * (rounds + 1)
    async with opened(options, slots=slots, progress=progress, concurrency=concurrency) as session:
        async with session.workers():
            results = [await _measured(session, count, rounds, body_ms) for count in branches]
        compared = []
        for result in results:
            count = int(result.parameters["branches"])
            progress(f"floor of {count}", 0, 1)
            compared.append(beside(result, await floor.batched(session, count, rounds, body_ms=body_ms)))
        return compared


async def _measured(session: Session, branches: int, rounds: int, body_ms: int) -> Result:
    await _round(session, branches, body_ms)  # the caches of this size: not measured
    before = await session.meter.snapshot()
    times = []
    for number in range(rounds):
        session.progress(f"fan-out of {branches}", number, rounds)
        times.append(await _round(session, branches, body_ms))
    spent = session.meter.between(before, await session.meter.snapshot())
    first, last, total = zip(*times, strict=True)
    ttls = quantiles(last)
    return Result(
        workload="fanout",
        parameters={
            "branches": branches,
            "rounds": rounds,
            "concurrency": session.settings.concurrency,
            "body_ms": body_ms,
            "workers": session.options.workers,
        },
        ttfs_ms=quantiles(first),
        ttls_ms=ttls,
        total_ms=quantiles(total),
        steps_per_s=round(branches / ttls.p50 * 1000, 1),
        per_step=spent.per(branches * rounds),
    )


async def _round(session: Session, branches: int, body_ms: int) -> tuple[float, float, float]:
    """TTFS, TTLS and total of one run, in ms since the start call."""
    slot, began = session.marks.give(branches), session.now_ns()
    run = await session.world.start(app.fanout, slot, branches, body_ms)
    await session.finished(run)
    ended = session.now_ns()
    starts = await session.started(slot, branches)
    return tuple((moment - began) / 1e6 for moment in (min(starts), max(starts), ended))  # type: ignore[return-value]
