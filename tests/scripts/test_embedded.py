"""Do the scripts behave in the embedded mode as they do in Redis? The happy path and the basic fences."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from redisworld.world import Renewal, Renewed
from tests.scripts.driver import RUN, Consumer, consumers, end, inline, step

pytestmark = pytest.mark.anyio

numbers = itertools.count()


@pytest.fixture
async def both() -> AsyncIterator[list[Consumer]]:
    async with consumers(f"redisworld://embedded?test={next(numbers)}") as found:
        yield found


async def test_a_run_goes_from_its_start_to_its_end(a: Consumer) -> None:
    # given a run whose pass starts an inline step, a fan-out and a timer
    turn, token = await a.begin(), a.world.next_token()
    answer = await a.commit(
        turn,
        step("s1", "g1"),
        step("s2", "g1"),
        ["wait", "w1", a.clock.now + 10],
        inline("s3", token, "g1"),
        ["seal", "g1", "fail_fast"],
    )
    assert (answer.outcome, answer.inline) == ("committed", True)

    # when its steps run, one of them after a retry, and its timer comes due
    d = await a.steps_delivered()
    first, second = await a.claim(d["s1"]), await a.claim(d["s2"])
    await a.retry(first, delay_ms=5)
    assert (await a.complete(second)).detail == "settled"
    a.clock.advance(5)
    assert await a.world.upkeep.promote(a.partition) == (5, [0])
    assert (await a.complete(await a.claim(await a.redelivered(first)))).detail == "settled"
    last = await a.complete(await a.claim(turn.delivery, step_id="s3", token=token))
    assert last.detail == "responsible"
    a.clock.advance(5)
    assert await a.world.upkeep.promote(a.partition) == (None, [0])

    # then its last pass ends it
    assert (await a.commit(await a.load(turn.delivery), end())).outcome == "ended"
    row = await a.row()
    assert (row.status, row.finished_event, row.wake) == ("completed", 16, "")
    assert await a.redis.xlen(a.partition.steps()) == await a.redis.xlen(a.partition.workflows()) == 0
    assert await a.redis.pttl(a.key()) > 0


@pytest.mark.parametrize(
    ("status", "state", "word"),
    [
        ("running", "missing", "missing"),
        ("running", "pending", "started"),
        ("running", "running", "started"),
        ("running", "completed", "skipped"),
        ("cancelled", "missing", "gone"),
        ("cancelled", "pending", "gone"),
        ("cancelled", "running", "gone"),
        ("cancelled", "completed", "skipped"),
    ],
)
async def test_the_fence_of_a_claim(a: Consumer, status: str, state: str, word: str) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]
    if state == "missing":
        delivery = await a.publish("s2")
    elif state != "pending":
        attempt = await a.claim(delivery)
        if state == "completed":
            await a.complete(attempt, may_replay=False)
            delivery = await a.duplicate(delivery)
    if status == "cancelled":
        await a.finish(how=status)

    assert (await a.claim(delivery)).outcome == word


async def test_too_early_exhausted_and_stale(a: Consumer, b: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])
    await a.retry(attempt, delay_ms=100)
    early = await a.duplicate(attempt.delivery)
    assert (await a.claim(early)).claim.wait_ms == 100

    a.clock.advance(100)
    second = await a.claim(early)
    third = await b.claim(await b.take(early))
    assert (second.claim.attempt, third.claim.attempt) == (2, 3)
    assert (await a.complete(second)).outcome == "stale"

    last = await a.claim(await a.take(early), attempts_allowed=3)
    assert (last.outcome, last.claim.detail) == ("exhausted", "responsible")


async def test_a_lost_reply_is_answered_again(a: Consumer) -> None:
    turn = await a.begin()
    assert await a.commit(turn, step("s1"), token="p1") == await a.commit(turn, step("s1"), token="p1")
    attempt = await a.claim((await a.steps_delivered())["s1"])
    assert await a.world.deliveries.claim(attempt.item) == attempt.claim
    assert await a.complete(attempt) == await a.complete(attempt)
    assert (await a.kinds()).count("step_completed") == 1


async def test_a_terminated_run_refuses_a_commit(a: Consumer) -> None:
    turn = await a.begin()
    await a.world.cancel(RUN, terminate=True)

    assert (await a.commit(turn, step("s1"))).outcome == "gone"


async def test_a_wake_is_published_and_a_repeated_cancel_publishes_none(a: Consumer) -> None:
    await a.dispatch(step("s1"))
    await a.world.cancel(RUN)
    await a.world.cancel(RUN)

    (wake,) = await a.wakes()
    assert (wake.run_id, wake.reason, wake.requested_at) == (RUN, "admin", a.clock.now)


async def test_leases_are_renewed_and_reclaimed(a: Consumer, b: Consumer) -> None:
    d = await a.dispatch(step("s1"), step("s2"))
    for delivery in d.values():
        await a.age(delivery)
    renewal = Renewal(a.world.connection, a.world.consumer)
    assert renewal.renew(a.partition, [d["s1"]]) == Renewed()
    renewal.close()

    sweep = await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)

    assert (sweep.cursor, [(x.text("step"), x.deliveries) for x in sweep.taken]) == ("0-0", [("s2", 2)])
    assert (await a.world.deliveries.reclaim((a.partition, "steps"), "0-0", 10)).busy


async def test_a_dead_letter_keeps_the_original_and_fails_the_run(a: Consumer) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]

    assert await a.world.deliveries.bury(delivery, run_id=RUN, reason="max_deliveries", detail="why", code="X")

    ((_, letter),) = await a.redis.xrange(a.partition.dead)
    assert letter[b"original:msg"] == delivery.fields["msg"]
    assert (await a.row()).status == "failed"


async def test_scripts_forgotten_by_the_server_are_sent_again(a: Consumer) -> None:
    await a.start("r1")
    await a.redis.script_flush()
    await a.start("r2")

    assert (await a.row("r2")).status == "pending"
