"""Reading: full batches, nothing behind a backlog, no more than there are slots."""

from __future__ import annotations

from typing import cast

import pytest

from consumers.health import LoopHealth
from consumers.reader import Reader
from consumers.slots import Slots
from redisworld.keys import Partition
from redisworld.world import Delivery, Stream, World

pytestmark = pytest.mark.anyio

STREAMS: list[Stream] = [(Partition("n", number), name) for number in (0, 1) for name in ("steps", "steps:bulk")]
FIRST, FIRST_BULK, SECOND, SECOND_BULK = STREAMS


class Backlogs:
    """Redis, as far as a reader sees it; a read that would block brings nothing."""

    def __init__(self) -> None:
        self.waiting = dict.fromkeys(STREAMS, 0)
        self.reads: list[tuple[list[Stream], int, bool]] = []
        self.given_back = 0

    async def read(self, streams: list[Stream], *, count: int, block_ms: int | None) -> list[Delivery]:
        self.reads.append((streams, count, block_ms is not None))
        deliveries = []
        for stream in streams:
            given = min(count, self.waiting[stream])
            self.waiting[stream] -= given
            deliveries += [Delivery(*stream, f"{number}-0", {}) for number in range(given)]
        return deliveries

    async def give_back(self, delivery: Delivery) -> None:
        self.given_back += 1
        self.waiting[delivery.partition, delivery.stream] += 1


class Reading:
    """A reader whose deliveries are held until ``slots`` is told otherwise."""

    def __init__(self, limit: int) -> None:
        self.redis = Backlogs()
        self.slots = Slots("step", limit)
        self.accepted: list[Stream] = []
        self.queue = self.redis
        self.settings = self
        self.block_ms = 2_000
        self.deliveries = self.redis
        health = LoopHealth("steps", 60.0)
        self.reader = Reader(cast("World", self), STREAMS, self.slots, health, self.accept)

    def accept(self, deliveries: list[Delivery]) -> None:
        self.accepted += [(delivery.partition, delivery.stream) for delivery in deliveries]

    async def ticks(self, count: int) -> list[tuple[list[Stream], int, bool]]:
        """The reads of so many ticks."""
        self.redis.reads.clear()
        for _ in range(count):
            await self.reader.tick()
        return list(self.redis.reads)


async def test_one_message_costs_one_read_that_blocks() -> None:
    reading = Reading(64)
    reading.redis.waiting[SECOND] = 1
    assert await reading.ticks(2) == [(STREAMS, 16, True), (STREAMS, 16, True)]
    assert reading.accepted == [SECOND]


async def test_a_fan_out_comes_in_full_batches() -> None:
    reading = Reading(64)
    reading.redis.waiting[FIRST] = 100
    reads = await reading.ticks(8)
    assert [count for streams, count, _ in reads if streams == [FIRST]] == [32, 32, 32]
    assert [blocks for _, _, blocks in reads][-2:] == [True, True]  # the third was not full: nothing is left
    assert reading.accepted == [FIRST] * 100


async def test_a_backlog_in_one_stream_holds_up_no_other() -> None:
    reading = Reading(64)
    reading.redis.waiting[FIRST_BULK] = 10**6
    await reading.ticks(5)
    for other in (FIRST, SECOND, SECOND_BULK):
        reading.redis.waiting[other] = 1
    await reading.ticks(3)  # a round: the busy one, those after it, those before it
    assert {FIRST, SECOND, SECOND_BULK} <= set(reading.accepted)


async def test_two_backlogs_share_the_reads() -> None:
    reading = Reading(64)
    reading.redis.waiting |= {FIRST: 10**6, SECOND: 10**6}
    await reading.ticks(40)
    first, second = reading.accepted.count(FIRST), reading.accepted.count(SECOND)
    assert 0.8 < first / second < 1.25


async def test_a_look_at_idle_streams_asks_for_no_more_than_there_are_slots() -> None:
    reading = Reading(2)
    reading.redis.waiting[FIRST] = 10
    await reading.ticks(1)
    reading.redis.waiting |= {FIRST_BULK: 9, SECOND: 9, SECOND_BULK: 9}
    given_back = reading.redis.given_back
    reads = await reading.ticks(12)
    assert all(len(streams) * count <= 2 for streams, count, _ in reads)
    assert reading.redis.given_back == given_back


async def test_what_a_blocking_read_brings_beyond_the_slots_goes_back() -> None:
    reading = Reading(3)
    reading.redis.waiting |= dict.fromkeys(STREAMS, 1)
    await reading.ticks(1)
    assert len(reading.accepted) == 3
    assert reading.redis.given_back == 1


async def test_no_slot_no_read() -> None:
    reading = Reading(1)
    reading.slots.hold()
    assert await reading.ticks(1) == []
