"""Does a run go on when Redis comes back with less than it had? (docs/guarantees.md, a lost AOF tail or a failover)"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from consumers.worker import Worker
from redisworld import Settings, Workflows, World, hook
from redisworld.events import EventKind
from redisworld.workflows import Workflow
from redisworld.world import Committed, Loaded
from tests.chaos.processes import eventually

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


def all_keys(raw: Any) -> dict[bytes, bytes]:
    """All that Redis holds of us."""
    return {key: raw.dump(key) for key in raw.scan_iter("rw:*")}


def restore(raw: Any, before: dict[bytes, bytes]) -> None:
    """Redis comes back with what it had then."""
    raw.flushall()
    for key, value in before.items():
        raw.restore(key, 0, value)


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
                before.update(all_keys(raw))
            return await commit(*args, **kwargs)

        async def load_from_an_older_redis(*args: Any, **kwargs: Any) -> Loaded:
            nonlocal gone_back
            if kwargs["start"] and not gone_back:  # a warm load: the first commit and the completion are lost
                gone_back = True
                restore(raw, before)
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


@wf.workflow
async def note_of_a_payload() -> str:
    return await note(await hook(str, token="goes-back"))


@wf.workflow
async def many_notes_of_a_payload() -> str:
    text = await hook(str, token="goes-back")
    return " ".join(sorted(set(await asyncio.gather(*(note(text) for _ in range(20))))))


@wf.workflow
async def note_of_two() -> list[str]:
    return await asyncio.gather(note("a"), note("b"))


@pytest.mark.parametrize(("workflow", "steps"), [(note_of_a_payload, 1), (many_notes_of_a_payload, 20)])
async def test_what_a_body_asks_for_after_a_payload_that_redis_has_lost_is_not_written(
    redis_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, workflow: Workflow[..., str], steps: int
) -> None:
    """The commit, in one call or in three, is on its way, or repeated, when Redis comes back without the payload."""
    bodies.clear()
    async with World.connect(settings=Settings(url=redis_url, chunk_steps=8)) as world:
        commit = world.deliveries.commit
        before: dict[bytes, bytes] = {}
        gone_back = anyio.Event()

        async def commit_to_an_older_redis(*args: Any, **kwargs: Any) -> Committed:
            if before and not gone_back.is_set():
                restore(raw, before)
                gone_back.set()
            return await commit(*args, **kwargs)

        monkeypatch.setattr(world.deliveries, "commit", commit_to_an_older_redis)
        async with anyio.create_task_group() as tasks:
            worker = Worker(world, wf)
            tasks.start_soon(worker.run)
            run = await world.start(workflow)
            row = world.partition(run.run_id).run(run.run_id)
            await eventually(lambda: raw.hget(row, "wake") == b"" and raw.hget(row, "replayed_to") != b"0")
            before.update(all_keys(raw))
            await world.resume("goes-back", "lost", resume_id="first")
            await gone_back.wait()
            await world.resume("goes-back", "kept", resume_id="second")
            assert await run.result(timeout=20) == "kept"
            worker.stop()
        kinds = [event.kind async for event in run.events()]

    assert bodies == ["kept"] * steps
    assert kinds.count(EventKind.STEP_CREATED) == steps


async def test_a_step_whose_completion_redis_has_lost_keeps_its_message_when_its_worker_commits_what_follows(
    redis_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies.clear()
    settings = Settings(url=redis_url, lease_ms=1_000, reclaim_every_ms=100, max_inline_steps=0)
    async with World.connect(settings=settings) as world:
        complete, commit = world.deliveries.complete_then, world.deliveries.commit
        before: dict[bytes, bytes] = {}
        commits = 0
        gone_back = False

        def remember_and_complete(*args: Any, **kwargs: Any) -> None:
            if not gone_back:
                before.clear()
                before.update(all_keys(raw))
            complete(*args, **kwargs)

        async def commit_to_an_older_redis(*args: Any, **kwargs: Any) -> Committed:
            nonlocal commits, gone_back
            commits += 1
            if commits == 2:
                restore(raw, before)
                gone_back = True
            return await commit(*args, **kwargs)

        monkeypatch.setattr(world.deliveries, "complete_then", remember_and_complete)
        monkeypatch.setattr(world.deliveries, "commit", commit_to_an_older_redis)
        async with anyio.create_task_group() as tasks:
            worker = Worker(world, wf)
            tasks.start_soon(worker.run)
            run = await world.start(note_of_two)
            assert await run.result(timeout=10) == ["a", "b"]
            worker.stop()

    assert gone_back
    assert sorted(set(bodies)) == ["a", "b"]
    assert len(bodies) in (3, 4)  # what was lost ran again
