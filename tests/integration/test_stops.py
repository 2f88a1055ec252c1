"""How soon does a worker end that waits in a blocking read, and is anything lost by that?"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import anyio
import pytest
import redis

from consumers import timekeeper
from consumers.timekeeper import Timekeeper
from consumers.worker import Worker
from redisworld import Settings, World
from redisworld.keys import GROUP
from redisworld.spawn import private_redis
from redisworld.world import Delivery, Stream
from redisworld.world.channel import Channel
from redisworld.world.queue import key_of
from tests.apps import shop_app

pytestmark = pytest.mark.anyio

BLOCK_MS = 20_000
SOON_S = 10.0
"""Generous for what takes a second, and well under a blocking read."""

Make = Callable[[World], Worker | Timekeeper]


def full_worker(world: World) -> Worker:
    return Worker(world, shop_app.wf)


@pytest.fixture(autouse=True)
def _reads_alone_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a timekeeper cancels what is left after some seconds."""
    monkeypatch.setattr(timekeeper, "_END_S", 3 * BLOCK_MS / 1000)


async def started_and_stopped(settings: Settings, make: Make) -> float:
    """Seconds (monotonic) from the stop of a worker whose loops have all read once, and wait, to its end."""
    ended = anyio.Event()
    async with World.connect(settings=settings) as world, anyio.create_task_group() as tasks:
        worker = make(world)

        async def run() -> None:
            await worker.run()
            ended.set()

        tasks.start_soon(run)
        with anyio.fail_after(SOON_S):
            while worker.health.ready() is not None:  # noqa: ASYNC110  # it is asked, as by a probe
                await anyio.sleep(0.02)
        await anyio.sleep(0.3)  # into the reads that block
        stopped_at = time.monotonic()
        worker.stop()
        with anyio.fail_after(SOON_S):
            await ended.wait()
        return time.monotonic() - stopped_at


@pytest.mark.parametrize("make", [full_worker, Timekeeper], ids=["worker", "timers only"])
@pytest.mark.parametrize("embedded", [False, True], ids=["redis", "embedded"])
async def test_a_stop_ends_blocking_reads(redis_url: str, make: Make, embedded: bool) -> None:
    url = f"redisworld://embedded/{make.__name__}" if embedded else redis_url
    await started_and_stopped(Settings(url=url, block_ms=BLOCK_MS, partitions=2), make)


async def test_a_stop_ends_a_read_that_comes_to_redis_after_it(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on its way when the stop comes: ended once, it would wait its time."""
    send, late = Channel.call, 0

    async def slowly(self: Channel, *args: object, timeout: float, asking: bool = False) -> object:
        nonlocal late
        if "BLOCK" in args and BLOCK_MS in args:
            late += 1
            await asyncio.sleep(1.0)  # longer than until the stop
        return await send(self, *args, timeout=timeout, asking=asking)

    monkeypatch.setattr(Channel, "call", slowly)
    await started_and_stopped(Settings(url=redis_url, block_ms=BLOCK_MS, partitions=2), full_worker)
    assert late == 3, "two readers and the timers were on their way"


async def test_what_a_read_brings_while_it_is_ended_is_not_lost(redis_url: str, raw: redis.Redis) -> None:
    """Of each message a hundred times: it came with the read, or stands in its stream undelivered."""
    got: list[Delivery] = []
    async with World.connect(settings=Settings(url=redis_url, partitions=1)) as world:
        stream: Stream = (world.partitions[0], "steps")
        await world.queue.ensure_groups([stream])

        async def read() -> None:
            got.extend(await world.queue.read([stream], count=10, block_ms=BLOCK_MS))

        with anyio.fail_after(2 * SOON_S):
            for number in range(100):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read)
                    await asyncio.sleep(0.001 * (number % 4))
                    tasks.start_soon(world.connection.commands.xadd, key_of(stream), {"kind": "step"})
                    tasks.start_soon(world.queue.end_reads)
        came_with_reads = len(got)
        got.extend(await world.queue.read([stream], count=1_000))
    held = raw.xpending_range(key_of(stream), GROUP, "-", "+", 1_000)
    assert [entry["message_id"].decode() for entry in held] == sorted(
        (delivery.entry_id for delivery in got), key=lambda entry: tuple(map(int, entry.split("-")))
    )
    assert len(held) == 100
    assert came_with_reads, "every read had ended before its message came, which proves nothing"
    raw.delete(key_of(stream))


@pytest.mark.parametrize(
    ("refused", "make"),
    [("client|id", full_worker), ("client|unblock", full_worker), ("client|unblock", Timekeeper)],
    ids=["no id", "no unblock", "no unblock, timers only"],
)
async def test_where_redis_refuses_to_end_a_read_it_waits_its_time(
    refused: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    user = ("--user", "worker", "on", ">pw", "~*", "&*", "+@all", f"-{refused}")
    with private_redis(tcp=True, allow_wheel=True, args=user) as server:
        assert server.tcp_url is not None
        url = server.tcp_url.replace("redis://", "redis://worker:pw@")
        with caplog.at_level(logging.INFO, "redisworld"):
            took = await started_and_stopped(Settings(url=url, block_ms=3_000, partitions=2), make)
    assert took > 1.0, "its reads were cut off"
    told = [record for record in caplog.records if "cannot be ended" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.INFO]
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


@pytest.mark.parametrize("make", [full_worker, Timekeeper], ids=["worker", "timers only"])
@pytest.mark.parametrize("key", ["rw:{default}:workers", "rw:{default}:streams"])
async def test_a_list_of_another_type_is_named_and_the_end_is_as_usual(
    redis_url: str, raw: redis.Redis, make: Make, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A drained worker ended with a traceback."""
    settings = Settings(url=redis_url, partitions=2)
    async with World.connect(settings=settings):
        pass
    raw.delete(key)
    raw.set(key, "not ours")
    with caplog.at_level(logging.INFO, "redisworld"):
        await started_and_stopped(settings, make)
    assert caplog.messages[-1].startswith("worker stopped")
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors
    assert all(key in record.getMessage() and not record.exc_info for record in errors)
    told = {record.getMessage().partition(":")[0] for record in errors}
    assert told >= (
        {"no heartbeat", "heartbeat not removed, it ends by itself"} if "workers" in key else {"no heartbeat"}
    )
    raw.delete(key)
