"""Does everything work on a Redis Cluster, also while it moves slots and loses nodes?"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
import redis

from consumers.worker import Worker
from redisworld import Run, World
from redisworld.errors import HookNotFound, InvalidInput, RedisUnavailable
from redisworld.events import EventKind, parse
from redisworld.keys import Partition, partition_of
from redisworld.settings import Settings
from redisworld.spawn import private_redis
from redisworld.world import StateReader
from redisworld.world.reading import read_log
from redisworld.world.topology import slot_of
from tests.apps.cluster_app import loaded, total_of, wf, whole
from tests.integration.cli_calls import answer, answer_json, called
from tests.integration.cli_process import worker
from tests.integration.redis_cluster import Node, RedisCluster, redis_cluster, until

APP = "tests.apps.cluster_app:wf"
WAIT_S = 90
PARTITIONS = 4

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def started_cluster() -> Iterator[RedisCluster]:
    with redis_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(started_cluster: RedisCluster) -> RedisCluster:
    """Three primaries, emptied."""
    started_cluster.empty()
    return started_cluster


@pytest.fixture
def replicated() -> Iterator[RedisCluster]:
    """Three primaries with a replica each, for a test that kills some."""
    with redis_cluster(replicas=1) as cluster:
        yield cluster


def settings(url: str, **more: str) -> Settings:
    return Settings.from_env({"REDISWORLD_URL": url} | {f"REDISWORLD_{name.upper()}": v for name, v in more.items()})


@asynccontextmanager
async def working(url: str, **more: str) -> AsyncIterator[World]:
    """A World with a worker in this process."""
    async with World.connect(settings=settings(url, **more)) as world, anyio.create_task_group() as tasks:
        made = Worker(world, wf)
        tasks.start_soon(made.run)
        try:
            yield world
        finally:
            made.stop()


async def start(world: World, run_id: str, rounds: int) -> Run[int]:
    """A start does not wait for long by itself, and may be repeated."""
    while True:
        try:
            return await world.start(loaded, rounds, run_id=run_id)
        except RedisUnavailable:
            await anyio.sleep(0.1)


async def check_whole(world: World, run_ids: list[str], rounds: int) -> None:
    """Every run has its result, and each of its steps, timers and ends is in the log once."""
    for run_id in run_ids:
        with anyio.fail_after(WAIT_S):
            assert await world.run(run_id, loaded).result() == total_of(rounds)
        log = [parse(element) for element in await read_log(world, run_id, 0, 10_000)]
        events = Counter((event.kind, event.id) for event in log)
        once = {kind: [n for (of, _), n in events.items() if of is kind] for kind in EventKind}
        assert once[EventKind.STEP_CREATED] == once[EventKind.STEP_COMPLETED] == [1] * rounds * 4, run_id
        assert once[EventKind.WAIT_COMPLETED] == [1] * rounds, run_id
        assert once[EventKind.RUN_COMPLETED] == [1], run_id
    assert await world.dead.count() == 0


def spread(cluster: RedisCluster) -> set[int]:
    """The ports of the nodes that the partitions of the default namespace lie at."""
    return {cluster.primary_of(Partition("default", number).stats).port for number in range(PARTITIONS)}


# -- what a user says


async def test_the_url_of_one_node_is_enough(cluster: RedisCluster) -> None:
    for url in (cluster.url, cluster.seeds, f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.nodes[2].port}"):
        async with World.connect(url) as world:
            assert world.connection.clustered
            assert len(world.partitions) == PARTITIONS
            await world.start(loaded, 1, run_id="r")


async def test_a_cluster_that_is_none_and_a_database_of_a_cluster_are_refused(
    cluster: RedisCluster, redis_url: str
) -> None:
    with private_redis(tcp=True, allow_wheel=True) as server:
        assert server.tcp_url is not None
        alone = server.tcp_url.replace("redis://", "redis+cluster://")
        with pytest.raises(InvalidInput, match="cluster support disabled"):
            async with World.connect(alone):
                pass
    with pytest.raises(InvalidInput, match="a cluster has none"):
        async with World.connect(f"{cluster.seeds}/1"):
            pass
    for database in ("/1", "?db=1"):
        with pytest.raises(InvalidInput, match="refuses database 1 of this URL: SELECT is not allowed in cluster mode"):
            async with World.connect(f"{cluster.url}{database}"):
                pass
    with pytest.raises(InvalidInput, match="every host is missing"):
        async with World.connect("redis+cluster://"):
            pass


async def test_a_user_with_a_password_and_few_rights_is_enough() -> None:
    keys = ("~rw:{default:*", "~rw:{default}:*", "~rw:default:*", "&rw:{default:*")
    rights = (*keys, "+@all", "-@dangerous", "+info", "+config|get", "+client|unblock")
    with redis_cluster(args=("--user", "worker", "on", ">s3cret", *rights)) as cluster:
        url = cluster.url
        async with working(url, username="worker", password="s3cret") as world:
            run = await world.start(loaded, 2, run_id="r")
            with anyio.fail_after(WAIT_S):
                assert await run.result() == total_of(2)
            client = world.connection.sync_client()  # the lease thread's
            assert client.execute_command("EVAL", "return 7", 1, world.partitions[0].stats) == 7
            client.close()
        with pytest.raises(RedisUnavailable, match="refuses the user or password"):
            async with World.connect(settings=settings(url, username="worker", password="wrong")):
                pass


async def test_a_stop_ends_blocking_reads_at_all_nodes(cluster: RedisCluster) -> None:
    assert len(spread(cluster)) > 1, "this namespace lies at one node"
    with anyio.fail_after(30):
        async with working(cluster.url, block_ms="60000") as world:
            run = await world.start(loaded, 1, run_id="r")
            assert await run.result() == total_of(1)
            await anyio.sleep(0.5)  # into the reads that block


# -- all there is


async def test_a_run_uses_all_there_is_with_its_hook_at_another_node(cluster: RedisCluster) -> None:
    assert len(spread(cluster)) > 1, "this namespace lies at one node, and would prove nothing"
    home = cluster.primary_of(Partition("default", partition_of("r", PARTITIONS)).stats)
    token = next(
        token
        for token in (f"token-{n}" for n in range(100))
        if cluster.primary_of(Partition("default", partition_of(token, PARTITIONS)).stats) is not home
    )
    async with working(cluster.url) as world:
        run = await world.start(whole, 50, token, run_id="r")
        with anyio.fail_after(WAIT_S):
            total = sum(n * n for n in range(50))
            told = [chunk.value async for chunk in run.stream()]  # as it comes, to its close
            assert told == [total, total + 1, total + 2]
            await resume(world, token, 5)
            assert await run.result() == [total, 5]
    assert sorted(node.port for node in cluster.primaries if node.client.dbsize()) != [home.port]


async def resume(world: World, token: str, payload: int) -> None:
    """Once there is somebody to resume: what a run does next shows nowhere else."""
    for _ in range(1_000):
        with suppress(HookNotFound):
            await world.resume(token, payload)
            return
        await anyio.sleep(0.02)
    raise AssertionError(f"nobody ever held {token}")


async def test_runs_of_all_partitions_end_and_their_waiters_hear_it(cluster: RedisCluster) -> None:
    async with working(cluster.url) as world:
        names = [f"r{n}" for n in range(30)]
        runs = [await world.start(loaded, 3, run_id=name) for name in names]
        assert {world.partition(run.run_id).number for run in runs} == set(range(PARTITIONS))
        await check_whole(world, names, 3)


def test_worker_processes_and_every_look_of_the_command_line(
    cluster: RedisCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--url", cluster.url)
    with worker(cluster.url, "--exporter", app=APP) as first, worker(cluster.seeds, app=APP) as second:
        for number in range(8):
            answer(capsys, "start", "tests.apps.cluster_app:loaded", "--args", "[3]", "--run-id", f"r{number}", *where)
        answer(capsys, "start", "tests.apps.cluster_app:whole", "--args", '[4, "kim"]', "--run-id", "held", *where)
        until(lambda: len(answer_json(capsys, "runs", "--status", "completed", *where)) == 8, "eight runs to end")
        until(lambda: "kim" in answer(capsys, "run", "why", "held", *where), "the hook to open")

        assert len(answer_json(capsys, "run", "list", *where)) == 9
        assert {queue["stream"] for queue in answer_json(capsys, "queues", *where)} >= {
            "steps",
            "steps:heavy",
            "workflows",
        }
        assert len(answer_json(capsys, "workers", *where)) == 2
        assert answer_json(capsys, "hook", "list", *where)[0]["token"] == "kim"
        for look in (("deployments",), ("dead", "list"), ("timers",), ("steps", "held"), ("top", "--once")):
            code, _, err = called(capsys, *look, *where, "--json")
            assert (code, err) == (0, ""), look
        assert re.search(r'^redisworld_workers\{.*state="ready".*\} 2', first.get("/metrics")[1], re.MULTILINE)
        for process in (first, second):
            until(lambda process=process: process.get("/readyz")[0] == 200, "a ready worker")
        answer(capsys, "hook", "resume", "kim", "3", *where)
        until(lambda: len(answer_json(capsys, "runs", "--status", "completed", *where)) == 9, "the last run to end")
        code, out, err = called(capsys, "doctor", "--deep", "--json", *where)
    found = json.loads(out)["findings"]
    assert Counter(finding["code"] for finding in found) == {"persistence": 3}, err
    assert {finding["what"].partition(": ")[0] for finding in found} == {
        f"node 127.0.0.1:{node.port}" for node in cluster.primaries
    }


async def test_the_state_is_the_same_through_the_event_loop_and_the_thread(cluster: RedisCluster) -> None:
    async with working(cluster.url) as world:
        await check_whole(world, [(await world.start(loaded, 1, run_id=f"r{n}")).run_id for n in range(5)], 1)
        reader = StateReader(world.connection, world.partitions)
        state = await anyio.to_thread.run_sync(reader.read)
        reader.close()
        assert state.recorded["runs_completed"] == 5
        assert {stream.partition for stream in state.streams} == set(range(PARTITIONS))


# -- slots that move


async def test_a_partition_moves_to_another_node_while_its_runs_work(cluster: RedisCluster) -> None:
    names, moving = [f"r{n}" for n in range(40)], Partition("default", 0)
    home = cluster.primary_of(moving.stats)
    target = next(node for node in cluster.primaries if node is not home)
    async with working(cluster.url) as world:
        for name in names:
            await start(world, name, 12)

        def move() -> None:
            cluster.move_slot(moving.stats, target, between=lambda moved: time.sleep(0.02))

        await anyio.to_thread.run_sync(move)
        unfinished = sum([not (await world.run(name).status()).terminal for name in names])
        assert unfinished, "all had ended before the slot had moved"
        assert cluster.primary_of(moving.stats) is target
        await check_whole(world, names, 12)
    assert not home.tell("COUNTKEYSINSLOT", slot_of(moving.stats))


async def test_a_script_does_nothing_while_the_keys_of_its_partition_are_at_two_nodes(cluster: RedisCluster) -> None:
    partition = Partition("default", partition_of("r", PARTITIONS))
    slot, home = slot_of(partition.stats), cluster.primary_of(partition.stats)
    target = next(node for node in cluster.primaries if node is not home)
    async with World.connect(settings=settings(cluster.url, retry_redis_ms="1s")) as world:
        first = next(f"r{n}" for n in range(100) if world.partition(f"r{n}") == partition)
        await world.start(loaded, 1, run_id=first)
        target.tell("SETSLOT", slot, "IMPORTING", home.name)
        home.tell("SETSLOT", slot, "MIGRATING", target.name)
        for gone in ((), (partition.log(first),), (partition.stats,)):
            if gone:
                home.client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *gone)
            before = {**contents(home, slot), **contents(target, slot)}
            with pytest.raises(RedisUnavailable, match="moves the slot of this partition"):
                await world.start(loaded, 1, run_id="r")
            with pytest.raises(RedisUnavailable, match="moves the slot of this partition"):
                await world.run(first).cancel()
            assert {**contents(home, slot), **contents(target, slot)} == before
        cluster.move_slot(partition.stats, target)
        assert await world.start(loaded, 1, run_id="r")


def contents(node: Node, slot: int) -> dict[bytes, bytes]:
    """The keys of a slot that lie at a node, whoever serves it."""
    keys = node.tell("GETKEYSINSLOT", slot, 1_000)
    assert isinstance(keys, list)
    pipeline = node.client.pipeline(transaction=False)
    for key in keys:
        pipeline.execute_command("ASKING")
        pipeline.dump(key)
    return dict(zip(keys, pipeline.execute()[1::2], strict=True))


# -- nodes that go


async def test_a_primary_dies_under_load_and_its_replica_goes_on_with_all_it_was_told(
    replicated: RedisCluster,
) -> None:
    names = [f"r{n}" for n in range(30)]
    victim = replicated.primary_of(Partition("default", 0).stats)
    with worker(replicated.seeds, app=APP) as one, worker(replicated.seeds, app=APP) as two:
        async with World.connect(replicated.seeds) as world:
            for name in names:
                await start(world, name, 15)
            # whatever it has acknowledged is at its replica, and the workers are amid their work
            victim.client.execute_command("CLIENT", "PAUSE", 10_000, "WRITE")
            assert victim.client.wait(1, 10_000) == 1
            unfinished = sum([not (await world.run(name).status()).terminal for name in names])
            assert unfinished, "all had ended before the primary died"
            victim.kill()
            await check_whole(world, names, 15)
            run = await start(world, "after", 1)
            with anyio.fail_after(WAIT_S):
                assert await run.result() == total_of(1)
        assert replicated.primary_of(Partition("default", 0).stats) in replicated.replicas
        for process in (one, two):
            until(lambda process=process: process.get("/readyz")[0] == 200, "a ready worker")


async def test_an_orderly_failover_loses_nothing(replicated: RedisCluster) -> None:
    names = [f"r{n}" for n in range(20)]
    home = replicated.primary_of(Partition("default", 0).stats)
    heir = replicated.replicas[replicated.primaries.index(home)]
    async with working(replicated.url) as world:
        for name in names:
            await start(world, name, 12)
        heir.tell("FAILOVER")
        until(lambda: replicated.primary_of(Partition("default", 0).stats) is heir, "the replica to take over")
        await check_whole(world, names, 12)
        with redis.Redis(port=home.port) as client:
            assert client.info("replication")["role"] == "slave"
