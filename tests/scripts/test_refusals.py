"""What does a script leave behind when Redis refuses, or when a key is not what it should be? Nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import redis
from redis.exceptions import ResponseError

from redisworld.errors import MalformedMessage, RedisUnavailable
from tests.scripts.driver import RUN, Consumer, consumers, end, inline, step
from tests.scripts.test_fences import put_step, put_wait

pytestmark = pytest.mark.anyio

Full = Callable[[], contextlib.AbstractContextManager[None]]


@pytest.fixture
async def a(redis_url: str) -> AsyncIterator[Consumer]:
    """A consumer that does not wait for better times."""
    async with consumers(redis_url, 1, retry_redis_ms=0, redis_timeout_ms=500) as (only,):
        yield only


@pytest.fixture
def full(raw: redis.Redis) -> Full:
    """Redis without memory, for the length of a ``with``."""

    @contextlib.contextmanager
    def fill() -> Iterator[None]:
        raw.config_set("maxmemory-policy", "noeviction")
        raw.config_set("maxmemory", int(raw.info("memory")["used_memory"]) // 2)
        try:
            yield
        finally:
            raw.config_set("maxmemory", 0)

    return fill


def refused() -> pytest.RaisesExc[Exception]:
    return pytest.raises((RedisUnavailable, ResponseError), match="not allowed when used memory")


# -- out of memory


async def test_without_memory_a_call_is_refused_for_now_and_not_called_a_bug(a: Consumer, full: Full) -> None:
    with full(), pytest.raises(RedisUnavailable):
        await a.start()


async def test_without_memory_a_start_is_refused_whole(a: Consumer, full: Full) -> None:
    before = await a.dump()

    with full(), refused():
        await a.start()

    assert await a.dump() == before


async def test_without_memory_a_start_is_refused_whole_where_its_counter_is_garbled(
    a: Consumer, full: Full, raw: redis.Redis
) -> None:
    """To count is its first write: that fails for a counter that is no number, which begins anew, but not for OOM."""
    raw.hset(a.partition.stats, "runs_created", "foo")
    before = await a.dump()

    with full(), refused():
        await a.start()
    assert await a.dump() == before

    await a.start()
    assert raw.hget(a.partition.stats, "runs_created") == b"1"


@pytest.mark.parametrize("state", ["pending", "running", "missing"])
async def test_without_memory_a_claim_is_refused_whole(a: Consumer, full: Full, state: str) -> None:
    attempt = await put_step(a, state)
    before = await a.dump()

    with full(), refused():
        await a.claim(attempt.delivery, ensure=True, input=b"\x90")

    assert await a.dump() == before


async def test_without_memory_a_claim_that_would_only_settle_is_refused_whole_too(a: Consumer, full: Full) -> None:
    attempt = await put_step(a, "pending")
    await a.finish()
    before = await a.dump()

    with full(), refused():
        await a.claim(attempt.delivery)

    assert await a.dump() == before


@pytest.mark.parametrize(
    "items",
    [step("s1"), inline("s1", "t1"), ["wait", "w1", 1], end()],
    ids=["step", "inline", "wait", "end"],
)
async def test_without_memory_a_commit_is_refused_whole(
    a: Consumer, full: Full, items: list[str | bytes | int]
) -> None:
    turn = await a.begin()
    before = await a.dump()

    with full(), refused():
        await a.commit(turn, items)

    assert await a.dump() == before


async def test_without_memory_a_pass_that_asks_for_nothing_settles_its_message(a: Consumer, full: Full) -> None:
    turn = await a.begin()

    with full():
        assert (await a.commit(turn)).outcome == "committed"

    assert await a.pending(turn.delivery) is None


async def test_without_memory_a_load_starts_no_run(a: Consumer, full: Full) -> None:
    await a.start()
    (delivery,) = await a.read("workflows")
    before = await a.dump()

    with full(), refused():
        await a.load(delivery)

    assert await a.dump() == before


async def test_without_memory_a_promotion_is_refused_whole(a: Consumer, full: Full) -> None:
    await put_wait(a, "waiting")
    a.clock.advance(100)
    before = await a.dump()

    with full(), refused():
        await a.world.upkeep.promote(a.partition)

    assert await a.dump() == before


@pytest.mark.parametrize("outcome", ["completed", "failed", "retrying"])
@pytest.mark.parametrize("may_replay", [True, False], ids=["responsible", "woken"])
async def test_without_memory_an_outcome_is_recorded(a: Consumer, full: Full, outcome: str, may_replay: bool) -> None:
    attempt = await put_step(a, "running")

    with full():
        assert (await a.complete(attempt, outcome, may_replay=may_replay, delay_ms=5)).outcome == outcome


@pytest.mark.parametrize("terminate", [True, False], ids=["terminate", "request"])
async def test_without_memory_a_run_can_be_cancelled(a: Consumer, full: Full, terminate: bool) -> None:
    await put_step(a, "running")

    with full():
        await a.world.cancel(RUN, terminate=terminate)

    assert (await a.kinds())[-1] == ("run_cancelled" if terminate else "cancel_requested")


async def test_without_memory_deliveries_are_settled_moved_and_buried(a: Consumer, full: Full) -> None:
    deliveries = await a.dispatch(step("s1"), step("s2"), step("s3"), step("s4"))

    with full():
        assert await a.world.deliveries.settle(deliveries["s1"])
        assert await a.move(deliveries["s2"])
        assert await a.move(deliveries["s3"], delay_ms=5)
        assert await a.world.deliveries.bury(deliveries["s4"], run_id=RUN, reason="max_deliveries", detail="", code="X")

    assert await a.redis.xlen(a.partition.dead) == 1


async def test_without_memory_a_leaderless_delivery_is_still_reclaimed_or_left(a: Consumer, full: Full) -> None:
    attempt = await put_step(a, "running")
    await a.age(attempt.delivery)

    with full(), contextlib.suppress(RedisUnavailable, ResponseError):
        await a.world.deliveries.reclaim((a.partition, "steps"), "0-0", 10)

    assert await a.pending(attempt.delivery) is not None


# -- what cannot be used


async def test_a_stream_of_another_type_costs_no_neighbour_its_outcome(a: Consumer) -> None:
    good = await a.claim((await a.dispatch(step("s1", run="r1"), run="r1"))["s1"])
    bad = await a.claim((await a.dispatch(step("s1", run="r2"), run="r2"))["s1"])
    await a.redis.delete(a.partition.workflows())
    await a.redis.set(a.partition.workflows(), "foreign")

    for _ in range(2):  # the reply is lost
        records = await asyncio.gather(a.retry(good), a.complete(bad, may_replay=False))

        assert [(r.outcome, r.detail) for r in records] == [
            ("retrying", "0"),
            ("broken", "workflows is a string, not a stream"),
        ]
    assert [(await a.step("s1", run)).status for run in ("r1", "r2")] == ["pending", "running"]
    assert list(await a.steps_delivered("r1")) == ["s1"]
    assert await a.holds(bad.delivery)


@pytest.mark.parametrize(
    "op",
    [
        "step",
        "assign",
    ],
)
async def test_a_commit_over_a_step_state_that_cannot_be_read_writes_nothing(a: Consumer, op: str) -> None:
    await a.dispatch(step("s1"))
    await a.world.cancel(RUN)
    turn = await a.load((await a.read("workflows"))[0])
    await a.redis.hset(a.key(), "s:s1", "nonsense")
    before = await a.dump()

    with pytest.raises((MalformedMessage, ResponseError)):
        await a.commit(turn, step("s2"), step("s1", "g1") if op == "step" else ["assign", "s1", "g1"])

    assert await a.dump() == before


async def test_a_commit_over_a_join_group_that_cannot_be_read_writes_nothing(a: Consumer) -> None:
    turn = await a.begin()
    await a.redis.hset(a.key(), "g:g1", "nonsense")
    before = await a.dump()

    with pytest.raises((MalformedMessage, ResponseError)):
        await a.commit(turn, step("s0"), step("s1", "g1"), ["seal", "g1", "all"])

    assert await a.dump() == before
