"""Do many runs of mixed workflows survive workers that are killed and started again all the time?

The long form: ``pytest -m chaos --chaos-runs 2000 --chaos-kills 100``. It says how many bodies ran twice, and why.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import Any

import anyio
import pytest
import redis

from redisworld.events import EventKind
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import WorkerProcess, Workers, eventually
from tests.chaos.test_faults_bodies import no_owners
from tests.chaos.test_soak import MIX
from tests.chaos.watching import notes, settled

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]

LEASE_MS = 600
_AT_ONCE = 300
"""Runs that may be open before more are started: the test is about kills, not about a backlog."""


async def test_no_run_is_lost_and_no_completion_doubled_under_kills(
    raw: redis.Redis, workers: Workers, connect: Connect, request: pytest.FixtureRequest, figures: list[str]
) -> None:
    """Promise 1 and A21 at random moments."""
    count, kills = request.config.getoption("--chaos-runs"), request.config.getoption("--chaos-kills")
    seed = int(os.environ.get("CHAOS_SEED", "11"))
    chance, began = random.Random(seed), time.monotonic()
    options: dict[str, Any] = {"lease_ms": LEASE_MS, "concurrency": 16, "replay_concurrency": 8}
    async with connect(lease_ms=LEASE_MS) as world:
        alive: list[WorkerProcess] = [workers.start(**options) for _ in range(3)]
        runs: list[tuple[str, Any]] = []
        for kill in range(kills):
            while len(runs) < count * (kill + 1) // kills:
                name = sorted(MIX)[len(runs) % len(MIX)]
                body = chaos_app.wf.workflows[name]
                runs.append((name, await world.start(body, *MIX[name][0], run_id=f"r{len(runs)}")))
                await eventually(lambda: len(runs) - finished(raw) < _AT_ONCE, timeout=60)
            await anyio.sleep(chance.uniform(0.05, 0.4))
            alive.pop(chance.randrange(3)).kill()
            alive.append(workers.start(ready=False, **options))
        for name, run in runs:
            result = await run.result(timeout=60)
            given, expected = (sorted(result), sorted(MIX[name][1])) if name == "mixed" else (result, MIX[name][1])
            assert given == expected, f"seed {seed}: {name} {run.run_id}"
    await settled(raw)
    took = time.monotonic() - began
    seen = counted(raw, [run.run_id for _, run in runs])
    figures.append(
        f"chaos: {count} runs, {kills} workers killed, seed {seed}, {took:.0f} s: {count - finished(raw)} runs lost, "
        + ", ".join(f"{number} {what}" for what, number in seen.items())
    )
    assert finished(raw) == count
    assert seen["completions doubled"] == 0
    invariants.check(raw, chaos_app.wf)
    assert no_owners(raw) == []
    for partition in invariants.partitions(raw):
        assert raw.zrange(partition.delayed, 0, -1) == []
        assert raw.hgetall(partition.delayed_body) == {}
        assert raw.xlen(partition.dead) == 0
    ended = [worker for worker in alive if worker.returncode is not None]
    assert not ended, ended[0].log()[-2000:]


def finished(raw: redis.Redis) -> int:
    stats = [raw.hmget(p.stats, "runs_completed", "runs_failed") for p in invariants.partitions(raw)]
    return sum(int(value or 0) for values in stats for value in values)


def counted(raw: redis.Redis, run_ids: list[str]) -> dict[str, int]:
    """Completions, bodies, and why steps started more than once; fails where a body ran without a start.

    A start after ``step_retrying`` was asked for; one without it took the step over from a worker that died. A worker
    may die between the claim and the body, or twice in a row, so starts and bodies are counted apart.
    """
    seen = dict.fromkeys(("completions doubled", "bodies", "bodies beyond the first of their step",
                          "starts after a retry", "starts after a worker died"), 0)  # fmt: skip
    of = {run_id: p for p in invariants.partitions(raw) for run_id in invariants.run_ids(raw, p)}
    for run_id in run_ids:
        starts: Counter[str] = Counter()
        retried, done = set(), set()
        for event in invariants.log_of(raw, of[run_id], run_id):
            if event.kind is EventKind.STEP_STARTED:
                starts[event.id] += 1
                if starts[event.id] > 1:
                    seen["starts after a retry" if event.id in retried else "starts after a worker died"] += 1
                retried.discard(event.id)
            elif event.kind is EventKind.STEP_RETRYING:
                retried.add(event.id)
            elif event.kind is EventKind.STEP_COMPLETED:
                seen["completions doubled"] += event.id in done
                done.add(event.id)
        bodies = sum(notes(raw, run_id).values())
        assert bodies <= starts.total(), f"{run_id}: a body ran without a start"
        seen["bodies"] += bodies
        seen["bodies beyond the first of their step"] += max(0, bodies - len(starts))
    return seen
