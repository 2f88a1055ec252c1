"""Which time does a body see, and does a replay see the same?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from consumers.worker import Worker
from redisworld import Settings, Workflows, World, now, sleep
from redisworld.events import EventKind

pytestmark = pytest.mark.anyio

wf = Workflows()


@wf.step
async def echo(text: str) -> str:
    return text


@wf.workflow
async def times() -> list[str]:
    first = now().isoformat()
    await sleep("300ms")  # woken by a timer: a cold replay, in another worker below
    return [first, await echo(now().isoformat())]


@pytest.mark.parametrize("max_inline_steps", [0, 1])
async def test_time_begins_when_the_body_first_runs_and_is_the_same_in_a_cold_replay(
    redis_url: str, raw: Any, max_inline_steps: int
) -> None:
    settings = Settings(url=redis_url, max_inline_steps=max_inline_steps)
    async with World.connect(settings=settings) as world:
        # given a run that waits for its first worker
        run = await world.start(times)
        await anyio.sleep(0.6)
        async with anyio.create_task_group() as tasks:
            worker = Worker(world, wf)
            tasks.start_soon(worker.run)
            first, _ = await run.result(timeout=20)
            worker.stop()
        events = {event.kind: event async for event in run.events()}

    # then its clock began at the start, to the millisecond of run_started, and so did its sleep
    created, started = events[EventKind.RUN_CREATED], events[EventKind.RUN_STARTED]
    assert started.at - created.at >= 500
    assert int(raw.time()[0]) * 1000 >= started.at - 1000
    assert first == _iso(started.at)
    assert int(events[EventKind.WAIT_CREATED].detail) == started.at + 300


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat()
