"""Does anything stay of runs that are over, and does everything stay of runs that are not? (A41)

The long form: ``pytest -m chaos --chaos-finished 100000``.
"""

from __future__ import annotations

import time

import pytest
import redis

from redisworld.runs import Status
from tests.apps import cases_app, whole_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually
from tests.chaos.watching import settled

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]

RETENTION_MS = 3_000
"""Above the lease and the boot of a worker: a message that outlives its run's retention is one of an unknown run."""
KILLED = 20
_AT_ONCE = 400


def keys_of_runs(raw: redis.Redis) -> list[str]:
    """Keys with a run id or hook token in their name."""
    return [key.decode() for key in raw.scan_iter(count=1_000) if b":run:" in key or b":hook:" in key]


async def test_nothing_is_left_of_finished_runs_and_open_ones_are_untouched(
    raw: redis.Redis, workers: Workers, connect: Connect, request: pytest.FixtureRequest, figures: list[str]
) -> None:
    """A41: streams, rows, logs, hooks, tokens, timers and listings; memory; and no key of an open run expires."""
    count = request.config.getoption("--chaos-finished")
    options = {"retention_ms": RETENTION_MS, "reap_every_ms": 300}
    app = "tests.apps.whole_app:wf"
    async with connect(**options) as world:
        both = [workers.start(app=app, **options) for _ in range(2)]
        waiting = await world.start(whole_app.waits_for_a_hook, "probe-token", run_id="waiting")
        asleep = await world.start(whole_app.sleeps, 3_600.0, run_id="asleep")
        later = await world.start(whole_app.sleeps, 0.0, run_id="later", delay="1h")

        async def batch(first: int, last: int) -> None:
            for number in range(first, last):
                await world.start(whole_app.whole, number, run_id=f"w{number}")
                if number % 50 == 0:
                    await eventually(lambda n=number: number_of(raw, "runs_completed") > n - _AT_ONCE, timeout=60)
            await eventually(lambda: number_of(raw, "runs_completed") == last, timeout=60)

        began = time.monotonic()
        await batch(0, count // 10)  # what a server and its workers take once and for all
        await gone(raw, {"waiting", "asleep", "later"})
        before, keys_before = raw.info("memory")["used_memory"], raw.dbsize()
        await batch(count // 10, count)
        halves = [await world.start(whole_app.half, number, run_id=f"h{number}") for number in range(KILLED)]
        await eventually(lambda: all(raw.exists(f"probe:{run.run_id}") for run in halves))
        for worker in both:
            worker.kill()
        for run in halves:
            assert await run.terminate() is Status.CANCELLED
        workers.start(app=app, ready=False, **options)
        await settled(raw, timeout=30)
        await gone(raw, {"waiting", "asleep", "later"})
        after, keys_after = raw.info("memory")["used_memory"], raw.dbsize()
        took = time.monotonic() - began
        probes = sum(1 for _ in raw.scan_iter(match="probe:*"))
        figures.append(
            f"housekeeping: {count} runs and {KILLED} cancelled in {took:.0f} s: keys {keys_before} -> "
            f"{keys_after - probes}, memory {(after - before) / 1024:+.0f} KiB"
        )
        assert keys_after - probes <= keys_before + 2
        assert after - before < 1_000_000
        open_runs = {"waiting": waiting, "asleep": asleep, "later": later}
        for run_id, run in open_runs.items():
            assert not (await run.status()).terminal
            assert all(raw.ttl(key) == -1 for key in keys_of_runs(raw) if f":run:{run_id}" in key)
        await world.resume("probe-token", 5)
        assert await waiting.result(timeout=5) == 5
        await asleep.terminate()
        await later.cancel()
    for partition in world.partitions:
        await eventually(lambda p=partition: not raw.hgetall(p.releases), timeout=15)
    await eventually(lambda: not keys_of_runs(raw), timeout=15, what="no key of any run")
    invariants.check(raw, whole_app.wf)


def number_of(raw: redis.Redis, name: str) -> int:
    return sum(int(raw.hget(p.stats, name) or 0) for p in invariants.partitions(raw))


async def gone(raw: redis.Redis, open_ids: set[str]) -> None:
    """Wait until only these runs have left anything."""

    def only_they() -> bool:
        listed = {run_id for p in invariants.partitions(raw) for run_id in invariants.run_ids(raw, p)}
        expiring = sum(raw.zcard(p.expiring) for p in invariants.partitions(raw))
        # a pointer of a hook that is over stays for the retention
        tokens = [key for key in keys_of_runs(raw) if ":hook:" in key and not key.endswith(":probe-token")]
        return listed == open_ids and expiring == 0 and not tokens

    try:
        await eventually(only_they, timeout=30)
    except AssertionError as error:
        listed = {run_id for p in invariants.partitions(raw) for run_id in invariants.run_ids(raw, p)}
        expiring = sum(raw.zcard(p.expiring) for p in invariants.partitions(raw))
        left = sorted(keys_of_runs(raw))
        raise AssertionError(
            f"finished runs are not reaped: {len(listed)} listed, {expiring} expiring, {len(left)} keys, as {left[:9]}"
        ) from error
    others = [key for key in keys_of_runs(raw) if not any(f":{what}" in key for what in (*open_ids, "probe-token"))]
    assert others == []


async def test_a_large_payload_is_stored_once_for_each_event_and_in_no_stream(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A41: 1 MB through ten steps, each recorded as an input and as a result."""
    size, times = 1_000_000, 10
    async with connect() as world:
        workers.start(app="tests.apps.cases_app:wf")
        before = raw.info("memory")["used_memory_dataset"]
        run = await world.start(cases_app.passed_along, b"x" * size, times, run_id="large")
        assert await run.result(timeout=30) == size
        await settled(raw)
        taken = raw.info("memory")["used_memory_dataset"] - before
    events = 1 + 2 * times  # run_created, and of each step step_created and step_completed
    assert sum(len(element) for element in raw.lrange(world.partition("large").log("large"), 0, -1)) >= events * size
    assert taken <= 2 * events * size, f"{taken / size:.1f} times the payload for {events} events"
