"""Do bodies that stay in memory save the replay, and change nothing else? (design section 10, sticky instances)"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import msgspec
import pytest
import redis

from consumers.live import Live
from consumers.sticky import Sticky
from consumers.worker import Worker
from redisworld import RunCancelled
from redisworld.messages import WorkflowMessage
from redisworld.observe import BodyTaken
from redisworld.world import Committed, Loaded
from tests.apps import conf_app
from tests.chaos import invariants
from tests.chaos.processes import eventually
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers, monitored

pytestmark = pytest.mark.anyio


def kept(consumers: Consumers) -> Sticky:
    """The bodies that wait in this process's memory."""
    return consumers.orchestrator._sticky


def sources(consumers: Consumers, run_id: str = "r") -> list[str]:
    """Where the run's body came from, for each message that continued it."""
    return [seen.source for seen in consumers.saw(BodyTaken) if seen.run_id == run_id]


def loads(consumers: Consumers) -> list[Loaded]:
    """Everything this World loads from now on."""
    load, found = consumers.world.deliveries.load, []

    async def noting(*args: Any, **kwargs: Any) -> Loaded:
        found.append(await load(*args, **kwargs))
        return found[-1]

    consumers.world.deliveries.load = noting  # type: ignore[method-assign]
    return found


async def started(consumers: Consumers, count: int, run_id: str = "r") -> None:
    """A chain of steps, its first one queued."""
    await consumers.world.start(conf_app.chain, count, run_id=run_id)
    await consumers.wake()


async def total(consumers: Consumers, run_id: str = "r") -> Any:
    """The chain's result."""
    return await consumers.world.run(run_id, conf_app.chain).result(timeout=5)


# -- what it saves


async def test_the_fiftieth_wake_loads_and_says_as_much_as_the_fifth(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    async with connect(max_inline_steps=0) as consumers:
        loaded = loads(consumers)
        await started(consumers, 60)
        said = []
        for _ in range(55):
            with monitored(redis_url) as calls:
                await consumers.step()
            said.append(calls())
        assert said[50] == said[5]
        assert len(loaded[50].elements) == len(loaded[5].elements) <= 5
        early, late = (sum(map(len, loaded[number].elements)) for number in (5, 50))
        assert late <= early * 1.05, "ids have one digit more, and that is all"
        await consumers.drain()
        assert await total(consumers) == sum(2 * number for number in range(60))
    invariants.check(raw, conf_app.wf)


async def test_a_message_finds_the_body_on_its_first_pass_then_warm_and_cold_in_another_process(
    connect: Connect,
) -> None:
    async with connect(max_inline_steps=0) as one, connect(max_inline_steps=0) as other:
        await started(one, 4)
        await one.step()
        await one.step()
        assert sources(one) == ["first", "warm", "warm"]
        one.seen.clear()
        other.seen.clear()
        await other.step()
        await one.step()
        assert set(sources(other)) <= {"cold", "warm"}
        assert sources(other)[0] == "cold"
        assert await total(one) == 12


async def test_the_metric_counts_where_bodies_came_from(connect: Connect) -> None:
    async with connect(max_inline_steps=0) as consumers:
        await started(consumers, 3)
        await consumers.drain()
        counted = {
            source: consumers.metric("redisworld_workflow_bodies_total", workflow="chain", source=source)
            for source in ("first", "warm", "cold")
        }
        assert counted == {"first": 1, "warm": 3, "cold": 0}


async def test_without_sticky_runs_none_is_kept_and_each_wake_is_cold(connect: Connect) -> None:
    async with connect(max_inline_steps=0, sticky_runs=0) as consumers:
        await started(consumers, 3)
        assert len(kept(consumers)) == 0
        await consumers.drain()
        assert sources(consumers) == ["first", "cold", "cold", "cold"]
        assert await total(consumers) == 6


# -- when there is too much


async def test_with_room_for_one_two_runs_in_turn_push_each_other_out_and_both_end_well(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect(max_inline_steps=0, sticky_runs=1) as consumers:
        await started(consumers, 4, "a")
        await started(consumers, 4, "b")
        while (delivery := await consumers.take("steps")) is not None:
            await consumers.process(delivery)
            assert len(kept(consumers)) <= 1
        assert sources(consumers, "a") == ["first", *4 * ["cold"]]
        assert [await total(consumers, "a"), await total(consumers, "b")] == [12, 12]
    invariants.check(raw, conf_app.wf)


async def test_the_bodies_that_waited_longest_go_when_all_have_seen_too_many_events(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect(max_inline_steps=0) as consumers:
        bounded = consumers.orchestrator._sticky = Sticky(100, most_events=12)
        for run_id in ("a", "b", "c"):
            await started(consumers, 5, run_id)
        while (delivery := await consumers.take("steps")) is not None:
            await consumers.process(delivery)
            seen = sum(live.instance.consumed for live in bounded._bodies.values())
            assert seen == bounded._events <= 12
        assert {"warm", "cold"} >= set(sources(consumers, "c")[1:])
        assert "cold" in sources(consumers, "c")
        assert [await total(consumers, run_id) for run_id in ("a", "b", "c")] == [20, 20, 20]
        assert (len(bounded), bounded._events) == (0, 0)
    invariants.check(raw, conf_app.wf)


# -- when the log is not what the body has seen


async def test_two_processes_that_continue_a_run_in_turn_give_one_result(raw: redis.Redis, connect: Connect) -> None:
    async with connect(max_inline_steps=0) as one, connect(max_inline_steps=0) as other:
        await started(one, 10)
        for number in range(10):
            await (other, one)[number % 2].step()
        assert await total(one) == 90
        assert conf_app.executions("double") == 10
        assert sources(one).count("cold") == 1, "only the other one's first wake"
    invariants.check(raw, conf_app.wf)


async def test_a_store_that_went_back_is_replayed_from_the_start(raw: redis.Redis, connect: Connect) -> None:
    """A failover: the body in memory has seen events that the store has lost."""
    async with connect(max_inline_steps=0) as consumers:
        await started(consumers, 4)
        await consumers.step()
        before: dict[Any, Any] = {key: raw.dump(key) for key in raw.keys()}  # noqa: SIM118  # a Redis client is no mapping
        await consumers.step()
        assert len(kept(consumers)) == 1
        for key in raw.keys():  # noqa: SIM118
            raw.delete(key)
        for key, value in before.items():
            raw.restore(key, 0, value)
        loaded = loads(consumers)
        await consumers.drain()
        assert [found.length for found in loaded[:2]] == [loaded[0].length] * 2, "loaded again, from the start"
        assert len(loaded[1].elements) == loaded[1].length
        assert await total(consumers) == 12
    invariants.check(raw, conf_app.wf)


async def test_a_shorter_log_an_older_pass_and_another_element_are_not_continued(connect: Connect) -> None:
    async with connect(max_inline_steps=0) as consumers:
        loaded = loads(consumers)
        await started(consumers, 4)
        await consumers.step()
        live = kept(consumers).take("r")
        assert live is not None
        last = loaded[-1].elements[-1]
        now = msgspec.structs.replace(loaded[-1], elements=(last,), replayed_to=live.replayed_to)
        assert live.continues(now)
        assert not live.continues(msgspec.structs.replace(now, length=live.instance.consumed - 1))
        assert not live.continues(msgspec.structs.replace(now, replayed_to=live.replayed_to - 1))
        assert not live.continues(msgspec.structs.replace(now, elements=(last + b" ",)))
        assert not live.continues(msgspec.structs.replace(now, elements=()))
        live.close()
        await consumers.drain()
        assert await total(consumers) == 12


async def test_a_body_that_diverged_is_dropped_and_the_recovery_replays_it(raw: redis.Redis, connect: Connect) -> None:
    async with connect(max_inline_steps=0) as consumers:
        await started(consumers, 3)
        commit = consumers.world.deliveries.commit

        async def diverges(*args: Any, **kwargs: Any) -> Committed:
            consumers.world.deliveries.commit = commit  # type: ignore[method-assign]
            return Committed("diverged", detail="another step there")

        consumers.world.deliveries.commit = diverges  # type: ignore[method-assign]
        await consumers.step()
        assert len(kept(consumers)) == 0
        await consumers.drain()
        assert sources(consumers)[:3] == ["first", "warm", "cold"]
        assert await total(consumers) == 6
    invariants.check(raw, conf_app.wf)


# -- ends


async def test_a_body_that_waits_in_memory_is_cancelled_there(raw: redis.Redis, connect: Connect) -> None:
    async with connect() as consumers:
        run = await consumers.world.start(conf_app.napped, 3_600.0, run_id="r")
        await consumers.wake()
        await run.cancel()
        await consumers.drain(later=False)
        assert sources(consumers) == ["first", "warm"]
        assert len(kept(consumers)) == 0
        with pytest.raises(RunCancelled):
            await run.result(timeout=5)
        await consumers.drain()
    invariants.check(raw, conf_app.wf)


async def test_a_run_that_ended_elsewhere_leaves_at_most_a_body_that_the_bound_removes(connect: Connect) -> None:
    async with connect(max_inline_steps=0, sticky_runs=1) as one, connect(max_inline_steps=0) as other:
        await started(one, 1, "a")
        await other.drain()
        assert await total(one, "a") == 0
        assert len(kept(one)) == 1
        await started(one, 1, "b")
        assert list(kept(one)._bodies) == ["b"]
        await one.drain()


async def test_a_worker_that_stops_drops_all_bodies(connect: Connect) -> None:
    async with connect() as consumers:
        worker = Worker(consumers.world, conf_app.wf)
        sticky = worker._orchestrator._sticky
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            for number in range(3):
                await consumers.world.start(conf_app.napped, 3_600.0, run_id=f"r{number}")
            await eventually(lambda: len(sticky) == 3)
            lives = list(sticky._bodies.values())
            worker.stop()
        assert len(sticky) == 0
        assert all(live.instance._body.loop.is_closed() for live in lives)


async def test_no_body_is_used_by_two_jobs_at_once(
    raw: redis.Redis, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten wakes of one run arrive together, most of them strays."""
    busy: set[int] = set()
    feed, commits = Live.feed, 0

    async def feeding(live: Live, loaded: Loaded) -> None:
        assert id(live) not in busy
        busy.add(id(live))
        await asyncio.sleep(0)
        await feed(live, loaded)
        busy.remove(id(live))
        nonlocal commits
        commits += 1

    monkeypatch.setattr(Live, "feed", feeding)
    async with connect(max_inline_steps=0) as consumers:
        await started(consumers, 6)
        for turn in range(6):
            for number in range(9):
                message = WorkflowMessage(
                    message_id=f"stray-{turn}-{number}", run_id="r", workflow_name="chain", reason="recovery"
                )
                consumers.put(message, kind="workflows")
            deliveries = await consumers.world.queue.read(
                [consumers.stream("steps"), consumers.stream("workflows")], count=20
            )
            assert len(deliveries) == 10
            await asyncio.gather(*(consumers.process(delivery) for delivery in deliveries))
            assert len(kept(consumers)) <= 1
        assert commits >= 6
        assert await total(consumers) == 30
        assert conf_app.executions("double") == 6
    invariants.check(raw, conf_app.wf)
