"""What does a step cost that comes after another one, and does that grow with the run?"""

from __future__ import annotations

import itertools

from redisworld.bench import app, floor
from redisworld.bench.results import Bucket, Result, beside, quantile, quantiles
from redisworld.bench.session import Options, Progress, Session, opened

_PLACES = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000)
_GAPS = 10
"""At the least in a bucket and run: one gap is at the mercy of one interruption."""


async def measure(options: Options, progress: Progress, *, steps: int, rounds: int) -> list[Result]:
    """One result."""
    async with opened(options, slots=steps * (rounds + 2), progress=progress) as session:
        async with session.workers():
            await _run(session, min(steps, 50))
            before, runs = await session.meter.snapshot(), []
            for number in range(rounds):
                progress(f"sequence of {steps}", number, rounds)
                runs.append(await _run(session, steps))
            spent = session.meter.between(before, await session.meter.snapshot())
        progress("floor", 0, 1)
        bare = await floor.one_by_one(session, steps)
    stamps = [stamps for stamps, _ in runs]
    gaps = [_gaps(run) for run in stamps]
    buckets = [_bucket(gaps, at) for at in (*(place for place in _PLACES if place < steps), steps)]
    result = Result(
        workload="sequence",
        parameters={"steps": steps, "rounds": rounds, "workers": options.workers},
        total_ms=quantiles([total for _, total in runs]),
        steps_per_s=round(1000 / quantile([gap for run in gaps for gap in run], 0.5), 1),
        per_step=spent.per(steps * rounds),
        buckets=buckets,
        growth=round(buckets[-1].step_ms / buckets[0].step_ms, 3),
    )
    return [beside(result, bare)]


async def _run(session: Session, steps: int) -> tuple[list[int], float]:
    """The stamp of each step, and ms from the start call to the result."""
    slot, began = session.marks.give(steps), session.now_ns()
    run = await session.world.start(app.sequence, slot, steps)
    await session.finished(run)
    total = (session.now_ns() - began) / 1e6
    return await session.started(slot, steps), total


def _gaps(stamps: list[int]) -> list[float]:
    """Ms from the start of each step to the start of the next one."""
    return [(after - before) / 1e6 for before, after in itertools.pairwise(stamps)]


def _bucket(runs: list[list[float]], at: int) -> Bucket:
    """The median gap before step ``at``: of its last tenth, of ten steps at the least."""
    last = at - 1  # gap i lies between steps i + 1 and i + 2
    first = max(0, last - max(_GAPS, at // 10))
    values = [gap for gaps in runs for gap in gaps[first:last]]
    return Bucket(at=at, first=first + 2, last=at, step_ms=round(quantile(values, 0.5), 4))
