"""What happens when its time comes, and what does not happen earlier? (design section 11)"""

from __future__ import annotations

import msgspec
import pytest

from redisworld.errors import ErrorInfo
from redisworld.world import Outgoing
from redisworld.world.begins import Begins
from tests.scripts.driver import RUN, Consumer, end, inline, message_id, step, step_message

pytestmark = pytest.mark.anyio


async def waiting(a: Consumer, *dues_ms: int, run: str = RUN) -> None:
    """A run that waits for timers w0, w1 ... so many ms from now."""
    turn = await a.begin(run)
    waits: list[list[str | bytes | int]] = [["wait", f"w{n}", a.clock.now + ms] for n, ms in enumerate(dues_ms)]
    assert (await a.commit(turn, *waits)).outcome == "committed"


async def nudges(a: Consumer) -> list[int]:
    return [int(fields[b"due"]) for _, fields in await a.redis.xrange(a.partition.nudge)]


async def test_a_due_wait_completes_once_and_wakes_the_run(a: Consumer) -> None:
    await waiting(a, 100)
    a.clock.advance(103)

    assert await a.world.upkeep.promote(a.partition) == (None, [3])
    assert await a.world.upkeep.promote(a.partition) == (None, [])

    assert (await a.kinds()).count("wait_completed") == 1
    (wake,) = await a.wakes()
    assert (wake.reason, wake.message_id) == ("timer", (await a.row()).wake)


async def test_two_consumers_that_promote_at_once_complete_a_wait_once(a: Consumer, b: Consumer) -> None:
    await waiting(a, 100)
    a.clock.advance(100)

    lates = [(await x.world.upkeep.promote(x.partition))[1] for x in (a, b)]

    assert lates == [[0], []]
    assert (await a.kinds()).count("wait_completed") == 1


async def test_an_early_promotion_loses_nothing(a: Consumer) -> None:
    await waiting(a, 100)
    before = await a.dump()
    a.clock.advance(99)

    assert await a.world.upkeep.promote(a.partition) == (1, [])
    assert await a.dump() == before

    a.clock.advance(1)
    assert await a.world.upkeep.promote(a.partition) == (None, [0])


async def test_several_waits_of_one_run_complete_in_order_with_one_wake(a: Consumer) -> None:
    await waiting(a, 30, 10, 20)
    a.clock.advance(50)

    assert (await a.world.upkeep.promote(a.partition))[1] == [40, 30, 20]
    assert [event.id for event in await a.log() if event.kind == "wait_completed"] == ["w1", "w2", "w0"]
    assert len(await a.wakes()) == 1


async def test_a_promotion_takes_no_more_than_its_limit_and_says_that_more_is_due(a: Consumer) -> None:
    await waiting(a, *range(1, 8))
    a.clock.advance(10)

    until, lates = await a.world.upkeep.promote(a.partition, limit=5)

    assert (until, len(lates)) == (0, 5)
    assert len((await a.world.upkeep.promote(a.partition, limit=5))[1]) == 2


async def test_a_wait_due_while_its_run_is_replayed_makes_the_commit_go_again(a: Consumer) -> None:
    await waiting(a, 100)
    await a.world.cancel(RUN)
    turn = await a.load((await a.read("workflows"))[0])
    a.clock.advance(100)
    await a.world.upkeep.promote(a.partition)

    assert (await a.commit(turn)).outcome == "again"
    assert len(await a.wakes()) == 1  # the cancel's


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
async def test_timers_of_a_finished_run_are_dropped_without_a_trace(a: Consumer, how: str) -> None:
    await waiting(a, 100)
    await a.finish(how=how)
    a.clock.advance(100)
    before = await a.written()

    await a.world.upkeep.promote(a.partition)

    assert await a.written() == before
    assert await a.redis.zcard(a.partition.delayed) == 0
    assert await a.wakes() == []


async def test_timers_of_a_run_that_was_deleted_are_dropped_without_a_key(a: Consumer) -> None:
    await waiting(a, 100)
    await a.redis.delete(a.key(), a.partition.log(RUN))
    a.clock.advance(100)

    await a.world.upkeep.promote(a.partition)

    assert not await a.redis.exists(a.key(), a.partition.log(RUN))


async def test_a_wait_of_months_is_kept_to_the_millisecond(a: Consumer) -> None:
    ms = 400 * 24 * 3_600_000 + 1
    await waiting(a, ms)

    assert (await a.world.upkeep.promote(a.partition))[0] == ms


# -- delayed messages


async def test_a_delayed_retry_comes_back_as_the_same_message(a: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])
    record = await a.retry(attempt, delay_ms=1000)
    assert (record.outcome, record.detail) == ("retrying", str(a.clock.now + 1000))
    assert await a.steps_delivered() == {}

    a.clock.advance(1000)
    await a.world.upkeep.promote(a.partition)

    back = (await a.steps_delivered())["s1"]
    assert back.fields == attempt.delivery.fields
    assert (await a.claim(back)).claim.attempt == 2
    assert not await a.redis.exists(a.partition.delayed, a.partition.delayed_body)


async def test_a_delayed_retry_goes_to_the_queue_it_was_given(a: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])
    await a.redis.hset(a.key(), "deployment", "blue")
    await a.complete(attempt, "retrying", delay_ms=5, target="steps:gpu@blue")
    a.clock.advance(5)

    await a.world.upkeep.promote(a.partition)

    assert set(await a.steps_delivered(stream="steps:gpu@blue")) == {"s1"}


async def test_a_delayed_retry_of_a_finished_run_starts_nothing(a: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])
    await a.retry(attempt, delay_ms=5)
    await a.finish()
    a.clock.advance(5)
    await a.world.upkeep.promote(a.partition)

    for delivery in (await a.steps_delivered()).values():
        assert (await a.claim(delivery)).outcome == "gone"
    assert await a.redis.xlen(a.partition.steps()) == 0


async def test_an_inline_step_that_retries_with_a_delay_comes_back_as_a_step_message(a: Consumer) -> None:
    turn, token = await a.begin(), a.world.next_token()
    await a.commit(turn, inline("s1", token))
    await a.retry(await a.claim(turn.delivery, step_id="s1", token=token), delay_ms=5)
    a.clock.advance(5)

    await a.world.upkeep.promote(a.partition)

    assert (await a.claim((await a.steps_delivered())["s1"])).claim.attempt == 2


@pytest.mark.parametrize("kind", ["start", "wake"])
async def test_a_delayed_workflow_message_comes_back_as_the_same_message(a: Consumer, kind: str) -> None:
    if kind == "start":
        await a.start()
    else:
        await waiting(a)
        await a.world.cancel(RUN)
    (delivery,) = await a.read("workflows")
    await a.move(delivery, delay_ms=1000)
    assert await a.read("workflows") == []
    a.clock.advance(1000)

    await a.world.upkeep.promote(a.partition)

    (back,) = await a.read("workflows")
    assert {**back.fields, "at": b""} == {**delivery.fields, "at": b""}
    assert (await a.load(back)).loaded.outcome == "loaded"
    assert message_id(back) == message_id(delivery)


async def test_a_message_with_newlines_and_zero_bytes_comes_back_as_it_was(a: Consumer) -> None:
    delivery = (await a.dispatch(step("s1")))["s1"]
    body = b"\n\x00\xff a b\n\nc"
    await a.world.deliveries.move(
        delivery, Outgoing.again(delivery, body=body, message_id="s1"), old_id="s1", target="steps", delay_ms=1
    )
    a.clock.advance(1)

    await a.world.upkeep.promote(a.partition)

    assert (await a.steps_delivered())["s1"].fields["msg"] == body


@pytest.mark.parametrize(
    ("name", "identifier"), [("resize image", "s1"), ("a\tb", "s1"), ("work", "two words"), ("work", "")]
)
async def test_a_delayed_message_that_cannot_be_read_goes_to_the_dead_letters(
    a: Consumer, name: str, identifier: str
) -> None:
    await waiting(a)
    delivery = await a.publish("s1")
    foreign = msgspec.structs.replace(Outgoing.of(step_message("s1", name=name)), id=identifier)
    await a.world.deliveries.move(delivery, foreign, old_id=identifier, target="steps", delay_ms=1)
    a.clock.advance(1)

    await a.world.upkeep.promote(a.partition)

    ((_, letter),) = await a.redis.xrange(a.partition.dead)
    assert letter[b"reason"] == b"undecodable"
    assert letter[b"original:msg"].endswith(foreign.body)


# -- nudges


async def test_a_nudge_is_written_only_for_what_is_due_earlier_than_all_before(a: Consumer) -> None:
    seen = []
    for run, due in (("r1", 500), ("r2", 900), ("r3", 500), ("r4", 100)):
        await waiting(a, due, run=run)
        seen.append([due - a.clock.now for due in await nudges(a)])

    assert seen == [[500], [500], [500], [100]]


async def test_a_delayed_retry_nudges_too(a: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])

    await a.retry(attempt, delay_ms=50)

    assert await nudges(a) == [a.clock.now + 50]


async def test_a_wait_cancelled_before_it_is_due_never_completes(a: Consumer) -> None:
    await waiting(a, 100)
    await a.later_pass(["unwait", "w0"], step("s1"))
    a.clock.advance(100)

    assert await a.world.upkeep.promote(a.partition) == (None, [])
    assert (await a.kinds()).count("wait_cancelled") == 1


async def test_a_wait_that_completed_before_the_commit_cancels_it_is_left_as_it_is(a: Consumer) -> None:
    await waiting(a, 100)
    await a.world.cancel(RUN)
    turn = await a.load((await a.read("workflows"))[0])
    a.clock.advance(100)
    await a.world.upkeep.promote(a.partition)

    assert (await a.commit(turn, ["unwait", "w0"])).outcome == "again"
    assert "wait_cancelled" not in await a.kinds()


async def test_retention_is_counted_from_the_end_of_the_run(a: Consumer) -> None:
    await waiting(a)
    a.clock.advance(50)
    await a.later_pass(end())
    keep = a.world.settings.retention_ms

    a.clock.advance(keep - 1)
    assert await a.world.upkeep.reap(a.partition, 10) == 0
    a.clock.advance(1)
    assert await a.world.upkeep.reap(a.partition, 10) == 1
    assert not await a.redis.exists(a.key(), a.partition.log(RUN), a.partition.expiring, a.partition.index("created"))


async def test_a_reaped_run_takes_its_timers_and_retries_along(a: Consumer) -> None:
    """Due in months, they would fill memory until then, and a retry would find no run and end as a dead letter."""
    turn = await a.begin()
    await a.commit(turn, step("s1"), ["wait", "w1", a.clock.now + 10**10], ["wait", "w2", a.clock.now + 1])
    await a.retry(await a.claim((await a.steps_delivered())["s1"]), delay_ms=10**10)
    await waiting(a, 10**10, run="other")
    a.clock.advance(1)
    await a.world.upkeep.promote(a.partition)
    await a.finish(how="cancelled")
    a.clock.advance(a.world.settings.retention_ms)

    assert await a.world.upkeep.reap(a.partition, 10) == 1

    assert await a.redis.zrange(a.partition.delayed, 0, -1) == [b"wait other w0"]
    assert await a.redis.hlen(a.partition.delayed_body) == 0


async def test_a_row_of_many_retries_is_reaped_in_calls_of_bounded_work(a: Consumer) -> None:
    """One call searched the whole row: 50,000 retries kept Redis for 200 ms."""
    retries, most = 50_000, 2_000
    await a.begin()
    await a.begin("next")
    await a.redis.hset(a.key(), "delays", 1)
    for first in range(0, retries, 1_000):
        ids = [f"s{number}" for number in range(first, first + 1_000)]
        await a.redis.hset(a.key(), mapping={f"s:{id}": "pending|1|0|t|||g|1|2|3|4" for id in ids})
        await a.redis.zadd(a.partition.delayed, {f"step {RUN} {id}": 10**13 for id in ids})
        await a.redis.hset(a.partition.delayed_body, mapping={f"step {RUN} {id}": "x" for id in ids})
    await a.finish(how="cancelled")
    a.clock.advance(1)
    await a.finish("next")
    a.clock.advance(a.world.settings.retention_ms)

    reaped, more, left, calls = 0, 1, retries, 0
    while more:
        _, count, more = await a.world.call("reap_expired", a.partition, a.clock.now, 10)
        now_left = await a.redis.zcard(a.partition.delayed)
        assert left - now_left <= most
        assert await a.redis.exists(a.key()) or count, "the row goes last"
        reaped, left, calls = reaped + count, now_left, calls + 1

    assert calls >= retries / most
    assert (reaped, left, await a.redis.hlen(a.partition.delayed_body)) == (2, 0, 0)
    assert not await a.redis.exists(a.key(), a.key("next"), a.partition.expiring)


async def test_a_reap_goes_on_by_itself_to_the_end_of_a_row(a: Consumer) -> None:
    await a.begin()
    ids = [f"s{number}" for number in range(3_000)]
    await a.redis.hset(a.key(), mapping={"delays": "1"} | {f"s:{id}": "pending|1|0|t|||g|1|2|3|4" for id in ids})
    await a.redis.zadd(a.partition.delayed, {f"step {RUN} {id}": 10**13 for id in ids})
    await a.finish(how="cancelled")
    a.clock.advance(a.world.settings.retention_ms)

    assert await a.world.upkeep.reap(a.partition, 1) == 1
    assert not await a.redis.exists(a.key(), a.partition.delayed)


async def begun_anew(a: Consumer, run: str = RUN) -> None:
    """A run under the id of one that nobody has reaped, whose row has gone by its TTL."""
    await a.begin(run)
    await a.finish(run)
    a.clock.advance(a.world.settings.retention_ms)
    await a.redis.delete(a.key(run), a.partition.log(run))


@pytest.mark.parametrize("status", ["pending", "running"])
async def test_a_run_that_has_begun_anew_under_its_id_is_not_reaped(a: Consumer, status: str) -> None:
    """No worker had run for retention and a day. The first one deleted row and log of the run that was going on."""
    await begun_anew(a)
    await (a.start() if status == "pending" else a.begin())
    before = await a.written()

    assert await a.world.upkeep.reap(a.partition, 10) == 0

    assert await a.written() == before
    assert (await a.row()).status == status
    assert await a.redis.zscore(a.partition.expiring, RUN) is None
    assert await a.redis.zscore(a.partition.index("created"), RUN) == a.clock.now
    assert await a.redis.zscore(a.partition.index("status:completed"), RUN) is None


async def test_a_run_that_has_begun_anew_goes_after_its_own_retention(a: Consumer) -> None:
    await begun_anew(a)
    await a.begin()
    await a.finish(how="failed")

    assert await a.world.upkeep.reap(a.partition, 10) == 0
    assert (await a.row()).status == "failed"

    a.clock.advance(a.world.settings.retention_ms)
    assert await a.world.upkeep.reap(a.partition, 10) == 1
    assert not await a.redis.exists(a.key(), a.partition.log(RUN), a.partition.expiring)


async def test_runs_that_have_begun_anew_hold_up_no_reaping(a: Consumer) -> None:
    for run in ("a1", "a2", "a3"):
        await begun_anew(a, run)
        await a.start(run)
    await a.begin("old")
    await a.finish("old")
    a.clock.advance(a.world.settings.retention_ms)

    assert await a.world.upkeep.reap(a.partition, 2) == 1

    assert not await a.redis.exists(a.key("old"), a.partition.expiring)


@pytest.mark.parametrize("how", ["cancel", "terminate", "run_failed"])
async def test_a_run_that_ends_before_it_begins_takes_its_first_message_along(a: Consumer, how: str) -> None:
    """It would come when the row has gone, and create the run again."""
    for run in (RUN, "other"):
        await a.world.create_run(run, "wf", b"\x90", begins=Begins(10**10))

    if how == "run_failed":
        await a.world.events.run_failed(RUN, ErrorInfo(type="Oops", message="no"))
    else:
        await a.world.cancel(RUN, terminate=how == "terminate")

    assert (await a.row()).status.terminal
    assert await a.redis.zrange(a.partition.delayed, 0, -1) == [b"workflow other start"]
    assert await a.redis.hkeys(a.partition.delayed_body) == [b"workflow other start"]


async def test_a_run_that_began_is_asked_to_stop_and_not_ended_although_its_message_was_delayed_once(
    a: Consumer,
) -> None:
    await a.world.create_run(RUN, "wf", b"\x90", begins=Begins(100))
    a.clock.advance(100)
    await a.world.upkeep.promote(a.partition)

    assert await a.world.cancel(RUN) == "pending"

    assert (await a.kinds())[-1] == "cancel_requested"
