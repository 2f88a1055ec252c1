"""Does a run go on when Redis comes back with less than it had? (docs/guarantees.md, a lost AOF tail or a failover)"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from consumers.worker import Worker
from redisworld import Settings, Workflows, World
from redisworld.events import EventKind
from redisworld.world import Committed, Loaded

pytestmark = pytest.mark.anyio

wf = Workflows()
bodies: list[str] = []


@wf.step
async def note(text: str) -> str:
    bodies.append(text)
    return text


@wf.workflow
async def two_notes() -> list[str]:
    timer = asyncio.create_task(asyncio.sleep(3600))  # or the end of a step would come with the next pass, and no load
    notes = [await note("a"), await note("b")]
    timer.cancel()
    return notes


async def test_a_body_in_memory_is_dropped_when_the_log_is_shorter_than_what_it_has_seen(
    redis_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies.clear()
    async with World.connect(settings=Settings(url=redis_url)) as world:
        commit, load = world.deliveries.commit, world.deliveries.load
        before: dict[bytes, bytes] = {}
        gone_back = False

        async def commit_and_remember(*args: Any, **kwargs: Any) -> Committed:
            if not before:
                before.update({key: raw.dump(key) for key in raw.scan_iter("rw:*")})
            return await commit(*args, **kwargs)

        async def load_from_an_older_redis(*args: Any, **kwargs: Any) -> Loaded:
            nonlocal gone_back
            if kwargs["start"] and not gone_back:  # a warm load: the first commit and the completion are lost
                gone_back = True
                raw.flushall()
                for key, value in before.items():
                    raw.restore(key, 0, value)
            return await load(*args, **kwargs)

        monkeypatch.setattr(world.deliveries, "commit", commit_and_remember)
        monkeypatch.setattr(world.deliveries, "load", load_from_an_older_redis)
        async with anyio.create_task_group() as tasks:
            worker = Worker(world, wf)
            tasks.start_soon(worker.run)
            run = await world.start(two_notes)
            assert await run.result(timeout=20) == ["a", "b"]
            worker.stop()
        kinds = [event.kind async for event in run.events()]

    assert gone_back
    # what was lost ran again, and the log that is there is whole
    assert bodies == ["a", "a", "b"]
    assert kinds.count(EventKind.STEP_CREATED) == 2
    assert kinds.count(EventKind.STEP_COMPLETED) == 2
