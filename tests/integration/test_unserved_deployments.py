"""What becomes of runs that are pinned to a deployment whose workers are gone?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
import redis

from consumers.timekeeper import Timekeeper
from consumers.worker import Worker
from redisworld import RunFailed, Settings, Workflows, World
from redisworld.keys import GROUP, Partition
from redisworld.runs import Status

pytestmark = pytest.mark.anyio

SOON_S = 15.0
GRACE_MS = 600

wf = Workflows()


@wf.step
async def double(number: int) -> int:
    return 2 * number


@wf.workflow
async def many(count: int) -> int:
    return sum(await asyncio.gather(*(double(n) for n in range(count))))


def of(url: str, deployment: str, **settings: int) -> Settings:
    return Settings(
        url=url, partitions=1, deployment=deployment, affinity=True, block_ms=200, grace_ms=500,
        **{"deployment_grace_ms": GRACE_MS, **settings},
    )  # fmt: skip


@asynccontextmanager
async def working(settings: Settings, kind: type[Worker | Timekeeper] = Worker) -> AsyncIterator[None]:
    async with World.connect(settings=settings) as world, anyio.create_task_group() as tasks:
        worker = Worker(world, wf) if kind is Worker else Timekeeper(world)
        tasks.start_soon(worker.run)
        yield
        worker.stop()


async def test_a_run_of_a_deployment_without_workers_fails_after_the_grace(redis_url: str) -> None:
    async with World.connect(settings=of(redis_url, "v1")) as world, working(of(redis_url, "v2")):
        run = await world.start(many, 3, run_id="left")
        with pytest.raises(RunFailed, match=r"'v1', and no live worker served that for 0\.6 s") as failed:
            await run.result(timeout=SOON_S)
        assert (await world.row("left")).code == "DEPLOYMENT_MISMATCH"
        [letter] = [letter async for letter in world.dead.letters()]
        assert (letter.reason, letter.stream) == ("deployment_mismatch", "workflows@v1")
    assert failed.value.error.code == "DEPLOYMENT_MISMATCH"


async def test_one_letter_for_a_run_and_nothing_stays(redis_url: str) -> None:
    """Its steps wait, some unread and some with a worker that was killed."""
    async with World.connect(settings=of(redis_url, "v1")) as world:
        [partition] = world.partitions
        stream = partition.steps("", "v1")
        await world.start(many, 1, run_id="left")
        with redis.Redis.from_url(redis_url) as raw:
            _dispatch(raw, partition, 20)
            raw.xgroup_create(stream, GROUP, id="0")
            raw.xreadgroup(GROUP, "killed", {stream: ">"}, count=5)

        async with working(of(redis_url, "v2")):
            await _until_failed(world, "left")
            with anyio.fail_after(SOON_S):
                while await world.connection.commands.xlen(stream):  # noqa: ASYNC110  # another task works
                    await anyio.sleep(0.05)

        assert len([letter async for letter in world.dead.letters()]) == 1


@pytest.mark.parametrize("kind", [Worker, Timekeeper])
async def test_it_waits_where_it_may_wait_for_ever_or_where_no_other_worker_lives(
    redis_url: str, kind: type[Worker | Timekeeper]
) -> None:
    grace = {"deployment_grace_ms": 0} if kind is Worker else {}
    async with World.connect(settings=of(redis_url, "v1")) as world:
        await world.start(many, 3, run_id="left")
        async with working(of(redis_url, "v2", **grace), kind):
            await anyio.sleep(3 * GRACE_MS / 1000)
        assert (await world.row("left")).status is Status.PENDING


async def test_a_worker_that_comes_in_time_runs_it(redis_url: str) -> None:
    late = of(redis_url, "v2", deployment_grace_ms=60_000)
    async with World.connect(settings=of(redis_url, "v1")) as world, working(late):
        run = await world.start(many, 3, run_id="left")
        await anyio.sleep(0.3)
        async with working(of(redis_url, "v1")):
            assert await run.result(timeout=SOON_S) == 6


def _dispatch(raw: redis.Redis, partition: Partition, copies: int) -> None:
    """Messages of one run in the stream of its steps, as a fan-out leaves them."""
    [[_, fields]] = raw.xrange(partition.workflows("v1"), count=1)
    for number in range(copies):
        raw.xadd(partition.steps("", "v1"), {**fields, b"kind": b"step", b"step": f"s{number}".encode()})


async def _until_failed(world: World, run: str) -> None:
    with anyio.fail_after(SOON_S):
        while (await world.row(run)).status is not Status.FAILED:  # noqa: ASYNC110  # another task works
            await anyio.sleep(0.05)
