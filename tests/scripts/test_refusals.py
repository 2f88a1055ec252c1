"""What does a script leave behind when Redis refuses, or when a key is not what it should be? Nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

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
        await a.world.promote(a.partition)

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
        assert await a.world.settle(deliveries["s1"])
        assert await a.move(deliveries["s2"])
        assert await a.move(deliveries["s3"], delay_ms=5)
        assert await a.world.bury(deliveries["s4"], run_id=RUN, reason="max_deliveries", detail="", code="X")

    assert await a.redis.xlen(a.partition.dead) == 1


async def test_without_memory_a_leaderless_delivery_is_still_reclaimed_or_left(a: Consumer, full: Full) -> None:
    attempt = await put_step(a, "running")
    await a.age(attempt.delivery)

    with full(), contextlib.suppress(RedisUnavailable, ResponseError):
        await a.world.reclaim((a.partition, "steps"), "0-0", 10)

    assert await a.pending(attempt.delivery) is not None


# -- keys of another type

Call = Callable[[], Awaitable[object]]


async def to_start(a: Consumer) -> Call:
    return a.start


async def to_load(a: Consumer) -> Call:
    await a.start()
    (delivery,) = await a.read("workflows")
    return lambda: a.load(delivery)


async def to_claim(a: Consumer) -> Call:
    attempt = await put_step(a, "pending")
    return lambda: a.claim(attempt.delivery)


async def to_exhaust(a: Consumer) -> Call:
    attempt = await put_step(a, "running")
    return lambda: a.claim(attempt.delivery, attempts_allowed=1, may_replay=False)


async def to_complete(a: Consumer) -> Call:
    attempt = await put_step(a, "running")
    return lambda: a.complete(attempt, may_replay=False)


async def to_retry(a: Consumer) -> Call:
    attempt = await put_step(a, "running")
    return lambda: a.complete(attempt, "retrying", target="steps:gpu")


async def to_delay(a: Consumer) -> Call:
    attempt = await put_step(a, "running")
    return lambda: a.retry(attempt, delay_ms=5)


async def to_commit(a: Consumer) -> Call:
    turn = await a.begin()
    return lambda: a.commit(turn, step("s1"), step("s2", target="steps:gpu"), ["wait", "w1", a.clock.now + 5])


async def to_start_by_commit(a: Consumer) -> Call:
    await a.start()
    (delivery,) = await a.read("workflows")
    return lambda: a.world.commit(delivery, RUN, "start", step("s1"), replayed_to=0, consumed=2, pass_token="t")


async def to_end(a: Consumer) -> Call:
    turn = await a.begin()
    return lambda: a.commit(turn, end())


async def to_cancel(a: Consumer) -> Call:
    await put_step(a, "running")
    return lambda: a.world.cancel(RUN)


async def to_terminate(a: Consumer) -> Call:
    await put_step(a, "running")
    return lambda: a.world.cancel(RUN, terminate=True)


async def to_move(a: Consumer) -> Call:
    attempt = await put_step(a, "pending")
    return lambda: a.move(attempt.delivery, target="steps:gpu", new_id="s1b")


async def to_move_later(a: Consumer) -> Call:
    attempt = await put_step(a, "pending")
    return lambda: a.move(attempt.delivery, delay_ms=5)


async def to_bury(a: Consumer) -> Call:
    attempt = await put_step(a, "pending")
    return lambda: a.world.bury(attempt.delivery, run_id=RUN, reason="max_deliveries", detail="", code="X")


async def to_promote(a: Consumer) -> Call:
    await put_wait(a, "waiting")
    a.clock.advance(100)
    return lambda: a.world.promote(a.partition)


async def to_reclaim(a: Consumer) -> Call:
    attempt = await put_step(a, "pending")
    await a.age(attempt.delivery)
    return lambda: a.world.reclaim((a.partition, "steps"), "0-0", 10)


ROW = ["run:r1", "run:r1:log"]
TRAPS: dict[Callable[[Consumer], Awaitable[Call]], list[str]] = {
    to_start: [*ROW, "stats", "workflows", "index:created", "index:status:pending"],
    to_load: [*ROW, "stats", "index:status:pending", "index:status:running"],
    to_claim: [*ROW, "stats"],
    to_exhaust: [*ROW, "stats", "workflows"],
    to_complete: [*ROW, "stats", "workflows"],
    to_retry: [*ROW, "stats", "steps:gpu"],
    to_delay: [*ROW, "stats", "delayed", "delayed:body", "nudge"],
    to_commit: [*ROW, "stats", "steps", "steps:gpu", "delayed", "nudge"],
    to_start_by_commit: [*ROW, "stats", "steps", "index:status:pending", "index:status:running"],
    to_end: [*ROW, "stats", "expiring", "index:status:running", "index:status:completed"],
    to_cancel: [*ROW, "stats", "workflows"],
    to_terminate: [*ROW, "stats", "expiring", "index:status:running", "index:status:cancelled"],
    to_move: ["run:r1", "stats", "steps:gpu"],
    to_move_later: ["stats", "delayed", "delayed:body", "nudge"],
    to_bury: ["stats", "dead", "expiring", "index:status:failed"],
    to_promote: ["stats", "delayed", "workflows"],
    to_reclaim: ["stats", "reclaim:steps"],
}


def traps() -> Iterator[object]:
    for build, keys in TRAPS.items():
        for key in keys:
            yield pytest.param(build, key, id=f"{build.__name__}-{key}")


@pytest.mark.parametrize(("build", "key"), list(traps()))
async def test_a_key_of_another_type_is_found_before_the_first_write(
    a: Consumer, build: Callable[[Consumer], Awaitable[Call]], key: str
) -> None:
    call = await build(a)
    await a.redis.delete(a.partition.tag + key)
    await a.redis.set(a.partition.tag + key, "foreign")
    before = await a.dump()

    with contextlib.suppress(ResponseError, MalformedMessage):
        await call()

    assert await a.dump() == before


async def test_a_stream_of_another_type_costs_no_neighbour_its_outcome(a: Consumer) -> None:
    good = (await a.dispatch(step("s1", "-", run="r1"), run="r1"))["s1"]
    bad = (await a.dispatch(step("s1", run="r2"), run="r2"))["s1"]
    attempts = [await a.claim(good), await a.claim(bad)]
    await a.redis.delete(a.partition.workflows())
    await a.redis.set(a.partition.workflows(), "foreign")

    await asyncio.gather(*(a.complete(x, may_replay=False) for x in attempts), return_exceptions=True)

    completed = (await a.step("s1", "r1")).status == "completed"
    assert completed or await a.holds(good)


# -- states that cannot be read


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


async def test_a_commit_with_an_unknown_item_writes_nothing(a: Consumer) -> None:
    turn = await a.begin()
    before = await a.dump()

    with pytest.raises(MalformedMessage):
        await a.commit(turn, step("s1"), ["hook", "h1"])

    assert await a.dump() == before


async def test_a_commit_over_a_join_group_that_cannot_be_read_writes_nothing(a: Consumer) -> None:
    turn = await a.begin()
    await a.redis.hset(a.key(), "g:g1", "nonsense")
    before = await a.dump()

    with pytest.raises((MalformedMessage, ResponseError)):
        await a.commit(turn, step("s0"), step("s1", "g1"), ["seal", "g1", "all"])

    assert await a.dump() == before
