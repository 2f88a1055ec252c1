"""Does what somebody else has written into our keys end a worker, a waiting client or a list?

Bytes that are no text, words that are no ids, numbers that are none: each is told, and all others go on.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
import redis

from redisworld import RunCancelled, Settings, World
from redisworld.keys import Partition
from redisworld.testing import working
from redisworld.world import read_state
from redisworld.world.listing_delayed import page_of_delayed
from redisworld.world.listing_hooks import page_of_hooks
from tests.apps import shop_app

pytestmark = pytest.mark.anyio

P = Partition("default", 0)
BYTES = b"\xff\xfe"
WRITTEN: dict[str, Callable[[redis.Redis], object]] = {
    "open run": lambda raw: raw.zadd(P.index("status:running"), {BYTES: 1}),
    "open run of words": lambda raw: raw.zadd(P.index("status:pending"), {"a b|c": 1}),
    "listed run": lambda raw: raw.zadd(P.index("created"), {BYTES: 1}),
    "expiring run": lambda raw: raw.zadd(P.expiring, {BYTES: 1}),
    "release": lambda raw: raw.hset(P.releases, BYTES.decode("latin-1"), "token"),
    "release of words": lambda raw: raw.hset(P.releases, "a b c", "token"),
    "delayed": lambda raw: raw.zadd(P.delayed, {BYTES + b" x y": 1}),
    "delayed without an end": lambda raw: raw.zadd(P.delayed, {"wait r w": float("inf")}),
    "delayed since ever": lambda raw: raw.zadd(P.delayed, {"wait r w": float("-inf")}),
    "counts": lambda raw: raw.hset(P.stats, mapping={BYTES: "x", "theirs": "\u00b2"}),
    "steps": lambda raw: raw.xadd(P.steps(), {BYTES: BYTES}),
    "workers": lambda raw: raw.sadd("rw:{default}:workers", BYTES, "x y"),
    "streams": lambda raw: raw.zadd("rw:{default}:streams", {BYTES: 1, "no such": 1e30}),
}


@pytest.mark.parametrize("what", WRITTEN)
async def test_a_worker_works_on_and_lists_are_listed(redis_url: str, raw: redis.Redis, what: str) -> None:
    """One member of a listing that was no UTF-8 used to end all workers."""
    settings = Settings(url=redis_url, partitions=1, block_ms=50, recover_every_ms=20, reap_every_ms=20)
    async with World.connect(settings=settings):
        pass
    WRITTEN[what](raw)

    async with working(shop_app.wf, settings=settings) as world:
        await anyio.sleep(0.2)
        run = await world.start(shop_app.publish, "cat.png")
        assert await run.result(timeout=10)

        assert run.run_id in [listed.run_id for listed in (await world.listing.runs(limit=10)).runs]
        await page_of_delayed(world, limit=10)
        await page_of_hooks(world, limit=10)
        assert (await read_state(world)).runs["running"] <= 1
        assert run.run_id not in [run_id async for run_id in world.listing.open()]


async def test_what_is_said_on_the_channel_of_endings_ends_no_world(redis_url: str, raw: redis.Redis) -> None:
    """It used to end whatever ran inside of ``async with World.connect()``, a web server for one."""
    async with World.connect(redis_url) as world:
        run = await world.start(shop_app.remind, "x", delay="1h")
        async with anyio.create_task_group() as tasks:

            async def talk() -> None:
                while not all(raw.publish(p.ended, BYTES) for p in world.partitions):  # noqa: ASYNC110
                    await anyio.sleep(0.01)  # nobody listens yet
                await run.terminate()

            tasks.start_soon(talk)
            with pytest.raises(RunCancelled):
                await run.result(timeout=10)
