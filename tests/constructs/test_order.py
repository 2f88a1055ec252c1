"""Do branches of one body move in the order of the log, without waiting for each other? (A11, A27)"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from functools import partial
from typing import Any

import pytest
import redis

from consumers.worker import Worker
from redisworld import Settings, Workflows, World, hook, sleep
from redisworld.events import Event, EventKind
from redisworld.keys import GROUP
from redisworld.messages import StepMessage
from redisworld.replay import Instance
from redisworld.world import Delivery
from tests.chaos import invariants
from tests.chaos.processes import eventually
from tests.conformance.harness import Consumers
from tests.constructs.catalogue import Construct
from tests.constructs.playing import player
from tests.constructs.steps import late, work
from tests.constructs.steps import wf as constructs

pytestmark = pytest.mark.anyio

wf = Workflows()
noted: list[Any] = []
gate: list[asyncio.Event] = []


@wf.step
async def slow() -> str:
    noted.append("slow began")
    await gate[0].wait()
    return "s"


@wf.step
async def note(value: int) -> int:
    noted.append(value)
    return value


@wf.step
async def big(size: int) -> bytes:
    return b"x" * size


@wf.step
async def after_step() -> None: ...


@wf.step
async def after_timer() -> None: ...


@wf.step
async def after_hook() -> None: ...


@wf.workflow
async def listens() -> list[Any]:
    beside = asyncio.create_task(slow())
    got: list[int] = []
    messages = hook(int, token="listens")
    while len(got) < 3:
        got.append(await note(await messages))
    return [got, await beside]


@wf.workflow
async def three_tasks() -> None:
    messages = hook(int, token="three")

    async def on_step() -> None:
        await big(2_000_000)
        await after_step()

    async def on_timer() -> None:
        await sleep(5)
        await after_timer()

    async def on_hook() -> None:
        await messages
        await after_hook()

    await asyncio.gather(on_step(), on_timer(), on_hook())


async def test_payloads_that_wake_a_run_leave_the_step_alone_that_runs_beside(redis_url: str, raw: redis.Redis) -> None:
    """A11: one step_created, one step_started, one body; the hook got its three payloads before the step ended."""
    noted.clear()
    gate[:] = [asyncio.Event()]
    async with World.connect(settings=Settings(url=redis_url, partitions=1)) as world, asyncio.TaskGroup() as tasks:
        worker = Worker(world, wf)
        tasks.create_task(worker.run())
        run = await world.start(listens, run_id="r")
        await eventually(lambda: "slow began" in noted)
        for payload in (1, 2, 3):
            await world.resume("listens", payload)
            await eventually(partial(noted.__contains__, payload))
        assert noted == ["slow began", 1, 2, 3]
        gate[0].set()
        assert await run.result(timeout=10) == [[1, 2, 3], "s"]
        worker.stop()
    log = invariants.log_of(raw, world.partitions[0], "r")
    [created] = [event for event in log if event.kind is EventKind.STEP_CREATED and event.detail == "slow"]
    kinds = [event.kind for event in log if event.id == created.id]
    assert kinds == [EventKind.STEP_CREATED, EventKind.STEP_STARTED, EventKind.STEP_COMPLETED]
    invariants.check(raw, wf)


@pytest.mark.parametrize("page", [3, 1_000])
async def test_what_three_tasks_start_next_is_asked_for_in_the_order_of_the_log(
    redis_url: str, raw: redis.Redis, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A27: a result of 2 MB, a timer and a payload, in all orders, before the body sees any; 100 replays in all."""
    settings = Settings(url=redis_url, partitions=1, log_page=page, max_inline_steps=0, sticky_runs=0)
    async with World.connect(settings=settings) as world:
        consumers = Consumers(world, wf, raw, metrics=False)
        await world.queue.ensure_groups([consumers.stream("steps"), consumers.stream("workflows")])
        for number, order in enumerate(itertools.permutations(("step", "timer", "hook"))):
            run_id = f"r{number}"
            await world.start(three_tasks, run_id=run_id)
            await consumers.wake()
            for what in order:
                await _happens(consumers, what)
            held = await consumers.world.queue.read([consumers.stream("workflows")], count=10)
            for delivery in held:
                await consumers.process(delivery)
            for stray in await _taken(consumers):
                await consumers.process(stray)
            await consumers.drain()
            log = consumers.log(run_id)
            started = [event.detail for event in log if event.kind is EventKind.STEP_CREATED][1:]
            assert started == [f"after_{what}" for what in order]
            _replays_alike(log, run_id, monkeypatch, random.Random(number))
    invariants.check(raw, wf)


def _replays_alike(log: list[Event], run_id: str, monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    seen = set()
    for number in range(17):
        instance = Instance(
            run_id=run_id, workflow=three_tasks, input=three_tasks.signature.encode_call((), {}), at=log[0].at
        )
        instance.start()
        for event in log[: len(log) - 1]:
            if number % 10 == 0:
                time.sleep(chance.uniform(0, 0.002))  # decoding takes its time
            if event.kind is EventKind.STEP_CREATED and event.detail.startswith("after_"):
                break
            instance.deliver(event)
        seen.add(tuple(step.name for step in instance.commands().steps))
        instance.close()
    assert len(seen) == 1


async def _happens(consumers: Consumers, what: str) -> None:
    if what == "hook":
        await consumers.world.resume("three", 1)
    elif what == "timer":
        due: Any = consumers.raw.zrange(consumers.partition.delayed, 0, 0, withscores=True)
        consumers.world.clock = lambda: int(due[0][1])
        await consumers.world.upkeep.promote(consumers.partition)
    else:
        [message] = consumers.queued("steps")
        assert isinstance(message, StepMessage)
        item = await consumers.claimed(message)
        await consumers.completed(item, big.signature.encode_result(b"x" * 2_000_000))


async def _taken(consumers: Consumers) -> list[Delivery]:
    """The step's message, if it is responsible for the run: its worker died."""
    key = consumers.partition.tag + "steps"
    held: list[Any] = [entry["message_id"] for entry in consumers.raw.xpending_range(key, GROUP, "-", "+", 10)]
    if not held:
        return []
    consumers.raw.xclaim(key, GROUP, "a-dead-worker", 0, held, idle=10**8, justid=True)
    answer = await consumers.world.deliveries.reclaim(consumers.stream("steps"), "0-0", 10)
    consumers.raw.delete(consumers.partition.reclaim_ticket("steps"))
    return list(answer.taken)


@constructs.workflow
async def two_chains() -> list[str]:
    async def chain(name: str, first_s: float) -> str:
        return await late(f"{name}1", first_s) + await work(f"{name}2") + await work(f"{name}3")

    return list(await asyncio.gather(chain("a", 60), chain("b", 0)))


async def test_a_chain_beside_a_slow_step_ends_before_it(redis_url: str, raw: redis.Redis) -> None:
    """Two chains of three steps move without waiting for each other."""
    async with player(redis_url, raw) as playing:
        played = await playing.play(Construct(two_chains, ["a1a2a3", "b1b2b3"]), "r")
    assert played.outcome == ["a1a2a3", "b1b2b3"]
    ends = [event.payload[-2:] for event in played.log if event.kind is EventKind.STEP_COMPLETED]
    assert ends == [b"b1", b"b2", b"b3", b"a1", b"a2", b"a3"]
