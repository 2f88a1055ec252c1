"""Does every event meet the fence that the table of design section 7 gives it?

Each test builds one run status and one state of step or wait, tries one event, and looks at the answer and at what
was written. ``asked`` is a running run whose cancel was requested.
"""

from __future__ import annotations

import asyncio
import re

import msgspec
import pytest

from redisworld.errors import MalformedMessage, RunNotFound
from redisworld.runs import Status
from redisworld.world import Committed, Completion
from redisworld.world.begins import AT_ONCE, Begins
from tests.scripts.driver import ERROR, RUN, Attempt, Consumer, Item, end, inline, step

pytestmark = pytest.mark.anyio

OPEN = ["running", "asked"]
TERMINAL = ["completed", "failed", "cancelled"]
ENDS = {"run_completed": "completed", "run_failed": "failed", "run_cancelled": "cancelled"}


async def put(a: Consumer, status: str) -> None:
    """Bring the running run to this status."""
    if status == "asked":
        await a.world.cancel(RUN)
    elif status in TERMINAL:
        await a.finish(how=status)


async def put_step(a: Consumer, state: str) -> Attempt:
    """A running run with one step in this state, and the latest attempt at it."""
    d = (await a.dispatch(step("s1")))["s1"] if state != "missing" else None
    if d is None:
        await a.dispatch(step("other"))
        d = await a.publish("s1")
    if state in ("missing", "pending"):
        return Attempt(d, a.claim_item(d), None)  # type: ignore[arg-type]  # nobody claimed yet
    attempt = await a.claim(d)
    if state in ("completed", "failed"):
        await a.complete(attempt, state, may_replay=False)
    elif state == "delayed":
        await a.retry(attempt, delay_ms=1000)
    return attempt


# -- run_created, run_started


@pytest.mark.parametrize("status", ["pending", *OPEN, *TERMINAL])
async def test_a_second_run_created_is_a_conflict_that_names_the_existing_run(a: Consumer, status: str) -> None:
    if status == "pending":
        await a.start()
    else:
        await a.begin()
        await put(a, status)
    before = await a.dump()

    assert await a.world.create_run(RUN, "other", b"\x91\x01") == ("conflict", "wf")
    assert await a.dump() == before


@pytest.mark.parametrize("begins", [AT_ONCE, Begins(1_000)], ids=["at once", "later"])
async def test_no_run_begins_behind_the_log_of_one_whose_row_is_gone(a: Consumer, begins: Begins) -> None:
    """Its run_created went behind the old one, and the next cold replay began with the old input."""
    await a.dispatch(step("s1"))
    await a.redis.delete(a.key())
    before = await a.dump()

    with pytest.raises(
        MalformedMessage, match=f"run {RUN} has a log and no row.*DEL {re.escape(a.partition.log(RUN))} "
    ):
        await a.world.create_run(RUN, "wf", b"\x91\x01", begins=begins)
    assert await a.dump() == before

    assert await a.world.create_run("other", "wf", b"\x90") == ("created", "wf")
    await a.redis.delete(a.partition.log(RUN))
    assert await a.world.create_run(RUN, "wf", b"\x91\x01", begins=begins) == ("created", "wf")
    assert await a.kinds() == ["run_created"]


async def test_a_start_that_is_refused_costs_its_neighbours_of_the_batch_nothing(a: Consumer) -> None:
    await a.start()
    await a.redis.delete(a.key())

    refused, created = await asyncio.gather(a.start(), a.start("other"), return_exceptions=True)

    assert isinstance(refused, MalformedMessage)
    assert created is None
    assert (await a.row("other")).status == "pending"


async def test_the_load_of_a_pending_run_starts_it(a: Consumer) -> None:
    turn = await a.begin()

    assert (turn.loaded.outcome, turn.loaded.started_at, turn.loaded.length) == ("loaded", a.clock.now, 2)
    assert (await a.row()).status == "running"
    assert await a.kinds() == ["run_created", "run_started"]


async def test_the_load_of_a_running_run_writes_no_second_start_and_answers_the_first_time(a: Consumer) -> None:
    turn = await a.begin()
    first = a.clock.now
    before = await a.written()
    a.clock.advance(50)

    again = await a.load(turn.delivery)

    assert (again.loaded.outcome, again.loaded.started_at) == ("loaded", first)
    assert await a.written() == before


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_load_of_a_finished_run_is_gone_and_settles_its_message(a: Consumer, status: str) -> None:
    turn = await a.begin()
    await put(a, status)
    before = await a.written()

    loaded = (await a.load(turn.delivery)).loaded

    assert (loaded.outcome, loaded.detail) == ("gone", status)
    assert await a.pending(turn.delivery) is None
    assert await a.written() == before


async def test_a_first_pass_that_never_loaded_starts_the_run_in_its_commit(a: Consumer) -> None:
    await a.start()
    (delivery,) = await a.read("workflows")

    answer = await a.world.deliveries.commit(
        delivery, RUN, "start", step("s1"), replayed_to=0, consumed=2, pass_token="t1", started_at=a.clock.now
    )

    assert answer.outcome == "committed"
    assert await a.kinds() == ["run_created", "run_started", "step_created"]
    assert ((await a.row()).status, (await a.row()).started_at) == ("running", a.clock.now)


# -- run_completed, run_failed, run_cancelled


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("status", ["pending", *OPEN])
async def test_the_end_of_an_open_run_is_written_and_settles_the_message(a: Consumer, kind: str, status: str) -> None:
    await a.start()
    (delivery,) = await a.read("workflows")
    if status != "pending":
        await a.load(delivery)
        await put(a, status)

    answer = await a.world.deliveries.commit(
        delivery,
        RUN,
        "start",
        end(kind, "CODE"),
        replayed_to=0,
        consumed=2,
        pass_token="t1",
        started_at=a.clock.now if status == "pending" else None,
    )

    row = await a.row()
    assert (answer.outcome, row.status, row.finished_at, row.wake) == ("ended", ENDS[kind], a.clock.now, "")
    assert row.finished_event == row.log_length
    assert (await a.kinds())[-1] == kind
    assert await a.pending(delivery) is None


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("items", [end(), end("run_failed"), step("s1")], ids=["complete", "fail", "create"])
async def test_a_commit_to_a_finished_run_is_gone(a: Consumer, status: str, items: list[str]) -> None:
    turn = await a.begin()
    await put(a, status)
    before = await a.written()

    answer = await a.commit(turn, items)

    assert (answer.outcome, answer.detail) == ("gone", status)
    assert await a.written() == before
    assert await a.steps_delivered() == {}


async def test_a_commit_to_a_run_that_is_not_there_creates_nothing(a: Consumer) -> None:
    turn = await a.begin()
    await a.redis.delete(a.key(), a.partition.log(RUN))
    before = await a.dump()

    assert (await a.commit(turn, step("s1"))).outcome == "not_found"
    assert await a.dump() == before


@pytest.mark.parametrize("status", ["pending", *OPEN])
async def test_terminate_cancels_an_open_run_at_once(a: Consumer, status: str) -> None:
    await a.start()
    if status != "pending":
        await a.load((await a.read("workflows"))[0])
        await put(a, status)

    assert await a.world.cancel(RUN, terminate=True) == Status.CANCELLED
    assert (await a.row()).status == "cancelled"
    assert (await a.kinds())[-1] == "run_cancelled"


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("terminate", [False, True], ids=["request", "terminate"])
async def test_a_cancel_of_a_finished_run_changes_nothing_and_answers_its_status(
    a: Consumer, status: str, terminate: bool
) -> None:
    await a.begin()
    await put(a, status)
    before = await a.dump()

    assert await a.world.cancel(RUN, terminate=terminate) == Status(status)
    assert await a.dump() == before


@pytest.mark.parametrize("terminate", [False, True], ids=["request", "terminate"])
async def test_a_cancel_of_a_run_that_is_not_there_is_refused_and_creates_nothing(a: Consumer, terminate: bool) -> None:
    before = await a.dump()

    with pytest.raises(RunNotFound):
        await a.world.cancel("nobody", terminate=terminate)
    assert await a.dump() == before


async def test_a_cancel_request_is_one_event_that_the_body_is_woken_for(a: Consumer) -> None:
    await a.dispatch(step("s1"))

    assert await a.world.cancel(RUN) == await a.world.cancel(RUN) == Status.RUNNING

    assert (await a.kinds()).count("cancel_requested") == 1
    assert [wake.reason for wake in await a.wakes()] == ["admin"]
    assert (await a.row()).status == "running"


async def test_a_cancel_request_to_a_pending_run_answers_pending(a: Consumer) -> None:
    await a.start()

    assert await a.world.cancel(RUN) == Status.PENDING


async def test_a_run_asked_to_stop_may_still_run_its_clean_up_steps(a: Consumer) -> None:
    turn = await a.begin()
    await a.world.cancel(RUN)
    seen = await a.load(turn.delivery)

    await a.commit(seen, step("s1"))

    assert (await a.claim((await a.steps_delivered())["s1"])).outcome == "started"


# -- step_created


async def test_a_step_is_created_once_per_id(a: Consumer) -> None:
    turn = await a.begin()
    await a.commit(turn, step("s1"), last=False)

    assert (await a.commit(turn, step("s1"), last=False)).outcome == "chunk"
    assert (await a.kinds()).count("step_created") == 1
    assert len(await a.steps_delivered()) == 1


async def test_the_same_id_under_another_name_is_divergence_and_nothing_of_the_commit_is_written(a: Consumer) -> None:
    turn = await a.begin()
    await a.commit(turn, step("s1", name="pack"), last=False)
    before = await a.dump()

    answer = await a.commit(turn, step("s0"), step("s1", name="ship"), ["wait", "w1", 5], end())

    assert answer.outcome == "diverged"
    assert "pack" not in answer.outcome
    assert "ship" in answer.detail
    assert "pack" in answer.detail
    assert await a.dump() == before


# -- step_started


def claim_answer(status: str, state: str) -> str:
    if state in ("completed", "failed"):
        return "skipped"
    if status in TERMINAL:
        return "gone"
    return {"missing": "missing", "pending": "started", "delayed": "too_early", "running": "started"}[state]


STATES = ["missing", "pending", "delayed", "running", "completed", "failed"]


@pytest.mark.parametrize("status", [*OPEN, *TERMINAL])
@pytest.mark.parametrize("state", STATES)
async def test_a_claim_by_the_redelivered_message(a: Consumer, status: str, state: str) -> None:
    attempt = await put_step(a, state)
    delivery = attempt.delivery
    if state in ("delayed", "completed", "failed"):  # settled by then: a duplicate comes
        delivery = await a.duplicate(delivery)
    await put(a, status)
    before = await a.written()

    answer = await a.claim(delivery)

    assert answer.outcome == claim_answer(status, state)
    if answer.outcome == "started":
        assert (await a.step("s1")).attempt == (2 if state == "running" else 1)
    else:
        assert await a.written() == before
    assert await a.holds(delivery) == (answer.outcome in ("started", "missing", "too_early"))


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("exists", [True, False], ids=["pending", "missing"])
async def test_a_claim_with_the_input_creates_nothing_on_a_finished_run(a: Consumer, status: str, exists: bool) -> None:
    attempt = await put_step(a, "pending" if exists else "missing")
    await put(a, status)
    before = await a.written()

    assert (await a.claim(attempt.delivery, ensure=True, input=b"\x90")).outcome == "gone"
    assert await a.written() == before


async def test_a_claim_is_gone_even_when_the_row_of_the_step_reads_running(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    await put(a, "cancelled")

    assert (await a.claim(await a.take(attempt.delivery))).outcome == "gone"
    assert (await a.step("s1")).status == "running"


async def test_a_claim_on_a_run_that_is_not_there_keeps_its_delivery_and_creates_nothing(a: Consumer) -> None:
    delivery = await a.publish("s1", run="nobody")
    before = await a.dump()

    assert (await a.claim(delivery, ensure=True, input=b"\x90")).outcome == "not_found"
    assert {**await a.dump(), a.partition.stats: None} == {**before, a.partition.stats: None}


async def test_a_claim_with_the_input_creates_the_missing_step_and_starts_it(a: Consumer) -> None:
    attempt = await put_step(a, "missing")

    claimed = await a.claim(attempt.delivery, ensure=True, input=b"\x91\x07")

    assert (claimed.outcome, claimed.claim.attempt) == ("started", 1)
    assert [(str(e.kind), e.payload) for e in (await a.log())[-2:]] == [
        ("step_created", b"\x91\x07"),
        ("step_started", b""),
    ]


async def test_a_claim_with_the_input_but_without_the_delivery_creates_nothing(a: Consumer, b: Consumer) -> None:
    attempt = await put_step(a, "missing")
    await b.take(attempt.delivery)
    before = await a.written()

    assert (await a.claim(attempt.delivery, ensure=True, input=b"\x90")).outcome == "stale"
    assert await a.written() == before


async def test_a_claim_without_the_input_gets_it_from_the_log(a: Consumer) -> None:
    deliveries = await a.dispatch([*step("s1")[:-1], b"\x91\x2a"])

    assert (await a.claim(deliveries["s1"])).claim.input == b"\x91\x2a"
    assert (await a.claim(deliveries["s1"], input=b"known")).claim.input is None


async def test_a_claim_of_a_running_step_by_another_message_is_stale_and_settles_only_that_one(
    a: Consumer, b: Consumer
) -> None:
    attempt = await put_step(a, "running")
    other = await b.duplicate(attempt.delivery)
    before = await a.written()

    assert (await b.claim(other, message_id="m9")).outcome == "stale"
    assert await a.written() == before
    assert await b.pending(other) is None
    assert await a.holds(attempt.delivery)


async def test_a_retry_time_ahead_is_answered_with_the_ms_left(a: Consumer) -> None:
    attempt = await put_step(a, "delayed")
    early = await a.duplicate(attempt.delivery)
    a.clock.advance(300)

    answer = await a.claim(early)

    assert (answer.outcome, answer.claim.wait_ms) == ("too_early", 700)


async def test_a_retry_time_reached_starts_the_next_attempt(a: Consumer) -> None:
    attempt = await put_step(a, "delayed")
    late = await a.duplicate(attempt.delivery)
    a.clock.advance(1000)

    assert (await a.claim(late)).claim.attempt == 2


async def test_the_first_start_is_told_to_every_attempt(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    first = a.clock.now
    for later in (2, 3):
        a.clock.advance(10)
        await a.retry(attempt)
        attempt = await a.claim(await a.redelivered(attempt))

        assert (attempt.claim.attempt, attempt.claim.first_started_at) == (later, first)
        assert attempt.claim.started_at == a.clock.now


@pytest.mark.parametrize("cause", ["error", "timeout"])
async def test_attempts_used_up_write_step_failed_with_the_last_error_as_its_cause(a: Consumer, cause: str) -> None:
    attempt = await put_step(a, "running")
    await a.retry(attempt, cause=cause)

    answer = await a.claim(await a.redelivered(attempt), attempts_allowed=1)

    last = (await a.log())[-1]
    assert (answer.outcome, answer.claim.detail, last.kind) == ("exhausted", "responsible", "step_failed")
    error = msgspec.msgpack.decode(last.payload)
    assert error["cause"] == msgspec.msgpack.decode(ERROR)
    assert error["type"] == "AttemptsExhausted"
    assert error["message"] == "step work has used up its 1 attempt", "that one has an outcome"
    assert (await a.step("s1")).status == "failed"


async def test_attempts_used_up_by_crashes_have_no_cause(a: Consumer) -> None:
    attempt = await put_step(a, "running")

    answer = await a.claim(await a.take(attempt.delivery), attempts_allowed=1)

    assert answer.outcome == "exhausted"
    error = msgspec.msgpack.decode((await a.log())[-1].payload)
    assert error["message"] == "step work has used up its 1 attempt without reporting an outcome"
    assert "cause" not in error


async def test_a_drain_does_not_charge_the_retry_budget(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    for _ in range(3):
        await a.retry(attempt, cause="drain")
        attempt = await a.claim(await a.redelivered(attempt), attempts_allowed=1)

    assert (attempt.outcome, attempt.claim.attempt, attempt.claim.charged) == ("started", 4, 1)


async def test_a_drain_keeps_the_error_before_it_as_the_last_one(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    await a.retry(attempt)
    drained = await a.claim(await a.redelivered(attempt))
    await a.complete(drained, "retrying", cause="drain", payload=b"")

    answer = await a.claim(await a.redelivered(drained), attempts_allowed=1)

    assert answer.outcome == "exhausted"
    assert msgspec.msgpack.decode((await a.log())[-1].payload)["cause"] == msgspec.msgpack.decode(ERROR)


# -- step_completed, step_failed, step_retrying


def completion_answer(status: str, state: str, outcome: str) -> str:
    finished = status in TERMINAL
    if state in ("completed", "failed"):
        return "skipped"
    if state == "running":
        return "gone" if finished and outcome == "retrying" else outcome
    if finished:
        return "gone"
    return "missing" if state == "missing" else "invalid"


@pytest.mark.parametrize("outcome", ["completed", "failed", "retrying"])
@pytest.mark.parametrize("status", [*OPEN, *TERMINAL])
@pytest.mark.parametrize("state", STATES)
async def test_an_outcome(a: Consumer, status: str, state: str, outcome: str) -> None:
    attempt = await put_step(a, state)
    if state != "running":  # a token that nobody holds
        attempt = Attempt(attempt.delivery, a.claim_item(attempt.delivery), attempt.claim)
    await put(a, status)
    before, row = await a.written(), await a.row()

    answer = await a.complete(attempt, outcome, may_replay=False)

    assert answer.outcome == completion_answer(status, state, outcome)
    if answer.outcome == outcome:
        assert (await a.kinds())[-1] == f"step_{outcome}"
        assert (await a.step("s1")).status == ("pending" if outcome == "retrying" else outcome)
        assert (await a.row()).status == row.status
    else:
        assert await a.written() == before


@pytest.mark.parametrize("outcome", ["completed", "failed", "retrying"])
@pytest.mark.parametrize("status", [*OPEN, *TERMINAL])
async def test_an_outcome_under_another_token_is_stale_and_acks_and_wakes_nothing(
    a: Consumer, b: Consumer, status: str, outcome: str
) -> None:
    lost = await put_step(a, "running")
    holder = await b.claim(await b.take(lost.delivery))
    await put(a, status)
    before = await a.dump()

    assert (await a.complete(lost, outcome)).outcome == "stale"
    assert await a.dump() == before
    assert await b.holds(holder.delivery)


async def test_an_outcome_for_a_run_that_is_not_there_creates_nothing(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    await a.redis.delete(a.key(), a.partition.log(RUN))

    assert (await a.complete(attempt)).outcome == "not_found"
    assert not await a.redis.exists(a.key(), a.partition.log(RUN))
    assert await a.pending(attempt.delivery) is None


@pytest.mark.parametrize("outcome", ["completed", "failed"])
@pytest.mark.parametrize("status", TERMINAL)
async def test_an_outcome_in_flight_is_recorded_after_the_end_and_the_run_stays_as_it_is(
    a: Consumer, status: str, outcome: str
) -> None:
    attempt = await put_step(a, "running")
    await put(a, status)
    ended = await a.row()
    a.clock.advance(-500)  # Redis failed over to a clock behind

    answer = await a.complete(attempt, outcome)

    after, log = await a.row(), await a.log()
    assert (answer.outcome, answer.detail) == (outcome, "settled")
    assert msgspec.structs.replace(after, log_length=ended.log_length) == ended
    assert [e.at for e in log] == sorted(e.at for e in log)
    assert await a.wakes() == []
    assert await a.redis.pttl(a.key()) > 0
    assert await a.redis.pttl(a.partition.log(RUN)) > 0


async def test_an_outcome_of_an_inline_step_in_flight_is_recorded_after_the_end(a: Consumer) -> None:
    turn, token = await a.begin(), a.world.next_token()
    await a.commit(turn, inline("s1", token))
    await put(a, "cancelled")
    item = Completion(
        run_id=RUN,
        step_id="s1",
        token=token,
        outcome="completed",
        message_id="start",
        delivery=turn.delivery,
        payload=b"",
    )

    assert (await a.world.deliveries.complete(item)).outcome == "completed"
    assert await a.pending(turn.delivery) is None


async def test_event_times_never_go_back(a: Consumer) -> None:
    deliveries = await a.dispatch(step("s1"))
    a.clock.advance(-10_000)
    attempt = await a.claim(deliveries["s1"])
    await a.retry(attempt)
    await a.world.cancel(RUN)

    times = [event.at for event in await a.log()]
    assert times == sorted(times)


# -- waits


async def put_wait(a: Consumer, state: str) -> None:
    turn = await a.begin()
    answer = await a.commit(turn, ["wait", "w1", a.clock.now + 100], step("s1"))
    assert answer.outcome == "committed"
    if state == "completed":
        a.clock.advance(100)
        await a.world.upkeep.promote(a.partition)
    elif state == "cancelled":
        await a.later_pass(["unwait", "w1"])


@pytest.mark.parametrize("state", ["waiting", "completed", "cancelled"])
async def test_a_wait_is_created_once(a: Consumer, state: str) -> None:
    await put_wait(a, state)

    await a.later_pass(["wait", "w1", a.clock.now + 5])

    assert (await a.kinds()).count("wait_created") == 1
    assert await a.redis.zcard(a.partition.delayed) == (1 if state == "waiting" else 0)


@pytest.mark.parametrize(("state", "written"), [("waiting", 1), ("completed", 0), ("cancelled", 1)])
async def test_only_a_waiting_wait_is_cancelled(a: Consumer, state: str, written: int) -> None:
    await put_wait(a, state)

    await a.later_pass(["unwait", "w1"])

    assert (await a.kinds()).count("wait_cancelled") == written
    assert await a.redis.zcard(a.partition.delayed) == 0


@pytest.mark.parametrize("state", ["completed", "cancelled"])
async def test_a_wait_that_is_over_does_not_complete(a: Consumer, state: str) -> None:
    await put_wait(a, state)
    await a.redis.zadd(a.partition.delayed, {f"wait {RUN} w1": 0})
    before = await a.written()

    await a.world.upkeep.promote(a.partition)

    assert await a.written() == before


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_wait_of_a_finished_run_does_not_complete(a: Consumer, status: str) -> None:
    await put_wait(a, "waiting")
    await put(a, status)
    a.clock.advance(100)
    before = await a.written()

    await a.world.upkeep.promote(a.partition)

    assert await a.written() == before
    assert await a.redis.zcard(a.partition.delayed) == 0


# -- ground that Redis has lost


async def lose_the_last_event(a: Consumer) -> None:
    """Redis comes back without the latest event; the row says what it did when that had not been written."""
    await a.redis.rpop(a.partition.log(RUN))


@pytest.mark.parametrize("items", [[step("s1")], [step("s1", "g1"), step("s2", "g1")]], ids=["one", "a chunk"])
@pytest.mark.parametrize("last", [False, True], ids=["goes on", "last"])
async def test_a_pass_whose_body_has_seen_more_than_the_log_has_writes_nothing(
    a: Consumer, items: list[Item], last: bool
) -> None:
    turn = await a.begin()
    await a.world.cancel(RUN)
    seen = await a.load(turn.delivery)
    await lose_the_last_event(a)
    before = await a.dump()

    assert await a.commit(seen, *items, last=last) == Committed("lost", detail="1")
    assert await a.dump() == before


@pytest.mark.parametrize("lost", [1, 2], ids=["the first", "the second"])
@pytest.mark.parametrize("last", [False, True], ids=["goes on", "last"])
async def test_a_pass_of_which_a_chunk_is_lost_is_not_sealed_without_it(a: Consumer, lost: int, last: bool) -> None:
    # given a pass in chunks, some of which Redis comes back without
    turn = await a.begin()
    before_chunk = {}
    for chunk in (1, 2):
        before_chunk[chunk] = (await a.redis.dump(a.key()), await a.redis.llen(a.partition.log(RUN)))
        steps = [step(f"s{chunk}{n}", "g1") for n in range(2)]
        assert (await a.commit(turn, *steps, chunk=chunk, last=False, token="p")).outcome == "chunk"
    row, length = before_chunk[lost]
    await a.redis.restore(a.key(), 0, row, replace=True)
    await a.redis.ltrim(a.partition.log(RUN), 0, length - 1)
    before = await a.dump()

    # when the next one comes
    seal: list[Item] = [["seal", "g1", "all"]] if last else []
    answer = await a.commit(turn, step("s31", "g1"), step("s32", "g1"), *seal, chunk=3, last=last, token="p")

    # then it is not written, and the same message goes on
    assert answer == Committed("lost", detail="1")
    assert await a.dump() == before
    assert (await a.load(turn.delivery)).loaded.outcome == "loaded"


@pytest.mark.parametrize("item", [step("s1"), inline("s1", "t1"), end()], ids=["step", "inline", "end"])
async def test_a_pass_whose_start_of_the_run_is_lost_does_not_start_it_at_another_time(a: Consumer, item: Item) -> None:
    await a.start()
    before_start = await a.redis.dump(a.key())
    seen = await a.load((await a.read("workflows"))[-1])
    await a.redis.restore(a.key(), 0, before_start, replace=True)
    await lose_the_last_event(a)
    before = await a.dump()

    assert await a.commit(seen, item) == Committed("lost", detail="1")
    assert await a.dump() == before


@pytest.mark.parametrize("item", [step("s1"), inline("s1", "t1")], ids=["step", "inline"])
async def test_a_first_pass_whose_run_created_is_lost_writes_nothing(a: Consumer, item: Item) -> None:
    """It starts the run itself, so it has seen one event that it writes, and no more."""
    await a.start()
    (delivery,) = await a.read("workflows")
    await lose_the_last_event(a)
    before = await a.dump()

    answer = await a.world.deliveries.commit(
        delivery, RUN, "start", item, replayed_to=0, consumed=2, pass_token="p1", started_at=a.clock.now
    )

    assert answer == Committed("lost", detail="1")
    assert await a.dump() == before
