"""What does a run cost, in counts that are the same on every machine and in every run?

The consumers are driven by hand: one wake, then the step messages in batches of 64, each batch in one tick of the loop.
So nothing depends on who was faster. The loops around them (reading, sweeping, timers) are counted by ``idle``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import msgspec
import redis

from redisworld.bench.meter import Spent, metering
from redisworld.bench.workloads.memory import payload_of
from redisworld.observe import RunFetched
from redisworld.runs import Status
from redisworld.workflows import Workflow
from tests.conformance.harness import Consumers, monitored

BATCH = 64

ROW_READS = ("HGET", "HGETALL", "HMGET", "HSCAN")


class Cost(msgspec.Struct, frozen=True):
    """Of one run. ``sent``: what MONITOR saw clients send, scripts by their name; ``inner``: how many in scripts."""

    size: int
    spent: Spent
    sent: dict[str, int]
    inner: int
    fetches: list[str]
    paths: dict[str, int]

    @property
    def commands(self) -> float:
        """Per step, by MONITOR."""
        return sum(self.sent.values()) / self.size

    @property
    def script_calls(self) -> float:
        """Per step, by commandstats."""
        return self.spent.script_calls / self.size

    @property
    def bytes_in(self) -> float:
        """Per step."""
        return self.spent.bytes_in / self.size

    @property
    def bytes_out(self) -> float:
        """Per step."""
        return self.spent.bytes_out / self.size

    @property
    def inner_commands(self) -> float:
        """Per step."""
        return self.inner / self.size

    @property
    def row_reads(self) -> int:
        """Reads of a run row that no script made, in the whole run."""
        return sum(self.sent.get(name, 0) for name in ROW_READS)


async def cost_of(url: str, raw: redis.Redis, consumers: Consumers, workflow: Workflow[Any, Any], size: int) -> Cost:
    """Run it twice: under the meter, and under MONITOR, whose own output would be counted as bytes."""
    await _play(consumers, workflow, min(size, BATCH), "warm-up")  # makes the connections
    async with metering(consumers.world) as meter:
        before = await meter.snapshot()
        await _play(consumers, workflow, size, "metered")
        spent = meter.between(before, await meter.snapshot())
    consumers.seen.clear()
    with monitored(url) as calls:
        await _play(consumers, workflow, size, "monitored")
    fetches = [seen.reason for seen in consumers.saw(RunFetched)]
    paths = Counter(consumers.paths())
    return Cost(size, spent, dict(Counter(calls.clients)), len(calls.lua), fetches, dict(paths))


async def _play(consumers: Consumers, workflow: Workflow[Any, Any], size: int, run_id: str) -> None:
    await consumers.world.start(workflow, size, run_id=run_id)
    await consumers.wake()
    while deliveries := await consumers.world.queue.read([consumers.stream("steps")], count=BATCH):
        async with anyio.create_task_group() as tasks:
            for delivery in deliveries:
                tasks.start_soon(consumers.process, delivery)


async def weight_of(consumers: Consumers, workflow: Workflow[Any, Any], size: int, *, runs: int) -> float:
    """Bytes that one finished run takes in Redis, without the values it holds."""
    for number in range(100):  # until the streams and indexes are there
        await _play(consumers, workflow, size, f"first-{number:05}")
    async with metering(consumers.world) as meter:
        before = await meter.snapshot()
        for number in range(runs):
            await _play(consumers, workflow, size, f"weighed-{number:05}")
        spent = meter.between(before, await meter.snapshot())
    return spent.memory / runs - await payload_of(consumers.world, "weighed-00000")


def check_finished(raw: redis.Redis, consumers: Consumers) -> None:
    """Costs of runs that did not come to their end would be worth nothing."""
    for run_id in ("warm-up", "metered", "monitored"):
        assert raw.hget(consumers.partition.run(run_id), "status") == Status.COMPLETED.encode(), run_id
