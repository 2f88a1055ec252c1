"""Does the meter of a bench count what clients sent, and nothing of what their scripts did?"""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
import redis

from redisworld.bench.meter import metering
from tests.apps import hook_app
from tests.bench.costs import BATCH
from tests.conformance.harness import connected, monitored

pytestmark = pytest.mark.anyio


async def test_commands_of_a_caller_and_of_consumers_are_those_that_monitor_sees(
    redis_url: str, raw: redis.Redis
) -> None:
    """A start, a pass, a resume that looks its token up, a step through it all, and a result that is waited for."""
    async with connected(redis_url, raw, app=hook_app.wf) as consumers, metering(consumers.world) as meter:
        with monitored(redis_url) as calls:
            before = await meter.snapshot()
            run = await consumers.world.start(hook_app.noted, "token")
            await consumers.wake()
            await consumers.world.resume("token", "payload")
            await consumers.drain(later=False)
            assert await run.result(timeout=5) == "payload"
            await anyio.sleep(0.2)  # who waits for a result subscribes meanwhile, to the end
            after = await meter.snapshot()
        spent = meter.between(before, after)
    seen = Counter(calls.clients + calls.quiet)
    for ours in ("INFO", "ECHO"):  # the snapshots, and the end of the listening
        del seen[ours]
    assert spent.commands == seen.total(), seen
    assert spent.script_calls == sum(number for name, number in seen.items() if name.islower()), seen
    assert len(calls.lua) > spent.commands


async def test_a_snapshot_is_not_measured(redis_url: str, raw: redis.Redis) -> None:
    async with connected(redis_url, raw) as consumers, metering(consumers.world) as meter:
        before = await meter.snapshot()
        spent = meter.between(before, await meter.snapshot())
    assert (spent.commands, spent.script_calls, spent.redis_us, spent.bytes_in) == (0, 0, 0, 0)
    assert abs(spent.bytes_out) < BATCH, "the digits of the counters alone"
