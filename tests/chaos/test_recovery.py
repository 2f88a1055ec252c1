"""Is any work lost or repeated when consumers, groups or whole streams go away? (cases A01 to A04, A06, A07)"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest
import redis

from redisworld import Run, World
from redisworld.events import EventKind
from redisworld.keys import GROUP
from redisworld.runs import Step
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.probing import cli_worker, metric, most_warnings_a_second, probe
from tests.chaos.processes import APP, ROOT, Workers, eventually
from tests.chaos.watching import consumers, held_by, logged, notes, settled

pytestmark = pytest.mark.anyio

SLACK_S = 4.0
"""What a machine with other work may add."""


async def test_reclaim_gets_past_a_window_of_live_deliveries_while_their_worker_is_full(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A01: 30 held entries in front, a sweep of two at a time looks at twenty."""
    options = {"partitions": 1, "max_inline_steps": 0}
    async with connect(**options) as world:
        full = workers.start(concurrency=30, **options)
        front = await world.start(chaos_app.gated_fan_out, 30, "probe:gate-front", run_id="front")
        await eventually(lambda: raw.llen("probe:front") == 30)
        doomed = workers.start(concurrency=25, **options)
        orphans = await world.start(chaos_app.gated_fan_out, 25, "probe:gate-orphans", run_id="orphans")
        await eventually(lambda: raw.llen("probe:orphans") == 25)
        assert held_by(raw, full.pid) == 30
        assert held_by(raw, doomed.pid) == 25
        doomed.kill()
        raw.set("probe:gate-orphans", 1)

        workers.start(concurrency=2, **options)
        try:
            assert await orphans.result(timeout=8) == "join 25"
            assert set(notes(raw, "front").values()) == {1}
            assert len(logged(raw, "front")[EventKind.STEP_STARTED]) == 30
            assert invariants.pending(raw) == 30
        finally:
            raw.set("probe:gate-front", 1)
        assert await front.result(timeout=10) == "join 30"
    await settled(raw)
    again = notes(raw, "orphans")
    assert again.pop("join 25") == 1
    assert set(again.values()) == {2}
    invariants.check(raw, chaos_app.wf)


async def test_messages_of_a_dead_worker_survive_it_and_its_consumer_goes(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A02: every boot is a new consumer name; three workers in a row die with the same five steps."""
    async with connect(lease_ms=500, max_inline_steps=0) as world:
        run = await world.start(chaos_app.gated_fan_out, 5, "probe:gate", run_id="five")
        for boot in range(1, 4):
            doomed = workers.start(lease_ms=500, max_inline_steps=0, concurrency=5)
            await eventually(lambda boot=boot: raw.llen("probe:five") == 5 * boot)
            doomed.kill()
        raw.set("probe:gate", 1)
        last = workers.start(lease_ms=500, max_inline_steps=0)
        assert await run.result(timeout=10) == "join 5"
        await settled(raw)
        await eventually(
            lambda: all(f":{last.pid}:" in name for name in consumers(raw)), timeout=8, what="dead consumers removed"
        )
    assert set(notes(raw, "five").values()) == {1, 4}
    invariants.check(raw, chaos_app.wf)


async def test_names_of_two_hundred_dead_boots_go_and_what_some_of_them_held_is_done(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A02: a name for each boot. The consumer list is as long as there are workers in the end."""
    async with connect(lease_ms=500, partitions=1) as world:
        [partition] = world.partitions
        await world.queue.ensure_groups([(partition, "workflows"), (partition, "steps")])
        runs = [await world.start(chaos_app.two_notes, run_id=f"held-{number}") for number in range(5)]
        for boot in range(200):
            raw.xreadgroup(GROUP, f"host:{boot}:dead", {partition.workflows(): ">"}, count=1)
        assert len(consumers(raw)) >= 5
        raw.xgroup_createconsumer(partition.steps(), GROUP, "host:0:dead")
        for boot in range(200):
            raw.xgroup_createconsumer(partition.workflows(), GROUP, f"host:{boot}:dead")
        assert len(consumers(raw)) == 200

        workers.start(lease_ms=500, partitions=1)
        for run in runs:
            assert await run.result(timeout=10) == ["x", "y"]
        await eventually(lambda: len(consumers(raw)) == 1, timeout=15, what="only the living one is listed")
    await settled(raw)
    assert all(notes(raw, run.run_id) == {"x": 1, "y": 1} for run in runs)
    invariants.check(raw, chaos_app.wf)


async def test_the_ticket_of_a_dead_sweeper_holds_up_nobody_for_longer_than_a_short_lease(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Promise 2 with the default sweep of once a second and a lease of one: within lease + 2 s."""
    options = {"reclaim_every_ms": 1_000, "lease_ms": 1_000}
    async with connect(**options) as world:
        doomed = workers.start(**options)
        run = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="one")
        await eventually(lambda: notes(raw, "one") == {"a": 1})
        workers.start(**options)
        await eventually(lambda: f":{doomed.pid}:" in str(raw.get(world.partition("one").reclaim_ticket("workflows"))))
        doomed.kill()
        killed = time.monotonic()
        await eventually(lambda: notes(raw, "one") == {"a": 2}, timeout=10)
        took = time.monotonic() - killed
        raw.set("probe:gate", 1)
        assert await run.result(timeout=10) == ["a", "d"]
    assert took < 1 + 2 + SLACK_S, f"{took:.1f} s"
    await settled(raw)
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("way", ["FLUSHALL", "DEL", "XGROUP DESTROY"])
async def test_a_worker_goes_on_when_the_streams_vanish_under_its_blocking_read(
    raw: redis.Redis, workers: Workers, connect: Connect, way: str
) -> None:
    """A03."""
    async with connect() as world:
        worker = cli_worker(workers, APP, "--lease", "1s")
        first = await world.start(chaos_app.two_notes, run_id="before")
        assert await first.result(timeout=10) == ["x", "y"]
        await settled(raw)
        for stream in [s for p in world.partitions for s in invariants.streams(raw, p)] if way != "FLUSHALL" else []:
            _ = raw.delete(stream) if way == "DEL" else raw.xgroup_destroy(stream, GROUP)
        if way == "FLUSHALL":
            raw.flushall()

        second = await world.start(chaos_app.two_notes, run_id="after")
        assert await second.result(timeout=8) == ["x", "y"]
        await eventually(
            lambda: all(raw.exists(s) and raw.xinfo_groups(s) for p in world.partitions
                        for s in (p.steps(), p.workflows())), what="all groups again")  # fmt: skip
        assert metric(worker, "groups_recreated_total") == 4, "two streams in each of two partitions"
        await eventually(lambda: probe(worker, "/readyz") == 200)
    assert notes(raw, "after") == {"x": 1, "y": 1}
    if way != "FLUSHALL":
        assert notes(raw, "before") == {"x": 1, "y": 1}
        await settled(raw)
        invariants.check(raw, chaos_app.wf)
    assert worker.returncode is None
    assert worker.log().count("\n") < 40, f"it floods its log:\n{worker.log()[-2000:]}"
    assert most_warnings_a_second(worker) <= 2, "one of each loop that met it"
    assert "Traceback" not in worker.log()


async def test_a_new_client_meets_the_running_workers_after_a_flushall(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """The partition count is fixed in Redis; workers that go on with theirs must put it back."""
    workers.start(partitions=2)
    raw.flushall()
    await eventually(lambda: raw.keys("rw:*steps"), what="groups made again")
    async with connect(partitions=None) as world:
        assert len(world.partitions) == 2


async def test_work_from_before_the_first_worker_is_done_by_the_first(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A04: two clients, no worker, no group; then a worker, and another one."""
    runs: list[Run] = []
    async with connect() as world, connect() as other:
        for number in range(5):
            client: World = world if number < 3 else other
            runs.append(await client.start(chaos_app.two_notes, run_id=f"early-{number}"))
        assert all(not raw.xinfo_groups(world.partition(run.run_id).workflows()) for run in runs)
        workers.start()
        workers.start(ready=False)
        for run in runs:
            assert await run.result(timeout=10) == ["x", "y"]
    await settled(raw)
    assert all(notes(raw, run.run_id) == {"x": 1, "y": 1} for run in runs)
    invariants.check(raw, chaos_app.wf)


async def test_undelivered_messages_survive_the_loss_of_their_group(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A04, second half: four messages nobody has read, then XGROUP DESTROY."""
    async with connect() as world:
        first = workers.start()
        first.stop()
        assert first.wait(15) == 0
        runs = [await world.start(chaos_app.two_notes, run_id=f"left-{number}") for number in range(4)]
        for partition in world.partitions:
            raw.xgroup_destroy(partition.workflows(), GROUP)
        workers.start()
        for run in runs:
            assert await run.result(timeout=10) == ["x", "y"]
    await settled(raw)
    assert all(notes(raw, run.run_id) == {"x": 1, "y": 1} for run in runs)
    invariants.check(raw, chaos_app.wf)


async def test_no_worker_hoards_the_queue(raw: redis.Redis, workers: Workers, connect: Connect) -> None:
    """A06: 40 steps of 0.2 s on two workers with two slots each. One blocking read may bring one more per stream."""
    options = {"concurrency": 2, "max_inline_steps": 0}
    async with connect(**options) as world:
        both = [workers.start(**options) for _ in range(2)]
        started = time.monotonic()
        run = await world.start(chaos_app.many_slow, 40, 0.2, run_id="shared")
        most = {worker.pid: 0 for worker in both}
        result: list[int] = []

        async def wait() -> None:
            result.append(await run.result(timeout=20))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            while not result:
                for worker in both:
                    most[worker.pid] = max(most[worker.pid], held_by(raw, worker.pid))
                await anyio.sleep(0.05)
        took = time.monotonic() - started
    assert result == [40]
    await settled(raw)
    shares = Counter(token_of(raw, world, "shared"))
    names = {name.rpartition(":")[2]: name for name in consumers(raw)}
    assert len(names) == 2
    assert all(shares[suffix] >= 12 for suffix in names), shares
    assert max(most.values()) <= 2 + 2, f"most held at once: {most}"
    assert took < 8, f"ideal is 2 s, took {took:.1f} s"
    print(f"most held at once {list(most.values())}, {took:.1f} s")
    invariants.check(raw, chaos_app.wf)


def token_of(raw: redis.Redis, world: World, run_id: str) -> list[str]:
    """Which consumer claimed each step: the token begins with the end of its name."""
    row = raw.hgetall(world.partition(run_id).run(run_id))
    return [Step.parse(state.decode()).token.partition(".")[0] for name, state in row.items() if name[:2] == b"s:"]


def resident_kib(pid: int) -> int:
    """Memory of a process."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("the memory of a process is read from /proc")
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))


async def test_a_backlog_of_twenty_thousand_steps_stays_in_redis(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A06: the memory of a worker does not grow with what is queued. Another one has made the steps."""
    options = {"concurrency": 2, "max_inline_steps": 0, "partitions": 1, "lease_ms": 5_000}
    async with connect(**options) as world:
        [partition] = world.partitions
        maker = workers.start(**options)
        run = await world.start(chaos_app.many_slow, 20_000, 0.01, run_id="wide")
        await eventually(lambda: raw.xlen(partition.steps()) > 19_900, timeout=60, what="the steps are queued")
        await eventually(lambda: not raw.hget(partition.run("wide"), "wake"), timeout=30, what="the commit")
        maker.kill()
        worker = workers.start(**options)
        await eventually(lambda: held_by(raw, worker.pid) > 0, timeout=20)
        before, done = resident_kib(worker.pid), raw.llen("probe:wide")
        await eventually(lambda: raw.llen("probe:wide") > done + 300, timeout=60, what="some are done")
        assert resident_kib(worker.pid) - before < 30 * 1024
        assert held_by(raw, worker.pid) <= 2 + 2
        await run.terminate()
        worker.stop()
        assert worker.wait(15) == 0
    # no invariants.check: it replays every prefix, and this log has 20,000 steps


async def test_short_steps_pass_a_long_one_on_the_other_worker(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A06, variant: one slot each."""
    options = {"concurrency": 1, "max_inline_steps": 0, "partitions": 1}
    async with connect(**options) as world:
        for _ in range(2):
            workers.start(**options)
        long = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="long")
        await eventually(lambda: notes(raw, "long"))
        short = await world.start(chaos_app.fan_out, 3, run_id="short")
        assert await short.result(timeout=5) == 3
        raw.set("probe:gate", 1)
        assert await long.result(timeout=10) == ["a", "d"]
    await settled(raw)
    invariants.check(raw, chaos_app.wf)


async def test_twenty_simultaneous_starts_of_one_run_id_make_one_run(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A07: two clients, then one more start when it is over."""
    results = []
    async with connect() as one, connect() as other:
        workers.start()

        async def start(client: World) -> None:
            run = await client.start(chaos_app.pause_between, 0.3, run_id="order-7")
            results.append(await run.result(timeout=10))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(start, (one, other)[number % 2])
        await settled(raw)
        length = raw.llen(one.partition("order-7").log("order-7"))
        late = await one.start(chaos_app.pause_between, 0.3, run_id="order-7")
        assert await late.result(timeout=10) == ["x", "y"]
    assert results == [["x", "y"]] * 20
    assert notes(raw, "order-7") == {"x": 1, "y": 1}
    assert raw.llen(one.partition("order-7").log("order-7")) == length
    invariants.check(raw, chaos_app.wf)


async def test_starts_of_one_run_id_from_two_processes_at_once_make_one_run(
    raw: redis.Redis, redis_url: str, workers: Workers, connect: Connect
) -> None:
    """A07: ten starts in each of two processes, at the same moment; all are handed the same run."""
    async with connect():
        workers.start()
        command = [sys.executable, "-m", "tests.chaos.start_main", redis_url, "order-7", "10"]
        both = [
            subprocess.Popen(  # noqa: ASYNC220 it is there at once
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for process in both:
            assert process.stdout is not None
            assert await anyio.to_thread.run_sync(process.stdout.readline) == "ready\n"
        for process in both:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        told = [json.loads((await anyio.to_thread.run_sync(process.communicate))[0]) for process in both]
        assert told == [[["x", "y"]] * 10] * 2
        assert [process.returncode for process in both] == [0, 0]
    await settled(raw)
    assert notes(raw, "order-7") == {"x": 1, "y": 1}
    assert len(logged(raw, "order-7")[EventKind.RUN_CREATED]) == 1
    invariants.check(raw, chaos_app.wf)
