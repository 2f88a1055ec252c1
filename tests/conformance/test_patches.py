"""Do the real consumers keep a patch's decision through crashes, deployments and half-written commits?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from redisworld import Workflows, hook, patched, sleep
from redisworld.events import EventKind
from redisworld.world import Committed, Delivery
from tests.chaos import invariants
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers

pytestmark = pytest.mark.anyio

before, after = Workflows(), Workflows()


@after.step
async def reserve(x: int) -> str:
    return f"reserve:{x}"


@after.step
async def check(x: int) -> str:
    return f"check:{x}"


@after.step
async def charge(x: int) -> str:
    return f"charge:{x}"


before.steps |= after.steps  # the same steps, other workflows


@before.workflow(name="order")
async def order_before(x: int) -> list[str]:
    done = [await reserve(x)]
    await sleep("1h")
    return [*done, await charge(x)]


@after.workflow(name="order")
async def order_after(x: int) -> list[str]:
    done = [await reserve(x)]
    if patched("fraud-check"):
        done.append(await check(x))
    await sleep("1h")
    return [*done, await charge(x)]


@before.workflow(name="wide")
async def wide_before(x: int) -> list[str]:
    return await asyncio.gather(*(charge(n) for n in range(x)))


@after.workflow(name="wide")
async def wide_after(x: int) -> list[str]:
    if patched("reserve-first"):
        await reserve(x)
    return await asyncio.gather(*(charge(n) for n in range(x)))


@after.workflow
async def wide_patched(x: int) -> list[str]:
    extra = 1 if patched("one-more") else 0
    return await asyncio.gather(*(charge(n) for n in range(x + extra)))


@before.workflow(name="answer")
async def answer_before() -> Any:
    return await hook(token="t")


@after.workflow(name="answer")
async def answer_after() -> Any:
    asked = hook(token="t")
    first = await asyncio.gather(reserve(1), check(2))
    return [*first, await asked]


OLD, NEW = ["reserve:7", "charge:7"], ["reserve:7", "check:7", "charge:7"]


def patches(consumers: Consumers, run_id: str = "r") -> list[str]:
    return [event.id for event in consumers.log(run_id) if event.kind is EventKind.PATCHED]


async def dies(consumers: Consumers, delivery: Delivery, *, after_chunks: int = 0) -> None:
    """The worker dies in the middle of its commit."""
    commit = consumers.world.deliveries.commit
    left = after_chunks

    async def die(*args: Any, **kwargs: Any) -> Committed:
        nonlocal left
        if left == 0:
            raise asyncio.CancelledError
        left -= 1
        return await commit(*args, **kwargs)

    consumers.world.deliveries.commit = die  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await consumers.process(delivery)
    consumers.world.deliveries.commit = commit  # type: ignore[method-assign]


async def taken(consumers: Consumers, kind: str = "workflows") -> Delivery:
    delivery = await consumers.take(kind)
    assert delivery is not None
    return delivery


async def test_a_decision_survives_the_worker_and_is_made_once(raw: redis.Redis, connect: Connect) -> None:
    async with connect(max_inline_steps=0) as one:
        mine = Consumers(one.world, after, raw)
        await mine.world.start(order_after, 7, run_id="r")
        await mine.wake()
        step = await taken(mine, "steps")
        await dies(mine, step)  # completed and decided, nothing committed
        assert patches(mine) == []

        another = Consumers(one.world, after, raw)
        await another.process(await another.redelivered(step))
        assert patches(mine) == ["fraud-check"]
        assert (await mine.world.row("r")).patches == ("fraud-check",)

        await Consumers(one.world, after, raw).drain()  # cold once more

        assert await mine.world.run("r").result(timeout=5) == NEW
        assert patches(mine) == ["fraud-check"]
    invariants.check(raw, after)


async def test_bodies_kept_in_memory_decide_alike(raw: redis.Redis, connect: Connect) -> None:
    async with connect() as one:
        mine = Consumers(one.world, after, raw)
        await mine.world.start(order_after, 7, run_id="r")
        await mine.drain()

        assert await mine.world.run("r").result(timeout=5) == NEW
    invariants.check(raw, after)


async def test_a_run_that_was_under_way_goes_on_without_the_patch(raw: redis.Redis, connect: Connect) -> None:
    async with connect() as one:
        old, new = Consumers(one.world, before, raw), Consumers(one.world, after, raw)
        await old.world.start(order_before, 7, run_id="r")
        await old.drain(later=False)
        await new.drain()

        assert await new.world.run("r").result(timeout=5) == OLD
        assert patches(new) == []
    invariants.check(raw, after)


async def test_code_that_died_after_a_chunk_of_its_commit_had_passed_the_place(
    raw: redis.Redis, connect: Connect
) -> None:
    """``replayed_to`` does not say so; the steps of that chunk exist under the numbers of the old code."""
    async with connect(chunk_steps=2, max_inline_steps=0) as one:
        old, new = Consumers(one.world, before, raw), Consumers(one.world, after, raw)
        await old.world.start(wide_before, 5, run_id="r")
        wake = await taken(old)
        await dies(old, wake, after_chunks=1)

        await new.process(await new.redelivered(wake))
        await new.drain()

        assert await new.world.run("r").result(timeout=5) == [f"charge:{n}" for n in range(5)]
        assert patches(new) == []
    invariants.check(raw, after)


async def test_a_patch_goes_with_the_first_chunk_of_its_commit(raw: redis.Redis, connect: Connect) -> None:
    async with connect(chunk_steps=2, max_inline_steps=0) as one:
        mine = Consumers(one.world, after, raw)
        await mine.world.start(wide_patched, 4, run_id="r")
        wake = await taken(mine)
        await dies(mine, wake, after_chunks=1)
        assert patches(mine) == ["one-more"]

        await mine.process(await mine.redelivered(wake))
        await mine.drain()

        assert await mine.world.run("r").result(timeout=5) == [f"charge:{n}" for n in range(5)]
        assert patches(mine) == ["one-more"]
    invariants.check(raw, after)


async def test_what_new_code_asks_for_at_a_place_passed_before_is_asked_for_with_the_next_wake(
    raw: redis.Redis, connect: Connect
) -> None:
    """The commit of the old code counted as this code's: the steps were asked for by nobody, and the run hung."""
    async with connect(max_inline_steps=0) as one:
        old, new = Consumers(one.world, before, raw), Consumers(one.world, after, raw)
        await old.world.start(answer_before, run_id="r")
        await old.drain()
        await new.world.resume("t", "yes")
        await new.drain()

        assert await new.world.run("r").result(timeout=5) == ["reserve:1", "check:2", "yes"]
    invariants.check(raw, after)
