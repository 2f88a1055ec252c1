"""Does a run survive the SIGKILL of its worker, wherever it hits? (cases A21 and A22; promises 1 and 2)"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import anyio
import msgspec
import pytest
import redis

from redisworld.events import EventKind
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually
from tests.chaos.taking_over import taking_over
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio

LEASE_MS = 1_000
WITHIN_S = LEASE_MS / 1000 + 2
SLACK_S = 4.0
"""Two cores of a busy machine; the promise itself is lease + 2 s."""


async def test_a_queued_step_whose_worker_was_killed_runs_again_as_attempt_two_of_the_same_step(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    async with connect(max_inline_steps=0) as world:
        doomed = workers.start(max_inline_steps=0)
        run = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="killed")
        await eventually(lambda: raw.llen("probe:killed"))

        doomed.kill()
        raw.set("probe:gate", 1)
        workers.start(max_inline_steps=0)

        assert await run.result(timeout=15) == ["a", "d"]
    await settled(raw)
    kinds = logged(raw, "killed")
    first = kinds[EventKind.STEP_CREATED][0][0]
    assert [start for start in kinds[EventKind.STEP_STARTED] if start[0] == first] == [(first, 1), (first, 2)]
    assert [end for end in kinds[EventKind.STEP_COMPLETED] if end[0] == first] == [(first, 2)]
    assert notes(raw, "killed") == {"a": 2, "d": 1}
    invariants.check(raw, chaos_app.wf)


async def test_an_inline_step_whose_owner_was_killed_is_recovered_by_another_worker(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    async with connect() as world:
        doomed = workers.start()
        run = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="owned")
        await eventually(lambda: raw.llen("probe:owned"))

        doomed.kill()
        raw.set("probe:gate", 1)
        workers.start()

        assert await run.result(timeout=15) == ["a", "d"]
    await settled(raw)
    assert notes(raw, "owned") == {"a": 2, "d": 1}
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("inline", [0, 1])
@pytest.mark.parametrize("point", ["completed", "responsible"])
async def test_a_worker_killed_between_completion_and_replay_delays_the_run_by_a_lease_and_two_seconds_at_most(
    raw: redis.Redis, workers: Workers, connect: Connect, inline: int, point: str
) -> None:
    """A22: after any completion, and after the one that made it the last completer."""
    async with connect(max_inline_steps=inline) as world:
        doomed = workers.start(max_inline_steps=inline, kill=f"point:{point}")
        run = await world.start(chaos_app.fan_out_then_join, 3, run_id="last")
        await eventually(lambda: doomed.returncode is not None)
        killed = time.monotonic()

        async with taking_over(world, chaos_app.wf):
            assert await run.result(timeout=20) == "join 3"
        took = time.monotonic() - killed

    assert took < WITHIN_S + SLACK_S
    await settled(raw)
    bodies = notes(raw, "last")
    if point == "responsible":  # then all three were recorded
        assert bodies == {"b0": 1, "b1": 1, "b2": 1, "join 3": 1}
    starts = Counter(step_id for step_id, _ in logged(raw, "last")[EventKind.STEP_STARTED])
    assert sum(bodies.values()) <= sum(starts.values()), "a body ran without a start"
    invariants.check(raw, chaos_app.wf)


class Case(msgspec.Struct, frozen=True):
    """A run to be hurt at each of its calls, and what it gives."""

    workflow: str
    args: tuple[object, ...]
    result: list[str] | str
    settings: dict[str, int]
    sides: tuple[str, ...] = ("after",)  # before call i is after call i - 1, as far as Redis knows


DIAMOND = ["a", "b", "c", "d"]
CASES = {
    "diamond": Case("diamond", (), DIAMOND, {"max_inline_steps": 1, "concurrency": 1}, ("before", "after")),
    "all queued": Case("diamond", (), DIAMOND, {"max_inline_steps": 0, "concurrency": 1}),
    "two at once": Case("diamond", (), DIAMOND, {"max_inline_steps": 1}),
    "commits in chunks": Case("fan_out_then_join", (5,), "join 5", {"chunk_steps": 2}),
    "retry": Case("retried", (), "r", {}),
}


async def crash_at(
    case: Case, kill: str, raw: redis.Redis, workers: Workers, connect: Connect, directory: Path
) -> list[str]:
    """One run whose first worker dies at ``kill``; the calls that worker made."""
    namespace = f"a21-{kill.replace(':', '-') or 'none'}"
    trace = directory / f"{namespace}.trace"
    options = {"namespace": namespace, "lease_ms": 500, "partitions": 1, **case.settings}
    doomed = workers.start(kill=kill, trace=trace, ready=False, **options)
    async with connect(**options) as world:
        await eventually(lambda: "worker started" in doomed.log(), what="worker started")
        run = await world.start(chaos_app.wf.workflows[case.workflow], *case.args, run_id=namespace)
        if not kill:
            assert await run.result(timeout=20) == case.result
            await settled(raw, namespace)
            doomed.kill()
        else:
            over = f"rw:{{{namespace}:0}}:index:status:completed"  # it made fewer calls than the recorded run did
            await eventually(lambda: doomed.returncode is not None or raw.zcard(over), timeout=10, what=f"{kill}")
            died = time.monotonic()
            async with taking_over(world, chaos_app.wf):
                assert await run.result(timeout=20) == case.result, kill
                took = time.monotonic() - died
                await settled(raw, namespace)
            assert took < 0.5 + 2 + SLACK_S, f"{kill}: continued after {took:.1f} s"
    invariants.check(raw, chaos_app.wf, namespace)
    bodies, kinds = notes(raw, namespace), logged(raw, namespace, namespace)
    retries = len(kinds[EventKind.STEP_RETRYING])
    starts = Counter(step_id for step_id, _ in kinds[EventKind.STEP_STARTED])
    restarted = sum(starts.values()) - len(starts) - retries
    again = sum(bodies.values()) - len(bodies)
    assert max(bodies.values()) <= 2, f"{kill}: {bodies}"
    assert again <= restarted, f"{kill}: bodies {bodies}, starts by step {starts}"
    if case.workflow == "diamond":
        assert sorted(bodies) == DIAMOND
        in_flight = case.settings.get("concurrency", 2)  # b and c
        assert again <= restarted <= in_flight, f"{kill}: bodies {bodies}, starts by step {starts}"
    return trace.read_text().splitlines() if trace.exists() else []


@pytest.mark.parametrize("case", CASES)
async def test_a_kill_before_or_after_any_call_to_redis_neither_loses_nor_repeats_what_was_recorded(
    raw: redis.Redis, workers: Workers, connect: Connect, tmp_path: Path, case: str
) -> None:
    """A21: before and after. The calls are numbered as they are made; their order may vary a little.

    That each state in the row is its step's last event, and that a step has one terminal event, ``invariants`` checks.
    """
    calls = await crash_at(CASES[case], "", raw, workers, connect, tmp_path)
    print(f"{len(calls)} calls: {calls}")
    assert 5 <= len(calls) <= 40
    broken: list[str] = []
    at_once = anyio.CapacityLimiter(8)

    async def attempt(kill: str) -> None:
        async with at_once:
            try:
                await crash_at(CASES[case], kill, raw, workers, connect, tmp_path)
            except Exception as error:
                broken.append(f"{kill}: {type(error).__name__}: {error}")

    async with anyio.create_task_group() as tasks:
        for number in range(1, len(calls) + 1):
            for side in CASES[case].sides:
                tasks.start_soon(attempt, f"{side}:{number}")

    assert not broken, "\n\n".join(broken)
