"""What does a finished run of five steps weigh in Redis?"""

from __future__ import annotations

import asyncio

import msgspec

from redisworld import events
from redisworld.bench import app
from redisworld.bench.results import Result
from redisworld.bench.session import Options, Progress, Session, opened
from redisworld.events import EventKind, RunCreated
from redisworld.world import World

_STEPS = 5
_AT_ONCE = 64
_VALUES = (EventKind.STEP_CREATED, EventKind.STEP_COMPLETED, EventKind.RUN_COMPLETED)
_WARM_RUNS = 200
"""Until the streams, indexes and connections have what they keep."""


async def measure(options: Options, progress: Progress, *, runs: int) -> list[Result]:
    """One result: ``used_memory`` before and after, and the bytes of the values a run holds."""
    async with opened(options, slots=1, progress=progress) as session, session.workers():
        await _finish(session, _WARM_RUNS, label="")
        before = await session.meter.snapshot()
        run_id = await _finish(session, runs, label="runs")
        after = await session.meter.snapshot()
        payload = await payload_of(session.world, run_id)
    weight = round((after.memory - before.memory) / runs)
    return [
        Result(
            workload="memory",
            parameters={"runs": runs, "steps": _STEPS},
            bytes_per_run=weight,
            payload_bytes_per_run=payload,
            overhead_bytes_per_run=weight - payload,
        )
    ]


async def _finish(session: Session, runs: int, *, label: str) -> str:
    """Run so many to their end; the id of one."""
    numbers, finished = iter(range(runs)), [""]

    async def work() -> None:
        for number in numbers:
            if label:
                session.progress(label, number, runs)
            run = await session.world.start(app.fanout, -1, _STEPS)
            await session.finished(run)
            finished[0] = run.run_id

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    return finished[0]


async def payload_of(world: World, run_id: str) -> int:
    """Bytes of the values in a run's log: its input, the inputs and results of its steps, its result."""
    found = [events.parse(element) for element in await world.log(run_id)]
    values = sum(len(event.payload) for event in found if event.kind in _VALUES)
    return values + len(msgspec.msgpack.decode(found[0].payload, type=RunCreated).input)
