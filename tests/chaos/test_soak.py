"""Do many runs at once survive workers that are killed, stopped and cut off at random? The seed names the schedule."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator

import anyio
import pytest
import redis

from redisworld.errors import RunCancelled, RunFailed
from redisworld.events import EventKind
from tests.apps import chaos_app, random_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import APP, Workers
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


OPTIONS = {"lease_ms": LEASE_MS, "replay_concurrency": 4, "concurrency": 8}


@pytest.mark.parametrize("seed", [1])
async def test_runs_of_all_kinds_survive_random_kills_stops_and_cuts(
    raw: redis.Redis, workers: Workers, connect: Connect, seed: int
) -> None:
    chance = random.Random(seed)
    async with connect(lease_ms=LEASE_MS) as world:
        runs = []
        async for _ in faults(raw, workers, chance):
            for name in MIX:
                runs.append((name, await world.start(chaos_app.wf.workflows[name], *MIX[name][0])))
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


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_bodies_survive_random_kills_stops_and_cuts(
    raw: redis.Redis, workers: Workers, connect: Connect, seed: int
) -> None:
    chance = random.Random(seed)
    async with connect(lease_ms=LEASE_MS) as world:
        runs = []
        async for _ in faults(raw, workers, chance, app="tests.apps.random_app:wf"):
            for _ in range(6):
                runs.append(await world.start(random_app.play, chance.randrange(2**32), chance.choice([3, 6, 12])))
            if chance.random() < 0.5:
                await runs[-chance.randint(1, 6)].cancel("at random")
        for run in runs:
            try:
                end = (await run.result(timeout=30))[-1][0]
            except RunCancelled:
                continue
            except RunFailed as failed:  # as it may on asyncio: what awaits a cancelled task is cancelled
                end = str(failed)
            assert end == "end" or "the body cancelled itself" in end, f"seed {seed}: {run.run_id}"
    await settled(raw)
    print(f"{len(runs)} runs, {len(workers.started)} workers")
    invariants.check(raw, random_app.wf)


async def faults(raw: redis.Redis, workers: Workers, chance: random.Random, *, app: str = APP) -> AsyncIterator[None]:
    """Keep three workers for a while, and hurt one of them after each turn of the caller's."""
    alive = [workers.start(app=app, **OPTIONS) for _ in range(3)]
    hurt_until = time.monotonic() + HURT_S
    while time.monotonic() < hurt_until:
        yield
        victim = chance.choice(alive)
        match chance.choice(["kill", "drain", "freeze", "cut", "nothing"]):
            case "kill" | "drain" as end:
                victim.kill() if end == "kill" else victim.stop()
                alive.remove(victim)
                alive.append(workers.start(app=app, ready=False, **OPTIONS))
            case "freeze":
                victim.freeze()
                await anyio.sleep(chance.uniform(0.2, 2.5) * LEASE_MS / 1000)
                victim.thaw()
            case "cut":
                raw.client_kill_filter(_type="normal", skipme=True)
        await anyio.sleep(chance.uniform(0.05, 0.3))
