"""Do 200 runs of mixed workflows survive workers that are killed and started again all the time?"""

from __future__ import annotations

import os
import random
import time
from typing import Any

import anyio
import pytest
import redis

from redisworld.events import EventKind
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import WorkerProcess, Workers
from tests.chaos.test_faults_bodies import no_owners
from tests.chaos.test_soak import MIX
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio

RUNS = 200
LEASE_MS = 600
HURT_S = float(os.environ.get("CHAOS_HURT_S", "4"))


async def test_two_hundred_runs_under_kills(raw: redis.Redis, workers: Workers, connect: Connect) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "11"))
    chance = random.Random(seed)
    options: dict[str, Any] = {"lease_ms": LEASE_MS, "concurrency": 16, "replay_concurrency": 8}
    names = sorted(MIX)
    async with connect(lease_ms=LEASE_MS) as world:
        alive: list[WorkerProcess] = [workers.start(**options) for _ in range(3)]
        runs = []
        began = time.monotonic()
        while time.monotonic() < began + HURT_S:
            due = min(RUNS, int(RUNS * (time.monotonic() - began) / (HURT_S - 1)))
            while len(runs) < due:
                name = names[len(runs) % len(names)]
                runs.append(
                    (name, await world.start(chaos_app.wf.workflows[name], *MIX[name][0], run_id=f"r{len(runs)}"))
                )
            await anyio.sleep(chance.uniform(0.1, 0.5))
            alive.pop(chance.randrange(3)).kill()
            alive.append(workers.start(ready=False, **options))
        for name, run in runs:
            result = await run.result(timeout=30)
            given, expected = (sorted(result), sorted(MIX[name][1])) if name == "mixed" else (result, MIX[name][1])
            assert given == expected, f"seed {seed}: {name} {run.run_id}"
        assert len(runs) == RUNS
    await settled(raw)
    invariants.check(raw, chaos_app.wf)
    assert no_owners(raw) == []
    for partition in invariants.partitions(raw):
        assert raw.zrange(partition.delayed, 0, -1) == []
        assert raw.hgetall(partition.delayed_body) == {}
        assert raw.xlen(partition.tag + "dead") == 0
    for _, run in runs:
        starts = logged(raw, run.run_id)[EventKind.STEP_STARTED]
        assert sum(notes(raw, run.run_id).values()) <= len(starts), f"{run.run_id}: a body ran without a start"
