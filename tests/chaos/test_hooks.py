"""Does a payload reach its run once, and a token its next holder, whoever dies and whatever is lost? (A32, A33)

Real worker processes; what is exact without them is in tests/conformance/test_hooks.py.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import anyio
import pytest
import redis

from redisworld import HookNotFound, Run, RunGone, World
from redisworld.events import Event, EventKind
from redisworld.keys import partition_of
from redisworld.spawn import PrivateRedis
from tests.apps import hook_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import ROOT, Workers, eventually
from tests.chaos.proxy import preload, proxy, script
from tests.chaos.taking_over import taking_over
from tests.chaos.watching import notes, settled

pytestmark = pytest.mark.anyio

APP = "tests.apps.hook_app:wf"
TOKEN = "chat:42"
GATE = "probe:gate"
WITHIN_S = 2.0
SLACK_S = 4.0
"""What a machine with other work may add."""
"""Two cores of a busy machine; the promise itself is 2 s, and the lease more where a worker has died."""


async def waits(world: World, token: str = TOKEN, *, of: Run | None = None) -> None:
    """Return when an open hook holds the token (of that run)."""
    with anyio.fail_after(15):
        while True:
            try:
                found = await world.hook(token)
                if of is None or found.run_id == of.run_id:
                    return
            except HookNotFound:
                pass
            await anyio.sleep(0.01)


def log(raw: redis.Redis, run_id: str, namespace: str = "default") -> list[Event]:
    """The whole log of a run."""
    return [e for p in invariants.partitions(raw, namespace) for e in invariants.log_of(raw, p, run_id)]


def count(raw: redis.Redis, run_id: str, kind: EventKind, namespace: str = "default") -> int:
    """How many events of a kind the log of a run has."""
    return sum(event.kind is kind for event in log(raw, run_id, namespace))


def received(raw: redis.Redis, run_id: str) -> int:
    """How many payloads the log of a run has."""
    return count(raw, run_id, EventKind.HOOK_RECEIVED)


# -- A32: tokens


async def test_a_token_goes_from_run_to_run_and_each_gets_its_own_payload_only(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    workers.start(app=APP)
    async with connect() as world:
        one = await world.start(hook_app.noted, TOKEN, run_id="one")
        await waits(world, of=one)
        await world.resume(TOKEN, "for one")
        assert await one.result(timeout=15) == "for one"

        two = await world.start(hook_app.told_apart, TOKEN, run_id="two")
        await waits(world, of=two)
        three = await world.start(hook_app.told_apart, TOKEN, run_id="three")
        assert await three.result(timeout=15) == "held by two"
        await two.cancel()
        await eventually(lambda: raw.zcard(world.partition("two").index("status:cancelled")))

        four = await world.start(hook_app.broken, TOKEN, run_id="four")
        await waits(world, of=four)
        await world.resume(TOKEN, "fail")
        await eventually(lambda: raw.zcard(world.partition("four").index("status:failed")))

        five = await world.start(hook_app.told_apart, TOKEN, run_id="five")
        await waits(world, of=five)
        await world.resume(TOKEN, "for five")
        assert await five.result(timeout=15) == "got for five"
    await settled(raw)
    assert notes(raw, "one") == {"for one": 1}
    invariants.check(raw, hook_app.wf)


async def test_a_hundred_wakes_delivered_twice_to_two_workers_never_make_a_run_conflict_with_itself(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    async with connect(partitions=1) as world:
        runs = [await world.start(hook_app.told_apart, f"token:{n}", run_id=f"run{n}") for n in range(100)]
        stream = world.partitions[0].tag + "workflows"
        wakes = [fields for _, fields in raw.xrange(stream)]
        assert len(wakes) == 100
        raw.delete(stream)
        for fields in wakes:
            raw.xadd(stream, fields)
            raw.xadd(stream, fields)
        for _ in range(2):
            workers.start(app=APP, partitions=1, concurrency=1, ready=False)

        for number, run in enumerate(runs):
            await waits(world, f"token:{number}", of=run)
            await world.resume(f"token:{number}", "hello")
            assert await run.result(timeout=15) == "got hello"
    await settled(raw)
    kinds = [event.kind for run in runs for event in log(raw, run.run_id)]
    assert kinds.count(EventKind.HOOK_CREATED) == 100
    assert EventKind.HOOK_CONFLICT not in kinds
    invariants.check(raw, hook_app.wf)


async def test_a_token_in_another_partition_than_its_run_is_claimed_and_resumed_alike(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    workers.start(app=APP, partitions=4)
    tokens = {f"run{number}": f"token:{11 - number}" for number in range(12)}
    assert sum(partition_of(run, 4) != partition_of(token, 4) for run, token in tokens.items()) >= 6
    async with connect(partitions=4) as world:
        for run_id, token in tokens.items():
            await world.start(hook_app.told_apart, token, run_id=run_id)
        for run_id, token in tokens.items():
            await waits(world, token, of=world.run(run_id))
            await world.resume(token, token)
        for run_id, token in tokens.items():
            assert await world.run(run_id).result(timeout=15) == f"got {token}"
    await settled(raw)
    invariants.check(raw, hook_app.wf)


# -- A33: resumes


async def test_a_resume_whose_reply_was_lost_is_stored_once_and_each_repeat_succeeds(
    raw: redis.Redis, redis_server: PrivateRedis, workers: Workers, connect: Connect
) -> None:
    workers.start(app=APP)
    preload(raw)
    with proxy(redis_server.url) as between:
        async with connect() as world, connect(url=between.url) as caller:
            run = await world.start(hook_app.noted, TOKEN, run_id="r1")
            await waits(world)
            lost = between.lose_reply(script("resume_hook"))

            begun = time.monotonic()
            for _ in range(4):
                assert (await caller.resume(TOKEN, "p1", resume_id="k1")).run_id == "r1"
            assert await run.result(timeout=15) == "p1"

            assert time.monotonic() - begun < WITHIN_S + SLACK_S
            assert (await caller.resume(TOKEN, "p1", resume_id="k1")).run_id == "r1"
            assert lost.hits == 1
            keys = sorted(raw.keys())
            with pytest.raises(HookNotFound):
                await caller.resume("unknown", "p1", resume_id="k1")
            assert sorted(raw.keys()) == keys
    await settled(raw)
    assert received(raw, "r1") == 1
    assert notes(raw, "r1") == {"p1": 1}
    invariants.check(raw, hook_app.wf)


async def test_a_resuming_process_that_is_killed_has_stored_its_payload_and_woken_its_run_or_neither(
    raw: redis.Redis, redis_url: str, workers: Workers, connect: Connect
) -> None:
    """Before and after its look at the token, and after its script."""
    workers.start(app=APP)
    async with connect() as world:

        async def resume_dies(kill: str, *, stored: bool) -> None:
            run = await world.start(hook_app.noted, kill, run_id=kill.replace(":", ""))
            await waits(world, kill)
            command = [sys.executable, "-m", "tests.chaos.resume_main", redis_url, '{"partitions": 2}', kill, "p1", "k"]
            died = await anyio.run_process(command, check=False, cwd=ROOT, env=os.environ | {"CHAOS_KILL": kill})
            assert died.returncode == -9, died.stderr
            if stored:
                assert await run.result(timeout=WITHIN_S + SLACK_S) == "p1"
            assert received(raw, run.run_id) == stored

            assert (await world.resume(kill, "p1", resume_id="k")).run_id == run.run_id  # somebody asks again
            assert await run.result(timeout=WITHIN_S + SLACK_S) == "p1"
            await settled(raw)
            assert received(raw, run.run_id) == 1
            assert notes(raw, run.run_id) == {"p1": 1}

        async with anyio.create_task_group() as tasks:
            for kill in ("before:1", "before:2", "after:2"):
                tasks.start_soon(lambda kill=kill: resume_dies(kill, stored=kill == "after:2"))
    invariants.check(raw, hook_app.wf)


async def test_five_hundred_resumes_into_one_hook_arrive_in_order_each_once(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    workers.start(app=APP)
    async with connect() as world:
        run = await world.start(hook_app.all_of, TOKEN, 500, run_id="r1")
        await waits(world)
        for number in range(500):
            await world.resume(TOKEN, number)

        assert await run.result(timeout=20) == list(range(500))
    await settled(raw)
    assert received(raw, "r1") == 500
    invariants.check(raw, hook_app.wf)


async def test_resumes_around_the_end_of_a_hook_are_taken_or_refused_and_what_was_taken_is_in_the_log(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """The body takes twenty, frees the token and waits elsewhere; who comes later is told so, until the run ends."""
    workers.start(app=APP)
    answers: dict[int, str] = {}
    async with connect() as world:
        run = await world.start(hook_app.all_of, TOKEN, 20, run_id="r1")
        await waits(world)

        async def resume(number: int) -> None:
            try:
                answers[number] = (await world.resume(TOKEN, number)).run_id
            except (HookNotFound, RunGone) as refused:
                answers[number] = type(refused).__name__

        for start in range(0, 200, 10):
            async with anyio.create_task_group() as tasks:
                for number in range(start, start + 10):
                    tasks.start_soon(resume, number)
        taken = await run.result(timeout=15)
        await resume(1000)
    await settled(raw)
    assert len(taken) == 20
    assert received(raw, "r1") == sum(answer == "r1" for answer in answers.values())
    assert all(answers[number] == "r1" for number in taken)
    assert answers[1000] == "RunGone"
    invariants.check(raw, hook_app.wf)


# -- beside other things


async def test_a_payload_is_used_while_the_step_beside_the_hook_still_runs(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    workers.start(app=APP)
    async with connect() as world:
        run = await world.start(hook_app.first_of, TOKEN, GATE, run_id="r1")
        await waits(world)
        await eventually(lambda: notes(raw, "r1")["s"])

        await world.resume(TOKEN, "early")
        await eventually(lambda: notes(raw, "r1")["early"])  # the gate is still closed

        raw.set(GATE, 1)
        assert await run.result(timeout=15) == ["early", "s"]
    await settled(raw)
    assert notes(raw, "r1") == {"s": 1, "early": 1}
    invariants.check(raw, hook_app.wf)


async def test_a_payload_that_comes_before_or_after_the_end_of_the_step_beside_it_is_kept(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    workers.start(app=APP)
    async with connect() as world:
        runs = {name: await world.start(hook_app.beside, name, f"{GATE}:{name}", run_id=name) for name in "ab"}
        for run_id, run in runs.items():
            await waits(world, run_id, of=run)
        await world.resume("a", "payload")
        raw.set(f"{GATE}:a", 1)
        raw.set(f"{GATE}:b", 1)
        await eventually(lambda: any(event.kind is EventKind.STEP_COMPLETED for event in log(raw, "b")))
        await world.resume("b", "payload")

        assert [await run.result(timeout=15) for run in runs.values()] == [["payload", "s"]] * 2
    await settled(raw)
    invariants.check(raw, hook_app.wf)


async def test_of_a_payload_and_a_timer_that_race_the_body_sees_the_one_the_log_has_first(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    workers.start(app=APP)
    chance = random.Random(32)
    results: dict[str, str] = {}
    async with connect() as world:

        async def race(run_id: str) -> None:
            run = await world.start(hook_app.raced, run_id, 0.4, run_id=run_id)
            await eventually(lambda: count(raw, run_id, EventKind.HOOK_CREATED))  # a slow machine may see its end only
            await anyio.sleep(chance.uniform(0.3, 0.5))
            try:
                await world.resume(run_id, "hello")
            except (HookNotFound, RunGone):
                results[run_id] = "refused"
            result = await run.result(timeout=15)
            assert result == "nobody came" or run_id not in results
            results[run_id] = result

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(race, f"race{number}")
    await settled(raw)
    for run_id, result in results.items():
        ends = [e.kind for e in log(raw, run_id) if e.kind in (EventKind.HOOK_RECEIVED, EventKind.WAIT_COMPLETED)]
        assert (result == "got hello") is (ends[0] is EventKind.HOOK_RECEIVED), run_id
    invariants.check(raw, hook_app.wf)


# -- a worker that dies while it creates the hook


async def crash_at(kill: str, raw: redis.Redis, workers: Workers, connect: Connect, directory: Path) -> list[str]:
    """One run whose first worker dies at ``kill``; the calls that worker made until the run was over."""
    namespace = f"a32-{kill.replace(':', '-') or 'none'}"
    trace = directory / f"{namespace}.trace"
    options = {"namespace": namespace, "lease_ms": 500, "partitions": 4}
    async with connect(**options) as world:
        run = await world.start(hook_app.again, TOKEN, 2, run_id=namespace)
        doomed = workers.start(app=APP, kill=kill, trace=trace, ready=False, **options)

        async def talk() -> None:
            for number, payload in enumerate(("a", "b"), 1):
                await eventually(lambda n=number: count(raw, namespace, EventKind.HOOK_CREATED, namespace) == n)
                await world.resume(TOKEN, payload)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk)
            if kill:
                over = world.partition(namespace).index("status:completed")
                await eventually(lambda: doomed.returncode is not None or raw.zcard(over), what=f"{kill}")
                async with taking_over(world, hook_app.wf):
                    assert await run.result(timeout=20) == ["a", "b"], kill
                    await settled(raw, namespace)
            else:
                assert await run.result(timeout=20) == ["a", "b"]
                await settled(raw, namespace)
                doomed.kill()
    kinds = [event.kind for event in log(raw, namespace, namespace)]
    assert kinds.count(EventKind.HOOK_CREATED) == 2, f"{kill}: {kinds}"
    assert EventKind.HOOK_CONFLICT not in kinds, f"{kill}: {kinds}"
    invariants.check(raw, hook_app.wf, namespace)
    return trace.read_text().splitlines()


async def test_a_worker_killed_before_or_after_any_call_of_the_passes_that_make_a_hook_leaves_no_conflict_with_itself(
    raw: redis.Redis, workers: Workers, connect: Connect, tmp_path: Path
) -> None:
    """Before call i is after call i - 1, as far as Redis knows."""
    calls = await crash_at("", raw, workers, connect, tmp_path)
    print(f"{len(calls)} calls: {calls}")
    names = [call.split()[1] for call in calls]
    assert names.count("claim_token") >= 2
    last = len(names) - names[::-1].index("claim_token") + 1  # the commit that creates the second hook
    assert names[last - 1] == "commit_pass"
    broken: list[str] = []
    at_once = anyio.CapacityLimiter(6)

    async def attempt(kill: str) -> None:
        async with at_once:
            try:
                await crash_at(kill, raw, workers, connect, tmp_path)
            except Exception as error:
                broken.append(f"{kill}: {type(error).__name__}: {error}")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attempt, "before:1")
        for number in range(1, last + 1):
            tasks.start_soon(attempt, f"after:{number}")

    assert not broken, "\n\n".join(broken)
