"""Does a script that is asked again, because its reply was lost, answer the same and change nothing more?

Every case brings a namespace to where one call is about to be made, and hands back that call with its tokens fixed.
The second ask comes 5 ms later: a worker that repeats lives in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from redisworld.world import Claim, Completion
from tests.scripts.driver import RUN, Consumer, end, inline, step
from tests.scripts.test_fences import put_step, put_wait

pytestmark = pytest.mark.anyio

Call = Callable[[], Awaitable[object]]
CASES: dict[str, Callable[[Consumer], Awaitable[Call]]] = {}


def case(build: Callable[[Consumer], Awaitable[Call]]) -> Callable[[Consumer], Awaitable[Call]]:
    CASES[build.__name__] = build
    return build


@case
async def load_that_starts(a: Consumer) -> Call:
    await a.start()
    (delivery,) = await a.read("workflows")

    async def call() -> object:
        return await a.world.load(delivery, RUN, "start")

    return call


@case
async def load_under_an_owner(a: Consumer) -> Call:
    turn = await a.begin()
    await a.commit(turn, inline("s1", a.world.next_token()))
    return lambda: a.load(turn.delivery)


def claim_case(state: str, name: str, **changes: object) -> None:
    async def build(a: Consumer) -> Call:
        attempt = await put_step(a, state)
        item = a.claim_item(attempt.delivery, **changes)
        return lambda: a.world.claim(item)

    CASES[name] = build


claim_case("pending", "claim_started")
claim_case("running", "claim_of_a_redelivery_started")
claim_case("missing", "claim_missing")
claim_case("missing", "claim_created_and_started", ensure=True, input=b"\x90")


@case
async def claim_that_is_told_the_first_start(a: Consumer) -> Call:
    first = await put_step(a, "running")
    a.clock.advance(10)
    await a.retry(first)
    item = a.claim_item(await a.redelivered(first))
    return lambda: a.world.claim(item)


@case
async def claim_gone(a: Consumer) -> Call:
    attempt = await put_step(a, "pending")
    await a.finish()
    item = a.claim_item(attempt.delivery)
    return lambda: a.world.claim(item)


@case
async def claim_skipped_and_responsible(a: Consumer) -> Call:
    attempt = await put_step(a, "running")
    assert (await a.complete(attempt)).detail == "responsible"
    return lambda: a.world.claim(attempt.item)


@case
async def claim_too_early(a: Consumer) -> Call:
    attempt = await put_step(a, "delayed")
    item = a.claim_item(await a.duplicate(attempt.delivery))

    async def call() -> object:
        return (await a.world.claim(item)).outcome

    return call


def completion_case(outcome: str, name: str, *, steps: int = 1, **changes: object) -> None:
    async def build(a: Consumer) -> Call:
        deliveries = await a.dispatch(*(step(f"s{n}", "g1" if steps > 1 else "") for n in range(steps)))
        attempt = await a.claim(deliveries["s0"])
        item = a.completion(attempt, outcome, **changes)
        return lambda: a.world.complete(item)

    CASES[name] = build


completion_case("completed", "complete_responsible")
completion_case("completed", "complete_settled", steps=2)
completion_case("failed", "fail_responsible")
completion_case("retrying", "retry_with_a_delay", delay_ms=1000)
completion_case("retrying", "retry_at_once")
completion_case("retrying", "drain", cause="drain")


@case
async def complete_under_another_token(a: Consumer) -> Call:
    lost = await put_step(a, "running")
    await a.claim(lost.delivery)
    return lambda: a.complete(lost)


@case
async def complete_after_the_end(a: Consumer) -> Call:
    attempt = await put_step(a, "running")
    await a.finish()
    return lambda: a.complete(attempt)


@case
async def complete_an_inline_step(a: Consumer) -> Call:
    turn, token = await a.begin(), a.world.next_token()
    await a.commit(turn, inline("s1", token))
    item = Completion(
        run_id=RUN,
        step_id="s1",
        token=token,
        outcome="completed",
        message_id="start",
        delivery=turn.delivery,
        payload=b"",
    )
    return lambda: a.world.complete(item)


@case
async def retry_an_inline_step(a: Consumer) -> Call:
    turn, token = await a.begin(), a.world.next_token()
    await a.commit(turn, inline("s1", token))
    item = Completion(
        run_id=RUN, step_id="s1", token=token, outcome="retrying", message_id="start", delivery=turn.delivery,
        payload=b"", delay_ms=50, target="steps", step_name="work", message=b"m",
    )  # fmt: skip
    return lambda: a.world.complete(item)


@case
async def commit_committed(a: Consumer) -> Call:
    turn = await a.begin()
    items = [step("s1", "g1"), step("s2", "g1"), ["wait", "w1", a.clock.now + 9], ["seal", "g1", "all"]]
    return lambda: a.commit(turn, *items, token="pass1")


@case
async def commit_inline(a: Consumer) -> Call:
    turn = await a.begin()
    return lambda: a.commit(turn, step("s1"), inline("s2", "tok2"), token="pass1")


@case
async def commit_again(a: Consumer) -> Call:
    turn = await a.begin()
    await a.world.cancel(RUN)
    return lambda: a.commit(turn, step("s1"), inline("s2", "tok2"), token="pass1")


@case
async def commit_ended(a: Consumer) -> Call:
    turn = await a.begin()
    return lambda: a.commit(turn, end(), token="pass1")


@case
async def commit_chunk(a: Consumer) -> Call:
    turn = await a.begin()

    async def call() -> str:  # the time of a chunk means nothing to a caller
        return (await a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False, token="pass1")).outcome

    return call


@case
async def commit_lost(a: Consumer) -> Call:
    turn = await a.begin()
    await a.later_pass(step("s1"))
    return lambda: a.commit(turn, step("s2"), token="pass1")


@case
async def commit_gone(a: Consumer) -> Call:
    turn = await a.begin()
    await a.finish()
    return lambda: a.commit(turn, step("s2"), token="pass1")


@case
async def cancel_requested(a: Consumer) -> Call:
    await a.begin()
    return lambda: a.world.cancel(RUN, reason="enough")


@case
async def cancel_terminate(a: Consumer) -> Call:
    await a.begin()
    return lambda: a.world.cancel(RUN, terminate=True)


def _timeless(answer: Any) -> Any:
    """A claim's ``started_at`` is the time of the answer, for a metric; all else of a repeat is the first answer."""
    return msgspec.structs.replace(answer, started_at=0) if isinstance(answer, Claim) else answer


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("later_ms", [0, 5])
async def test_the_second_ask_answers_the_same_and_changes_nothing(a: Consumer, name: str, later_ms: int) -> None:
    call = await CASES[name](a)
    first = _timeless(await call())
    before = await a.dump()
    a.clock.advance(later_ms)

    assert _timeless(await call()) == first
    assert await a.dump() == before


async def test_a_start_asked_again_hands_back_the_run_and_changes_nothing(a: Consumer) -> None:
    assert await a.world.create_run(RUN, "wf", b"\x90") == ("created", "wf")
    before = await a.dump()

    assert await a.world.create_run(RUN, "wf", b"\x90") == ("conflict", "wf")
    assert await a.dump() == before


async def test_an_exhausted_claim_asked_again_is_skipped_with_the_same_duty(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    item = a.claim_item(attempt.delivery, attempts_allowed=1)
    first = await a.world.claim(item)
    before = await a.dump()

    again = await a.world.claim(item)

    assert (first.outcome, again.outcome) == ("exhausted", "skipped")
    assert first.detail == again.detail == "responsible"
    assert await a.dump() == before


async def test_a_completion_that_published_a_wake_publishes_no_second_one_when_asked_again(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    first = await a.complete(attempt, may_replay=False)
    before = await a.dump()

    again = await a.complete(attempt, may_replay=False)

    assert (first.detail, again.outcome, again.detail) == ("woken", "completed", "settled")
    assert await a.dump() == before


async def test_a_completion_asked_again_under_another_outcome_answers_the_first(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    await a.complete(attempt, "failed")
    before = await a.dump()

    assert (await a.complete(attempt, "completed")).outcome == "failed"
    assert await a.dump() == before


async def test_a_retry_asked_again_after_another_worker_started_the_next_attempt_is_stale(
    a: Consumer, b: Consumer
) -> None:
    attempt = await put_step(a, "running")
    await a.retry(attempt)
    await b.claim((await b.steps_delivered())["s1"])
    before = await a.dump()

    assert (await a.retry(attempt)).outcome == "stale"
    assert await a.dump() == before


async def test_a_claim_asked_again_after_the_delivery_was_taken_over_is_stale(a: Consumer, b: Consumer) -> None:
    attempt = await put_step(a, "running")
    await b.claim(await b.take(attempt.delivery))
    before = await a.dump()

    assert (await a.world.claim(attempt.item)).outcome == "stale"
    assert await a.dump() == before


async def test_a_chunk_asked_again_after_its_steps_have_run_dispatches_none_again(a: Consumer) -> None:
    turn = await a.begin()
    await a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False)
    await a.complete(await a.claim((await a.steps_delivered())["s1"]))
    before = await a.dump()

    assert (await a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False)).outcome == "chunk"
    assert await a.dump() == before


# Calls that take a delivery away cannot know it afterwards: asked again they find nothing of theirs.


async def test_a_settle_asked_again_finds_nothing_and_changes_nothing(a: Consumer) -> None:
    turn = await a.begin()
    assert await a.world.settle(turn.delivery) is True
    before = await a.dump()

    assert await a.world.settle(turn.delivery) is False
    assert await a.dump() == before


@pytest.mark.parametrize("delay_ms", [0, 1000])
async def test_a_move_asked_again_finds_nothing_and_changes_nothing(a: Consumer, delay_ms: int) -> None:
    attempt = await put_step(a, "pending")
    assert await a.move(attempt.delivery, delay_ms=delay_ms) is True
    before = await a.dump()

    assert await a.move(attempt.delivery, delay_ms=delay_ms) is False
    assert await a.dump() == before


async def test_a_bury_asked_again_finds_nothing_and_changes_nothing(a: Consumer) -> None:
    attempt = await put_step(a, "pending")

    async def bury() -> bool:
        return await a.world.bury(
            attempt.delivery, run_id=RUN, reason="max_deliveries", detail="", code="MAX_DELIVERIES_EXCEEDED"
        )

    assert await bury() is True
    before = await a.dump()

    assert await bury() is False
    assert await a.dump() == before


async def test_a_promotion_asked_again_promotes_nothing_twice(a: Consumer) -> None:
    await put_wait(a, "waiting")
    a.clock.advance(100)
    assert await a.world.promote(a.partition) == (None, [0])
    before = await a.dump()

    assert await a.world.promote(a.partition) == (None, [])
    assert await a.dump() == before


async def test_a_reap_asked_again_deletes_nothing_more(a: Consumer) -> None:
    await a.begin("old")
    await a.finish("old")
    a.clock.advance(a.world.settings.retention_ms)
    await a.begin("young")
    await a.finish("young")
    assert await a.world.reap(a.partition, 10) == 1
    before = await a.dump()

    assert await a.world.reap(a.partition, 10) == 0
    assert await a.dump() == before
    assert not await a.redis.exists(a.key("old"), a.partition.log("old"))


async def test_a_reclaim_asked_again_takes_nothing_twice_and_loses_nothing(a: Consumer, b: Consumer) -> None:
    attempt = await put_step(a, "pending")
    await a.age(attempt.delivery)
    await b.world.reclaim((b.partition, "steps"), "0-0", 10)  # the reply is lost
    before = await a.dump()

    assert await b.world.reclaim((b.partition, "steps"), "0-0", 10) == ("0-0", [])
    assert await a.dump() == before

    await b.age(attempt.delivery)
    assert (await b.world.reclaim((b.partition, "steps"), "0-0", 10) or ("", []))[1] != []


async def test_a_renewal_asked_again_answers_the_same(a: Consumer, b: Consumer) -> None:
    from redisworld.world import Renewal

    deliveries = await a.dispatch(step("s1"), step("s2"))
    await b.take(deliveries["s2"])
    before = await a.dump()
    renewal = Renewal(a.world.connection, a.world.consumer)

    first, second = (renewal.renew(a.partition, list(deliveries.values())) for _ in range(2))

    renewal.close()
    assert first == second == {deliveries["s2"].entry_id}
    assert await a.dump() == before
