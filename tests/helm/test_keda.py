"""Does KEDA see what there is to do, from the first message of a namespace to the last? (k8s.md 1.9)

The triggers are those that the chart renders, the numbers those of a real Redis, the arithmetic the scaler's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import redis

from consumers.timekeeper import Timekeeper
from consumers.worker import Worker
from redisworld import World
from redisworld.settings import Settings
from redisworld.spawn import PrivateRedis
from tests.helm import keda
from tests.helm.busy_app import lifelong, waiting, wf
from tests.helm.rendering import container, environment, least, one, render

WAIT_S = 60
SCALER = {"minReplicas": 0, "mode": "keda"}


@pytest.fixture
def documents(redis_server: PrivateRedis) -> list[dict[str, Any]]:
    """A release that scales to zero."""
    pool = {"queues": ["side"], "concurrency": 8}
    chosen = least(autoscaling=SCALER, runs={"partitions": 2}, pools={"default": pool})
    return render({**chosen, "redis": {"url": redis_server.tcp_url}})


@pytest.fixture
def triggers(documents: list[dict[str, Any]]) -> list[Mapping[str, str]]:
    return [trigger["metadata"] for trigger in one(documents, "ScaledObject", "-default")["spec"]["triggers"]]


@asynccontextmanager
async def world_of(documents: list[dict[str, Any]], name: str) -> AsyncIterator[World]:
    """What a rendered container works with."""
    async with World.connect(settings=Settings.from_env(environment(container(documents, name)))) as world:
        yield world


@asynccontextmanager
async def working(world: World) -> AsyncIterator[Worker]:
    """A pod of that container, drained at the end of the block."""
    async with anyio.create_task_group() as tasks:
        worker = Worker(world, wf)
        tasks.start_soon(worker.run)
        yield worker
        worker.stop()


async def until(raw: redis.Redis, triggers: list[Mapping[str, str]], pods: int) -> None:
    """Return when KEDA wants so many pods (1: at least one)."""
    with anyio.fail_after(WAIT_S):
        while min(keda.wanted(raw, triggers), 1) != pods:  # noqa: ASYNC110  # Redis can only be asked
            await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_keda_wants_pods_exactly_while_there_is_work(
    documents: list[dict[str, Any]], triggers: list[Mapping[str, str]], raw: redis.Redis
) -> None:
    lags = [trigger for trigger in triggers if "lagCount" in trigger]
    pending = [trigger for trigger in triggers if "pendingEntriesCount" in trigger]
    assert keda.wanted(raw, triggers) == 0, "no stream is there yet"

    async with world_of(documents, "-default/worker") as world:
        run = await world.start(lifelong, 20, 0.5, "5s", run_id="life")
        assert keda.wanted(raw, triggers) == 1, "the first message of all, and no group yet: KEDA takes the length"

        async with working(world):
            # everything is delivered: no lag is left, and only the pending trigger keeps the pods
            with anyio.fail_after(WAIT_S):
                while any(keda.readings(raw, lags)) or not any(keda.readings(raw, pending)):  # noqa: ASYNC110  # Redis can only be asked
                    await anyio.sleep(0.005)
            assert keda.wanted(raw, triggers) >= 1
            await until(raw, triggers, 0)
            assert (await run.status()) == "running", "it sleeps"

    # no pod is left. The timer lies where KEDA cannot look, so the always-on pod promotes it, and does no more
    assert keda.wanted(raw, triggers) == 0
    async with world_of(documents, "-always-on/exporter") as world, anyio.create_task_group() as tasks:
        timekeeper = Timekeeper(world)
        tasks.start_soon(timekeeper.run)
        await until(raw, triggers, 1)
        assert sum(number or 0 for number in keda.readings(raw, lags)) == 1, "what it promotes is a lag"
        assert not any(keda.readings(raw, pending)), "it takes nothing"
        timekeeper.stop()
    async with world_of(documents, "-default/worker") as world, working(world):
        with anyio.fail_after(WAIT_S):
            assert await world.run("life", lifelong).result() == 23
        await until(raw, triggers, 0)
        assert None not in keda.readings(raw, triggers), "each stream has its group now"


@pytest.mark.anyio
async def test_keda_is_never_blind_in_the_life_of_a_queue(
    documents: list[dict[str, Any]], triggers: list[Mapping[str, str]], raw: redis.Redis
) -> None:
    """Finished, cancelled and terminated runs, messages for later, and a drain.

    Nothing undelivered is ever deleted, which would leave the lag null until all is read. One more reason cannot be
    helped (Redis 7.0.15 and 8.2.3 alike): the entry delivered last is done and deleted, and nobody has read since. The
    length tells what waits then.
    """
    at_once = raw.register_script(
        "local found = {} for i, key in ipairs(KEYS) do if redis.call('EXISTS', key) == 1 then "
        "local stream = redis.call('XINFO', 'STREAM', key) local groups = redis.call('XINFO', 'GROUPS', key) "
        "found[#found + 1] = {redis.call('XLEN', key), stream, groups[1] or {}} end end return found"
    )
    streams = sorted({trigger["stream"] for trigger in triggers})
    seen: list[tuple[int, dict[bytes, Any], dict[bytes, Any]]] = []

    async def look(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            for length, stream, group in at_once(keys=streams):
                seen.append((length, paired(stream), paired(group)))
            await anyio.sleep(0.002)

    async with world_of(documents, "-default/worker") as world, anyio.create_task_group() as tasks:
        await tasks.start(look)
        for number in range(12):
            await world.start(lifelong, 6, 0.05, "100ms", run_id=f"run-{number}")
        await world.run("run-0").terminate()  # before anybody has read its message
        async with working(world):
            with anyio.fail_after(WAIT_S):
                while not any((await world.steps("run-1")).values()):  # noqa: ASYNC110  # Redis can only be asked
                    await anyio.sleep(0.005)
        await world.run("run-1").terminate()  # its steps lie in the streams
        await world.run("run-2").cancel()
        await world.start(waiting, 0.01, run_id="later", delay="300ms")
        async with working(world):
            with anyio.fail_after(WAIT_S):
                for number in range(3, 12):
                    await world.run(f"run-{number}", lifelong).result()
                await world.run("later").result()
            await until(raw, triggers, 0)
        tasks.cancel_scope.cancel()

    assert max(length for length, _, _ in seen) > 1
    for length, stream, group in seen:
        if not group:
            continue
        last_delivered, last_deleted = (
            order(of) for of in (group[b"last-delivered-id"], stream[b"max-deleted-entry-id"])
        )
        assert last_deleted <= last_delivered, "an undelivered entry was deleted"
        if group[b"lag"] is None:
            assert last_deleted == last_delivered, "null for another reason than the known one"
        else:
            assert group[b"lag"] + group[b"pending"] == length, "the length is what waits and what is at work"
    assert set(keda.readings(raw, triggers)) == {0}


def paired(flat: list[Any]) -> dict[bytes, Any]:
    """A flat reply of names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def order(entry_id: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in entry_id.split(b"-"))


@pytest.mark.parametrize("deleted", [2, 0], ids=["an undelivered entry", "the entry delivered last"])
def test_the_length_sees_what_waits_where_the_lag_is_null(deleted: int, raw: redis.Redis) -> None:
    """What redisworld must not do, and what it cannot help doing."""
    lag = {"stream": "s", "consumerGroup": "workers", "lagCount": "5"}
    raw.xgroup_create("s", "workers", id="0", mkstream=True)
    entries = [raw.xadd("s", {"n": number}) for number in range(4)]
    assert keda.reading(raw, lag) == 4
    raw.xreadgroup("workers", "c", {"s": ">"}, count=1)

    raw.xack("s", "workers", entries[0])
    raw.xdel("s", entries[deleted])

    told = keda.reading(raw, lag)
    assert told == keda.NULL_LAG or (deleted == 0 and told == 3)
    assert keda.wanted(raw, [lag]) == (0 if told == keda.NULL_LAG else 1)
    assert keda.wanted(raw, [lag, {"stream": "s", "streamLength": "5"}]) == 1
    raw.delete("s")


def test_more_work_wants_more_pods_up_to_one_for_each_message_that_a_pod_takes(
    triggers: list[Mapping[str, str]], raw: redis.Redis
) -> None:
    """Concurrency 8 and two partitions: a pod for each 4 messages of a partition's stream."""
    stream = next(trigger["stream"] for trigger in triggers if trigger["stream"].endswith(":steps"))
    raw.xgroup_create(stream, "workers", id="0", mkstream=True)

    for count, pods in ((0, 0), (1, 1), (4, 1), (5, 2), (40, 10)):
        while raw.xlen(stream) < count:
            raw.xadd(stream, {"n": 1})
        assert keda.wanted(raw, triggers) == pods
    raw.delete(stream)


def test_the_metadata_is_what_the_scaler_takes(everything: dict[str, list[dict[str, Any]]]) -> None:
    known = {
        "stream", "consumerGroup", "lagCount", "pendingEntriesCount", "streamLength", "databaseIndex",
        "enableTLS", "unsafeSsl", "usernameFromEnv",
    }  # fmt: skip
    kinds = {
        "redis-streams": known | {"address"},
        "redis-sentinel-streams": known | {"addresses", "sentinelMaster"},
        "redis-cluster-streams": known - {"databaseIndex"} | {"addresses"},
    }
    parameters = {"username", "password", "ca", "cert", "key", "sentinelPassword"}
    seen = set()
    for documents in everything.values():
        for document in documents:
            if document["kind"] == "ScaledObject":
                for trigger in document["spec"]["triggers"]:
                    if trigger["type"] in kinds:
                        seen.add(trigger["type"])
                        assert trigger["metadata"].keys() <= kinds[trigger["type"]]
                        assert all(isinstance(value, str) for value in trigger["metadata"].values())
            if document["kind"] == "TriggerAuthentication":
                assert {each["parameter"] for each in document["spec"]["secretTargetRef"]} <= parameters
    assert seen == kinds.keys()
