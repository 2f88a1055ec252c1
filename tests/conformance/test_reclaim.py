"""Does a sweep leave the deliveries of the living alone after an outage, and keep nobody else from sweeping? (A36)"""

from __future__ import annotations

import time

import anyio
import anyio.lowlevel
import pytest
import redis

from consumers.health import Health
from consumers.reclaim import Reclaimer
from redisworld.keys import GROUP
from redisworld.observe import LeaseLost
from redisworld.world import Delivery
from tests.apps import conf_app
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers

pytestmark = pytest.mark.anyio

LEASE_MS = 2_000


def sweeper(consumers: Consumers, taken: list[Delivery]) -> Reclaimer:
    """The loop of a worker that has just started; tests call its tick."""
    streams = {consumers.stream("steps"): consumers.step_slots, consumers.stream("workflows"): consumers.replay_slots}
    return Reclaimer(
        consumers.world, streams, Health(blocked_limit_s=60).loop("pending", may_be_silent=True), taken.extend
    )


async def test_a_delivery_that_was_taken_over_and_whose_first_holder_completes_is_no_error_and_no_lost_lease(
    connect: Connect,
) -> None:
    """The completion settles the entry that the state names, before its taker has claimed it."""
    async with connect(max_inline_steps=0) as a, connect() as b:
        await a.world.start(conf_app.pair, run_id="r")
        await a.wake()
        delivery = await a.take("steps")
        assert delivery is not None
        taken: list[Delivery] = []

        async def take_over() -> None:
            taken.append(await b.redelivered(delivery))
            b.leases.hold(taken)

        conf_app.during.append(take_over)
        await a.process(delivery)
        assert a.raw.xpending(a.partition.steps(), GROUP)["pending"] == 0

        b.seen.clear()
        await b.process(taken[0])

        assert b.claims() == ["skipped"]
        assert b.saw(LeaseLost) == []
        assert len(conf_app.ran) == 1
        await a.drain()
        assert len(conf_app.ran) == 2
        assert (await a.world.row("r")).status == "completed"


async def stale(consumers: Consumers) -> str:
    """A delivery of another worker that looks as if its lease had run out; its entry."""
    await consumers.world.start(conf_app.pair, run_id="r")
    key = consumers.partition.workflows()
    [(_, [(entry, _)])] = consumers.raw.xreadgroup(GROUP, "another", {key: ">"})
    consumers.raw.xclaim(key, GROUP, "another", 0, [entry], idle=10 * LEASE_MS, justid=True)
    return str(entry.decode())


async def test_a_worker_that_has_just_started_takes_nothing_over_before_the_living_could_renew(
    connect: Connect, raw: redis.Redis
) -> None:
    """Redis may have been away until just now: then every delivery looks stale, also that of a body which runs."""
    async with connect(lease_ms=LEASE_MS) as consumers:
        entry, taken = await stale(consumers), list[Delivery]()
        loop = sweeper(consumers, taken)

        await loop.tick()
        await loop.tick()
        assert taken == []
        raw.xclaim(consumers.partition.workflows(), GROUP, "another", 0, [entry], idle=0, justid=True)  # it renews
        await anyio.sleep(LEASE_MS / 1000 / 5 + 0.1)
        await loop.tick()

        assert taken == []


async def test_a_worker_that_has_just_started_takes_over_what_nobody_has_renewed(connect: Connect) -> None:
    async with connect(lease_ms=LEASE_MS) as consumers:
        entry, taken = await stale(consumers), list[Delivery]()
        loop = sweeper(consumers, taken)

        async def swept() -> None:
            while not taken:
                await loop.tick()
                await anyio.sleep(0.05)

        with anyio.fail_after(10):
            await swept()
        assert [delivery.entry_id for delivery in taken] == [entry]


async def test_a_worker_that_has_stood_still_takes_nothing_over_before_the_living_could_renew(connect: Connect) -> None:
    """All workers of a host that was paused wake up at once: the first to sweep took over what the others worked on."""
    async with connect(lease_ms=LEASE_MS) as consumers:
        taken = list[Delivery]()
        loop = sweeper(consumers, taken)
        await loop.tick()
        await anyio.sleep(LEASE_MS / 1000 / 5 + 0.1)
        await loop.tick()  # the rest of a worker that has just started is over
        consumers.raw.delete(consumers.partition.reclaim_ticket("workflows"))
        await stale(consumers)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop.pause)
            await anyio.lowlevel.checkpoint()
            time.sleep((LEASE_MS / 2 + consumers.world.settings.reclaim_every_ms) / 1000)  # noqa: ASYNC251 so it is
        await loop.tick()

        assert taken == []


async def test_a_worker_that_dies_before_its_first_sweep_keeps_no_other_from_sweeping_for_longer_than_a_lease(
    connect: Connect, raw: redis.Redis
) -> None:
    async with connect(lease_ms=LEASE_MS) as consumers:
        loop = sweeper(consumers, [])
        for _ in range(2):
            await loop.tick()
            # -2: there is no ticket; never -1, one for ever
            lasts = [raw.pttl(consumers.partition.reclaim_ticket(stream)) for stream in ("steps", "workflows")]
            assert all(left == -2 or 0 <= left <= LEASE_MS for left in lasts), lasts
            await anyio.sleep(LEASE_MS / 1000 / 5 + 0.1)
