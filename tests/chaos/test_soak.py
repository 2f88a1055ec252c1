"""Do many runs at once survive workers that are killed, stopped and cut off at random? The seed names the schedule."""

from __future__ import annotations

import random
import time

import anyio
import pytest
import redis

from redisworld.events import EventKind
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio

HURT_S = 6.0
LEASE_MS = 600

MIX = {
    "diamond": ((), ["a", "b", "c", "d"]),
    "fan_out_then_join": ((6,), "join 6"),
    "steady": ((8,), 8),
    "slept": ((0.5,), "after"),
    "retried": ((), "r"),
    "mixed": ((), ["r", "p1p2", "q1q2", "2", "2", "1", "end"]),
}


@pytest.mark.parametrize("seed", [1])
async def test_runs_of_all_kinds_survive_random_kills_stops_and_cuts(
    raw: redis.Redis, workers: Workers, connect: Connect, seed: int
) -> None:
    chance = random.Random(seed)
    options = {"lease_ms": LEASE_MS, "replay_concurrency": 4, "concurrency": 8}
    async with connect(lease_ms=LEASE_MS) as world:
        alive = [workers.start(**options) for _ in range(3)]
        runs = []
        hurt_until = time.monotonic() + HURT_S
        while time.monotonic() < hurt_until:
            for name in MIX:
                runs.append((name, await world.start(chaos_app.wf.workflows[name], *MIX[name][0])))
            victim = chance.choice(alive)
            match chance.choice(["kill", "drain", "freeze", "cut", "nothing"]):
                case "kill" | "drain" as end:
                    victim.kill() if end == "kill" else victim.stop()
                    alive.remove(victim)
                    alive.append(workers.start(ready=False, **options))
                case "freeze":
                    victim.freeze()
                    await anyio.sleep(chance.uniform(0.2, 2.5) * LEASE_MS / 1000)
                    victim.thaw()
                case "cut":
                    raw.client_kill_filter(_type="normal", skipme=True)
            await anyio.sleep(chance.uniform(0.05, 0.3))
        for name, run in runs:
            result = await run.result(timeout=30)
            assert (sorted(result) if name == "mixed" else result) == (
                sorted(MIX[name][1]) if name == "mixed" else MIX[name][1]
            ), f"seed {seed}: {name} {run.run_id}"
    await settled(raw)
    for _, run in runs:
        starts = logged(raw, run.run_id)[EventKind.STEP_STARTED]
        assert sum(notes(raw, run.run_id).values()) <= len(starts), f"{run.run_id}: a body ran without a start"
    print(f"{len(runs)} runs, {len(workers.started)} workers")
    invariants.check(raw, chaos_app.wf)
