"""Do the fences of the store answer as the reference's do? (reference-semantics 9.2, C1 to C13)

The reference's errors are words here: RunExpired is ``gone``, EntityConflict on a finished step ``skipped``, on a
finished run ``gone``, and where somebody else holds the attempt ``stale``; TooEarly is ``too_early``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from redis.exceptions import ResponseError

from redisworld import Status, events
from redisworld.errors import MalformedMessage
from redisworld.world import Answer
from redisworld.world.events import Events
from tests.scripts.driver import RUN, Attempt, Consumer, Item, step, step_message
from tests.scripts.test_fences import TERMINAL, put, put_step

pytestmark = pytest.mark.anyio

ROUNDS = 25
"""Of a race between two connections: enough for each of them to come first now and then."""


async def kinds_of(a: Consumer, step_id: str) -> list[str]:
    return [str(event.kind) for event in await a.log() if event.id == step_id]


# -- a finished run


async def test_c01_a_claim_on_a_cancelled_run_is_gone_though_the_row_of_the_step_reads_running(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    await put(a, "cancelled")
    before = await a.written()
    a.clock.advance(50)

    answer = await a.claim(await a.take(attempt.delivery))

    assert (answer.outcome, answer.claim.detail) == ("gone", "cancelled")
    assert await a.written() == before
    assert ((await a.step("s1")).status, (await a.step("s1")).attempt) == (Status.RUNNING, 1)


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_c02_a_step_in_flight_still_records_its_outcome_on_a_cancelled_run(a: Consumer, outcome: str) -> None:
    attempt = await put_step(a, "running")
    await put(a, "cancelled")
    before = await a.kinds()

    recorded = await a.complete(attempt, outcome)

    assert (recorded.outcome, recorded.detail) == (outcome, "settled")
    assert await a.kinds() == [*before, f"step_{outcome}"]
    assert (await a.step("s1")).status == outcome
    assert (await a.row()).status is Status.CANCELLED


async def test_c03_a_failure_of_a_pending_step_is_gone_on_a_cancelled_run(a: Consumer) -> None:
    """The reference's local store answers so, its Postgres one accepts; ours takes no outcome without a start (H9)."""
    pending = await put_step(a, "pending")
    await put(a, "cancelled")
    before = await a.written()

    recorded = await a.complete(pending, "failed")

    assert (recorded.outcome, recorded.detail) == ("gone", "cancelled")
    assert await a.written() == before


async def test_c04_a_claim_of_a_finished_step_on_a_finished_run_is_skipped_and_not_gone(a: Consumer) -> None:
    attempt = await put_step(a, "completed")
    copy = await a.duplicate(attempt.delivery)
    await put(a, "completed")
    before = await a.written()

    assert (await a.claim(copy)).outcome == "skipped"
    assert await a.written() == before


@pytest.mark.parametrize("status", TERMINAL)
async def test_c05_a_claim_before_its_retry_time_on_a_finished_run_is_gone_and_not_too_early(
    a: Consumer, status: str
) -> None:
    attempt = await put_step(a, "delayed")
    copy = await a.duplicate(attempt.delivery)
    await put(a, status)

    assert (await a.claim(copy)).outcome == "gone"


CREATIONS: dict[str, Callable[[Events], Awaitable[Answer]]] = {
    "step_created": lambda events: events.step_created(RUN, step_message("s9")),
    "wait_created": lambda events: events.wait_created(RUN, "w9", 2_000_000_000_000),
    "hook_created": lambda events: events.hook_created(RUN, "h9", "token"),
    "attr_set": lambda events: events.attr_set(RUN, {"k": "v"}, id="a9"),
    "patched": lambda events: events.patched(RUN, "fraud-check"),
}


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("kind", CREATIONS)
async def test_c06_nothing_is_created_on_a_finished_run(a: Consumer, status: str, kind: str) -> None:
    """The reference answers EntityConflict; ``gone`` tells an ended run from a repeated write."""
    await a.dispatch(step("s1"))
    await put(a, status)
    before = await a.dump()

    assert await CREATIONS[kind](a.world.events) == Answer("gone", status)
    assert await a.dump() == before


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize(
    "item",
    [step("s9"), ["wait", "w9", 2_000_000_000_000], ["attr", "a9", '{"k":"v"}', b"\xc0"]],
    ids=lambda item: str(item[0]),
)
async def test_c06_a_pass_creates_nothing_on_a_finished_run(a: Consumer, status: str, item: Item) -> None:
    turn = await a.begin()
    await put(a, status)
    before = await a.written()

    answer = await a.commit(turn, item)

    assert (answer.outcome, answer.detail) == ("gone", status)
    assert await a.written() == before
    assert await a.steps_delivered() == {}


@pytest.mark.parametrize("status", TERMINAL)
async def test_c06_a_claim_that_carries_the_input_creates_no_step_on_a_finished_run(a: Consumer, status: str) -> None:
    missing = await put_step(a, "missing")
    await put(a, status)
    before = await a.written()

    assert (await a.claim(missing.delivery, ensure=True, input=b"\x90")).outcome == "gone"
    assert await a.written() == before


# -- two at once


async def test_c07_of_two_claims_at_once_that_carry_the_input_one_creates_and_starts_the_step(
    a: Consumer, b: Consumer
) -> None:
    """The other one is ``stale``, for it is a second entry of the message that holds the attempt."""
    await a.dispatch(step("other"))
    for number in range(ROUNDS):
        step_id = f"lazy{number}"
        one, other = await a.publish(step_id), await b.publish(step_id)

        answers = await asyncio.gather(
            a.claim(one, ensure=True, input=b"\x90"), b.claim(other, ensure=True, input=b"\x90")
        )

        assert sorted(answer.outcome for answer in answers) == ["stale", "started"]
        assert await kinds_of(a, step_id) == ["step_created", "step_started"]


@pytest.mark.parametrize("second", ["completed", "failed"])
async def test_c08_of_two_completions_at_once_one_wins_and_there_is_one_event(
    a: Consumer, b: Consumer, second: str
) -> None:
    """Both present the token of the attempt, so the loser is told the recorded outcome and no conflict."""
    deliveries = await a.dispatch(*(step(f"s{number}") for number in range(ROUNDS)))
    for step_id, delivery in deliveries.items():
        attempt = await a.claim(delivery)

        answers = await asyncio.gather(
            a.complete(attempt, "completed", may_replay=False), b.complete(attempt, second, may_replay=False)
        )

        [ended] = [kind for kind in await kinds_of(a, step_id) if kind in ("step_completed", "step_failed")]
        assert [f"step_{answer.outcome}" for answer in answers] == [ended, ended]
        assert await a.pending(delivery) is None


async def test_c08_of_two_holders_that_complete_at_once_only_the_later_one_is_recorded(
    a: Consumer, b: Consumer
) -> None:
    """A holder that lost its lease has another token: ``stale``, or ``skipped`` once the step is finished."""
    deliveries = await a.dispatch(*(step(f"s{number}") for number in range(ROUNDS)))
    for step_id, delivery in deliveries.items():
        lost = await a.claim(delivery)
        holder = await b.claim(await b.take(delivery))

        refused, recorded = await asyncio.gather(
            a.complete(lost, "failed", may_replay=False), b.complete(holder, may_replay=False)
        )

        assert refused.outcome in ("stale", "skipped")
        assert recorded.outcome == "completed"
        assert (await kinds_of(a, step_id))[-1:] == ["step_completed"]
        assert "step_failed" not in await kinds_of(a, step_id)


# -- starts


async def test_c09_a_running_step_is_started_again_only_by_the_delivery_that_its_state_names(
    a: Consumer, b: Consumer
) -> None:
    """The reference accepts any second start. Ours refuses a copy of the message: else two attempts would run."""
    attempt = await put_step(a, "running")
    first = a.clock.now
    copy = await b.duplicate(attempt.delivery)
    before = await a.written()
    a.clock.advance(1_000)

    assert (await b.claim(copy)).outcome == "stale"
    assert await a.written() == before

    again = (await b.claim(await b.take(attempt.delivery))).claim
    assert (again.outcome, again.attempt, again.first_started_at) == ("started", 2, first)


async def test_c10_a_claim_before_its_retry_time_hears_the_time_left_and_clears_it_when_it_starts(
    a: Consumer,
) -> None:
    """In milliseconds: rounding up to seconds would start a step late."""
    attempt = await put_step(a, "running")
    await a.retry(attempt, delay_ms=3_000)
    copy = await a.duplicate(attempt.delivery)

    for passed, left in ((0, 3_000), (2_999, 1)):
        a.clock.advance(passed)
        answer = await a.claim(copy)
        assert (answer.outcome, answer.claim.wait_ms) == ("too_early", left)

    a.clock.advance(1)
    assert (await a.claim(copy)).claim.attempt == 2
    assert (await a.step("s1")).retry_at == 0


async def test_c11_a_run_that_is_started_again_keeps_its_first_start_and_gets_no_event(
    a: Consumer, b: Consumer
) -> None:
    """Starting is part of the load: a second one, by another worker and message, hands the run out as it is.

    So does the single event, for a runtime that starts runs by itself.
    """
    turn = await a.begin()
    first = a.clock.now
    copy = await b.duplicate(turn.delivery)
    before = await a.written()
    a.clock.advance(50)

    again = (await b.load(copy)).loaded

    assert (again.outcome, again.started_at, again.length) == ("loaded", first, 2)
    assert await b.world.events.run_started(RUN) == Answer("started", str(first))
    assert await a.written() == before


# -- the log


async def work(consumer: Consumer, attempts: list[Attempt]) -> None:
    """Claim and complete one step after the other."""
    for attempt in attempts:
        claimed = await consumer.claim(attempt.delivery)
        assert (await consumer.complete(claimed, may_replay=False)).outcome == "completed"


async def shared_out(a: Consumer, b: Consumer, count: int) -> list[tuple[Consumer, list[Attempt]]]:
    """A run of ``count`` queued steps, and the four writers that will run them, two of each World."""
    deliveries = list((await a.dispatch(*(step(f"s{number}", "g") for number in range(count)))).values())
    taken = [await b.take(delivery) for delivery in deliveries[::2]]
    parts = [(a, deliveries[1::4]), (a, deliveries[3::4]), (b, taken[::2]), (b, taken[1::2])]
    return [(c, [Attempt(d, c.claim_item(d), None) for d in mine]) for c, mine in parts]  # type: ignore[arg-type]


async def test_c12_writers_at_once_leave_no_gap_and_a_reader_with_a_cursor_sees_every_event_once(
    a: Consumer, b: Consumer
) -> None:
    """An event's number is its place in the list; the numbers that the row keeps must be those places."""
    writers = await shared_out(a, b, 80)
    seen: list[bytes] = []
    over = asyncio.Event()

    async def read() -> None:
        while True:
            finished = over.is_set()
            page = await b.world.log(RUN, len(seen), 7)
            seen.extend(page)
            if finished and not page:
                return

    reading = asyncio.ensure_future(read())
    await asyncio.gather(*(work(*writer) for writer in writers))
    over.set()
    await reading

    log = [events.parse(element) for element in seen]
    assert seen == await a.redis.lrange(a.partition.log(RUN), 0, -1)
    assert Counter(event.kind.value for event in log if event.id) == dict.fromkeys(
        ("step_created", "step_started", "step_completed"), 80
    )
    for step_id, state in (await a.world.steps(RUN)).items():
        for number, kind in ((state.input_event, "step_created"), (state.started_event, "step_started")):
            assert (log[number - 1].kind.value, log[number - 1].id) == (kind, step_id)


async def test_c13_whoever_looks_sees_a_state_and_its_event_or_neither(a: Consumer, b: Consumer) -> None:
    """Row and event are written by one script: there is no moment between them."""
    writers = await shared_out(a, b, 80)
    looks: set[int] = set()
    over = asyncio.Event()

    async def look() -> None:
        while not over.is_set():
            pipeline = a.redis.pipeline(transaction=True)
            pipeline.hgetall(a.key())
            pipeline.lrange(a.partition.log(RUN), 0, -1)
            row, log = await pipeline.execute()
            states = [value for field, value in row.items() if field.startswith(b"s:")]
            done = sum(state.startswith(b"completed|") for state in states)
            started = sum(int(state.split(b"|")[1]) for state in states)
            assert done == sum(element.startswith(b"step_completed ") for element in log)
            assert started == sum(element.startswith(b"step_started ") for element in log)
            looks.add(done)

    looking = asyncio.ensure_future(look())
    await asyncio.gather(*(work(*writer) for writer in writers))
    over.set()
    await looking
    assert len(looks - {0, 80}) > 1, "nobody looked in between"


@pytest.mark.parametrize("key", ["run:r1:log", "workflows"])
async def test_c13_an_event_that_cannot_be_written_leaves_no_trace_in_the_row(a: Consumer, key: str) -> None:
    """A script that fails half-way keeps its writes, so each key is looked at before the first."""
    attempt = await put_step(a, "running")
    await a.redis.delete(a.partition.tag + key)
    await a.redis.set(a.partition.tag + key, "foreign")
    before = await a.dump()

    with contextlib.suppress(MalformedMessage, ResponseError):
        await a.complete(attempt, may_replay=False)

    assert await a.dump() == before
