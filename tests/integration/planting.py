"""How do tests of dead letters and doctor bring a namespace into trouble, before the command line looks at it?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import redis

from redisworld import Settings, World
from redisworld.keys import Partition
from tests.apps import conf_app
from tests.conformance.harness import Consumers, connected

PARTITION = Partition("default", 0)

Plant = Callable[[Consumers], Awaitable[object]]


def plant(url: str, raw: redis.Redis, planting: Plant, **settings: Any) -> None:
    """Bring a namespace of one partition into some state with the consumers of a worker."""

    async def run() -> None:
        async with connected(url, raw, **settings) as consumers:
            await planting(consumers)

    anyio.run(run)


def drained(url: str, raw: redis.Redis, **settings: Any) -> None:
    """Let a worker do all there is to do."""

    async def run() -> None:
        async with connected(url, raw, **settings) as consumers:
            await consumers.drain()

    anyio.run(run)


def status_of(url: str, run_id: str) -> str:
    """The status of a run."""

    async def run() -> str:
        async with World.connect(settings=Settings(url=url)) as world:
            return str((await world.row(run_id)).status)

    return anyio.run(run)


async def bury_wake(consumers: Consumers, run_id: str = "r1", *, reason: str = "unknown_name", code: str = "") -> None:
    """A run whose first message is a dead letter."""
    await consumers.world.start(conf_app.pair, run_id=run_id)
    delivery = await consumers.take("workflows")
    assert delivery is not None
    await consumers.world.deliveries.bury(
        delivery, run_id=run_id, reason=reason, detail="no workflow 'pair' is registered in this worker", code=code
    )


async def bury_step(consumers: Consumers, run_id: str = "r1") -> None:
    """A run with one step, whose message is a dead letter."""
    await consumers.world.start(conf_app.chain, 1, run_id=run_id)
    await consumers.wake()
    delivery = await consumers.take("steps")
    assert delivery is not None
    await consumers.world.deliveries.bury(delivery, run_id=run_id, reason="unknown_name", detail="no step 'double'")


async def bury_rubbish(consumers: Consumers) -> None:
    """A dead letter whose bytes are no message."""
    consumers.raw.xadd(consumers.partition.steps(), {"kind": "step", "msg": b"\xc1", "other\xff": b"\x00\xff"})
    delivery = await consumers.take("steps")
    assert delivery is not None
    await consumers.world.deliveries.bury(
        delivery, run_id="", reason="undecodable", detail="not a message: truncated\n"
    )
