"""What does another process make of a body that iterates over a set? (case A25)"""

from __future__ import annotations

import pytest
import redis

from redisworld import RunFailed
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually
from tests.chaos.watching import notes, settled

pytestmark = pytest.mark.anyio


async def test_a_set_driven_fan_out_recovered_under_another_hash_seed_is_never_mixed_up_in_silence(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Either the same pairs of name and value, or a failed run that says REPLAY_DIVERGENCE."""
    async with connect(max_inline_steps=0, lease_ms=500) as world:
        doomed = workers.start(max_inline_steps=0, lease_ms=500, env={"PYTHONHASHSEED": "1"})
        run = await world.start(chaos_app.over_a_set, "probe:gate", run_id="set")
        await eventually(lambda: "gate" in notes(raw, "set"))
        doomed.kill()
        raw.set("probe:gate", 1)
        workers.start(max_inline_steps=0, lease_ms=500, env={"PYTHONHASHSEED": "2"})
        try:
            pairs = await run.result(timeout=15)
        except RunFailed as failed:
            pairs = [] if failed.error.code == "REPLAY_DIVERGENCE" else [f"={failed.error.code}"]
    assert all(name == value for name, value in (pair.split("=") for pair in pairs)), pairs
    await settled(raw)
    assert invariants.pending(raw) == 0
