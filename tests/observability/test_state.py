"""Is the state of a namespace what lies in Redis, at a cost that does not grow with it? (A42, A46)"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis

from consumers.health import Health
from consumers.presence import Presence
from consumers.slots import Slots
from redisworld import Settings, Workflows, World
from redisworld.keys import GROUP, listed_streams, listed_workers, worker_key
from redisworld.state import Backlog, State, WorkerState
from redisworld.world import StateReader, read_state
from tests.apps import seen_app

pytestmark = pytest.mark.anyio

NAMESPACE_WIDE, PER_PARTITION, PER_STREAM = 3, 6, 2
PARTITIONS = 4


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    async with World.connect(settings=Settings(url=redis_url, partitions=PARTITIONS)) as world:
        yield world


def now_ms(raw: redis.Redis) -> int:
    seconds, micros = raw.time()
    return int(seconds * 1_000 + micros // 1_000)


def worker(consumer: str, **more: object) -> WorkerState:
    return WorkerState(**{"consumer": consumer, "state": "ready", "beat_at": 1, "streams": ("steps",), **more})  # type: ignore[arg-type]


async def test_a_new_namespace_has_its_two_queues_and_nothing_in_them(world: World) -> None:
    state = await read_state(world)

    assert state.queues == {"steps": Backlog(), "workflows": Backlog()}
    assert len(state.streams) == 2 * PARTITIONS
    assert (state.runs, state.workers, state.recorded) == ({"pending": 0, "running": 0}, (), {})
    assert state.workers_by_state == {"ready": 0, "draining": 0, "unready": 0}
    assert (state.timers_pending, state.timers_overdue, state.timers_overdue_ms, state.dead_letters) == (0, 0, 0, 0)


async def test_lag_pending_ages_and_consumers_of_a_queue_are_those_of_all_its_partitions(
    world: World, raw: redis.Redis
) -> None:
    first, second = (partition.steps() for partition in world.partitions[:2])
    now = now_ms(raw)
    for age_s in (100, 90, 80):
        raw.xadd(first, {"kind": "step"}, id=f"{now - 1_000 * age_s}-0")
    raw.xadd(second, {"kind": "step"}, id=f"{now - 300_000}-0")
    for key in (first, second):
        raw.xgroup_create(key, GROUP, id="0")
    raw.xreadgroup(GROUP, "w1", {first: ">"}, count=1)
    raw.xreadgroup(GROUP, "w2", {first: ">"}, count=1)

    steps = (await read_state(world)).queues["steps"]

    assert (steps.length, steps.lag, steps.pending, steps.consumers) == (4, 2, 2, 2)
    assert 100_000 <= steps.oldest_pending_ms < 160_000
    assert 300_000 <= steps.oldest_unread_ms < 360_000
    assert not steps.lag_unknown


async def test_a_stream_without_a_group_is_all_unread(world: World, raw: redis.Redis) -> None:
    raw.xadd(world.partitions[0].workflows(), {"kind": "workflow"}, id=f"{now_ms(raw) - 5_000}-0")

    workflows = (await read_state(world)).queues["workflows"]

    assert (workflows.length, workflows.lag, workflows.consumers) == (1, 1, 0)
    assert workflows.oldest_unread_ms >= 5_000


async def test_a_lag_that_redis_cannot_tell_is_said_to_be_unknown_and_is_right_all_the_same(
    world: World, raw: redis.Redis
) -> None:
    """What XDEL of an unread entry does (k8s.md, 1.9)."""
    key = world.partitions[0].steps()
    raw.xgroup_create(key, GROUP, id="0", mkstream=True)
    entries = [raw.xadd(key, {"kind": "step"}) for _ in range(5)]
    raw.xreadgroup(GROUP, "w", {key: ">"}, count=1)
    raw.xdel(key, entries[3])
    assert raw.xinfo_groups(key)[0]["lag"] is None

    steps = (await read_state(world)).queues["steps"]

    assert (steps.lag_unknown, steps.lag, steps.pending) == (True, 3, 1)


async def test_streams_that_were_read_once_stay_listed_and_deployments_count_with_their_queue(
    world: World, raw: redis.Redis
) -> None:
    await world.heartbeats.beat(worker("h:1:a"), ["steps", "steps:gpu", "steps:gpu@blue", "workflows@blue"])
    await world.heartbeats.leave("h:1:a")
    for key in (world.partitions[0].steps("gpu"), world.partitions[1].steps("gpu", "blue")):
        raw.xadd(key, {"kind": "step"})

    state = await read_state(world)

    assert sorted(state.queues) == ["steps", "steps:gpu", "workflows"]
    assert state.queues["steps:gpu"].lag == 2
    assert {stream.deployment for stream in state.streams} == {"", "blue"}


async def test_a_client_of_a_pinned_deployment_lists_its_stream_before_the_first_worker(redis_url: str) -> None:
    settings = Settings(url=redis_url, deployment="blue", affinity=True)
    async with World.connect(settings=settings) as pinned:
        await pinned.start(seen_app.sleeps, 1.0, run_id="r")

        assert (await read_state(pinned)).queues["workflows"].lag == 1


async def test_a_full_redis_keeps_no_pinned_client_out(redis_url: str, raw: redis.Redis) -> None:
    async with World.connect(redis_url):
        pass
    raw.config_set("maxmemory", 1)
    try:
        async with World.connect(settings=Settings(url=redis_url, deployment="blue", affinity=True)) as pinned:
            assert (await read_state(pinned)).queues["workflows"].lag == 0
    finally:
        raw.config_set("maxmemory", 0)


async def test_timers_open_runs_dead_letters_and_exact_counts_add_up_over_partitions(
    world: World, raw: redis.Redis
) -> None:
    now = now_ms(raw)
    for number, partition in enumerate(world.partitions):
        raw.zadd(partition.delayed, {"wait r w": now + 3_600_000, f"wait r late{number}": now - 1_000 * number})
        raw.xadd(partition.dead, {"kind": "step"})
        raw.hset(partition.stats, mapping={"steps_started": number, "": "x"})
    await world.start(seen_app.sleeps, 1.0, run_id="r")

    state = await read_state(world)

    assert (state.timers_pending, state.timers_overdue) == (2 * PARTITIONS, PARTITIONS)
    assert 3_000 <= state.timers_overdue_ms < 63_000
    assert state.dead_letters == PARTITIONS
    assert state.runs == {"pending": 1, "running": 0}
    assert state.recorded == {"steps_started": 0 + 1 + 2 + 3, "runs_created": 1}


async def test_keys_that_are_not_ours_count_as_nothing(world: World, raw: redis.Redis) -> None:
    partition = world.partitions[0]
    for key in (
        partition.steps(),
        partition.delayed,
        partition.dead,
        partition.stats,
        partition.index("status:running"),
    ):
        raw.set(key, "foreign")
    raw.set(listed_streams("default"), "foreign")
    raw.set(listed_workers("default"), "foreign")
    raw.xadd(world.partitions[1].steps(), {"kind": "step"})

    state = await read_state(world)

    assert state.queues["steps"].length == 1
    assert (state.timers_pending, state.dead_letters) == (0, 0)
    raw.delete(listed_streams("default"), listed_workers("default"))


async def test_workers_are_listed_while_their_heartbeat_counts(world: World, raw: redis.Redis) -> None:
    for consumer, state in (("h:1:a", "ready"), ("h:2:b", "draining"), ("h:3:c", "a word of a newer version")):
        await world.heartbeats.beat(worker(consumer, state=state), ["steps"])
    raw.set(worker_key("default", "h:4:d"), b"\xff no heartbeat")
    raw.sadd(listed_workers("default"), "h:4:d")
    assert 0 < raw.pttl(worker_key("default", "h:1:a")) <= 15_000

    seen = await read_state(world)
    raw.delete(worker_key("default", "h:1:a"))  # as its time does
    later = await read_state(world)

    assert seen.workers_by_state == {"ready": 1, "draining": 1, "unready": 1}
    assert (seen.workers[0].host, seen.workers[0].pid) == ("h", "1")
    assert later.workers_by_state == {"ready": 0, "draining": 1, "unready": 1}


async def test_a_prune_takes_the_dead_off_the_list_and_streams_that_are_empty_and_old(
    world: World, raw: redis.Redis
) -> None:
    week = 7 * 24 * 3_600_000
    now = now_ms(raw)
    await world.heartbeats.beat(worker("alive:1:a", beat_at=now), ["steps"])
    await world.heartbeats.beat(worker("dead:1:a", beat_at=now - week - 1), ["steps@empty", "steps@full"])
    raw.delete(worker_key("default", "dead:1:a"))
    raw.xadd(world.partitions[2].steps("", "full"), {"kind": "step"})

    await world.heartbeats.prune(now)

    assert raw.smembers(listed_workers("default")) == {b"alive:1:a"}
    assert raw.zrange(listed_streams("default"), 0, -1) == [b"steps@full", b"steps"]


async def test_a_thread_reads_the_same_as_the_event_loop(world: World, raw: redis.Redis) -> None:
    await world.start(seen_app.sleeps, 1.0, run_id="r")
    await world.heartbeats.beat(worker("h:1:a"), ["steps:side"])
    reader = StateReader(world.connection, world.partitions)
    try:
        threads, loops = reader.read(), await read_state(world)
    finally:
        reader.close()

    assert timeless(threads) == timeless(loops)


def timeless(state: State) -> object:
    return (
        [(s.stream, s.partition, s.backlog.length, s.backlog.lag) for s in state.streams],
        state.runs,
        state.recorded,
        state.workers,
    )


async def test_a_beat_is_one_command_and_a_worker_that_redis_has_forgotten_is_on_the_lists_again(
    world: World, raw: redis.Redis
) -> None:
    health = Health(blocked_limit_s=60)
    slots = (Slots("step", 1), Slots("workflow", 1))
    presence = Presence(world, Workflows(), health, slots=slots, streams=[(world.partitions[0], "steps")])
    await presence.tick()

    def sent() -> dict[str, int]:
        told = raw.info("commandstats")
        return {name: told.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("set", "sadd", "zadd")}

    before = sent()
    await presence.tick()
    assert {name: calls - before[name] for name, calls in sent().items()} == {"set": 1, "sadd": 0, "zadd": 0}
    assert 0 < raw.pttl(worker_key("default", world.consumer)) <= 15_000

    raw.delete(worker_key("default", world.consumer), listed_workers("default"), listed_streams("default"))
    await presence.tick()
    assert raw.smembers(listed_workers("default")) == {world.consumer.encode()}
    assert raw.zrange(listed_streams("default"), 0, -1) == [b"steps"]

    raw.delete(listed_workers("default"))  # while its own key is there
    for _ in range(12):
        await presence.tick()
    assert raw.smembers(listed_workers("default")) == {world.consumer.encode()}


async def test_a_worker_reads_the_clock_of_redis_again_each_minute(world: World, raw: redis.Redis) -> None:
    """It may be set back, and the runs that a worker began lay in the time ahead until it was restarted."""
    slots = (Slots("step", 1), Slots("workflow", 1))
    presence = Presence(world, Workflows(), Health(blocked_limit_s=60), slots=slots, streams=[])
    world._clock_offset_ms += 3_600_000
    for _ in range(12):
        await presence.tick()
    assert abs(world.now_ms() - raw.time()[0] * 1_000) < 60_000


async def test_the_embedded_redis_has_a_state_too() -> None:
    async with World.connect("redisworld://embedded/state") as world:
        await world.start(seen_app.sleeps, 1.0, run_id="r")

        assert (await read_state(world)).queues["workflows"].lag == 1


def commands(raw: redis.Redis) -> dict[str, int]:
    return {name.removeprefix("cmdstat_"): int(said["calls"]) for name, said in raw.info("commandstats").items()}


async def test_a_look_costs_a_fixed_number_of_commands_however_much_there_is(world: World, raw: redis.Redis) -> None:
    """A46: 2,000 open runs, a stream of 100,000 entries, 100,000 foreign keys; no command is slow, none scans."""
    await world.heartbeats.beat(worker("h:1:a"), ["steps:side"])
    reader = StateReader(world.connection, world.partitions)
    streams = 3 * PARTITIONS
    reader.read()  # its connection greets

    def look() -> dict[str, int]:
        raw.config_resetstat()
        reader.read()
        return {name: calls for name, calls in commands(raw).items() if name not in ("config|resetstat", "info")}

    empty = look()
    raw.eval(
        """for n = 1, 100000 do
             redis.call('XADD', KEYS[1], '*', 'kind', 'step')
             redis.call('SET', 'probe:' .. n, n)
           end
           for n = 1, 2000 do redis.call('ZADD', KEYS[2], n, 'r' .. n) end
           for n = 1, 20000 do redis.call('ZADD', KEYS[3], 1e15 + n, 'wait r' .. n) end
           redis.call('XGROUP', 'CREATE', KEYS[1], 'workers', '0')
           redis.call('XREADGROUP', 'GROUP', 'workers', 'w', 'COUNT', 50000, 'STREAMS', KEYS[1], '>')""",
        3,
        world.partitions[0].steps(),
        world.partitions[1].index("status:running"),
        world.partitions[2].delayed,
    )
    raw.slowlog_reset()
    raw.config_set("slowlog-log-slower-than", 50_000)
    try:
        full = look()
        state = reader.read()
        slow = raw.slowlog_get()
    finally:
        raw.config_set("slowlog-log-slower-than", 10_000)
        reader.close()

    assert state.queues["steps"].lag == state.queues["steps"].pending == 50_000
    assert (state.runs["running"], state.timers_pending) == (2_000, 20_000)
    expected = NAMESPACE_WIDE + PER_PARTITION * PARTITIONS + PER_STREAM * streams + 1  # the heartbeats
    assert sum(empty.values()) == expected
    assert sum(full.values()) == expected + 2, "the oldest pending and the oldest unread entry of the one stream"
    assert not {"scan", "keys", "hscan", "zscan", "sscan"} & full.keys()
    assert not [entry for entry in slow if not entry["command"].startswith(b"CONFIG")]
    raw.flushdb()


async def test_a_default_namespace_takes_fewer_than_fifty_commands(world: World, raw: redis.Redis) -> None:
    """A46's own bound."""
    await world.heartbeats.beat(worker("h:1:a"), ["steps", "workflows"])
    raw.config_resetstat()
    await read_state(world)

    assert sum(calls for name, calls in commands(raw).items() if name not in ("config|resetstat", "info")) < 50
