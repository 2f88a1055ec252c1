"""Who continues a run? Always one message, never none (design section 8)."""

from __future__ import annotations

import pytest

from redisworld import events
from redisworld.world import Completion, Recorded
from tests.scripts.driver import RESULT, RUN, Consumer, Turn, end, inline, step

pytestmark = pytest.mark.anyio


async def owner(a: Consumer, *more: list[str | bytes | int]) -> tuple[Turn, str]:
    """A run whose first message owns the running inline step s1; the turn and the step's token."""
    turn, token = await a.begin(), a.world.next_token()
    answer = await a.commit(turn, *more, inline("s1", token))
    assert answer.inline
    return turn, token


async def complete_owned(a: Consumer, turn: Turn, token: str) -> Recorded:
    return await a.world.deliveries.complete(
        Completion(
            run_id=RUN,
            step_id="s1",
            token=token,
            outcome="completed",
            message_id=turn.message,
            delivery=turn.delivery,
            payload=RESULT,
        )
    )


# -- the last completer


async def test_a_completer_that_holds_its_delivery_becomes_responsible_and_keeps_it(a: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])

    assert (await a.complete(attempt)).detail == "responsible"
    assert await a.holds(attempt.delivery)
    assert (await a.row()).wake == "s1"
    assert await a.wakes() == []


async def test_a_completer_that_may_not_replay_publishes_one_wake_and_is_settled(a: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])

    assert (await a.complete(attempt, may_replay=False)).detail == "woken"

    (wake,) = await a.wakes()
    row = await a.row()
    assert (wake.run_id, wake.workflow_name, wake.reason, wake.requested_at) == (RUN, "wf", "step", a.clock.now)
    assert row.wake == wake.message_id
    assert await a.pending(attempt.delivery) is None


async def test_a_completer_that_lost_its_delivery_publishes_a_wake(a: Consumer, b: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])
    taken = await b.take(attempt.delivery)

    assert (await a.complete(attempt)).detail == "woken"
    assert len(await a.wakes()) == 1
    assert await b.holds(taken)
    assert (await b.claim(taken)).claim.detail == "settled"


async def test_a_completer_is_settled_while_another_message_is_responsible(a: Consumer) -> None:
    deliveries = await a.dispatch(step("s1"), step("s2"))
    first, second = [await a.claim(d) for d in deliveries.values()]
    await a.complete(first)

    assert (await a.complete(second)).detail == "settled"
    assert await a.pending(second.delivery) is None
    assert await a.wakes() == []
    row = await a.row()
    assert (row.wake, row.woken_at) == ("s1", row.log_length)


async def test_a_long_name_and_run_id_survive_in_a_wake(a: Consumer) -> None:
    run, workflow = "r" * 128, "w" * 300
    await a.world.create_run(run, workflow, b"\x90")

    await a.load((await a.read("workflows"))[0])
    await a.later_pass(step("s1", run=run), run=run)
    await a.world.cancel(run)

    (wake,) = await a.wakes()
    assert (wake.run_id, wake.workflow_name) == (run, workflow)


# -- commit


async def test_a_commit_clears_the_wake_and_settles_its_message(a: Consumer) -> None:
    turn = await a.begin()

    assert (await a.commit(turn, step("s1"))).outcome == "committed"
    row = await a.row()
    assert (row.wake, row.replayed_to) == ("", 2)
    assert await a.pending(turn.delivery) is None


async def test_an_event_after_the_load_makes_the_commit_answer_again_and_keep_its_message(a: Consumer) -> None:
    turn = await a.begin()
    await a.world.cancel(RUN)

    assert (await a.commit(turn, step("s1"))).outcome == "again"
    assert await a.holds(turn.delivery)
    assert ((await a.row()).wake, await a.wakes()) == ("start", [])

    assert (await a.commit(await a.load(turn.delivery))).outcome == "committed"
    assert await a.pending(turn.delivery) is None


async def test_a_commit_that_goes_again_sends_its_inline_step_through_the_queue(a: Consumer) -> None:
    turn = await a.begin()
    await a.world.cancel(RUN)

    answer = await a.commit(turn, inline("s1", "t1"))

    assert (answer.outcome, answer.inline) == ("again", False)
    assert (await a.claim((await a.steps_delivered())["s1"])).outcome == "started"


async def test_a_commit_is_lost_to_the_pass_that_came_first_and_writes_nothing(a: Consumer) -> None:
    turn = await a.begin()
    await a.later_pass(step("s1"))
    before = await a.written()

    answer = await a.commit(turn, step("s2"))

    assert (answer.outcome, answer.detail) == ("lost", "0")
    assert await a.written() == before
    assert await a.pending(turn.delivery) is None


async def test_a_commit_that_is_lost_by_the_responsible_message_goes_on(a: Consumer) -> None:
    turn = await a.begin()
    await a.world.cancel(RUN)
    await a.commit(turn, step("s1"))  # again: another pass by the same message

    answer = await a.commit(turn, step("s2"))

    assert (answer.outcome, answer.detail) == ("lost", "1")
    assert await a.holds(turn.delivery)


async def test_a_chunk_leaves_wake_message_and_replayed_to_alone(a: Consumer) -> None:
    turn = await a.begin()

    assert (await a.commit(turn, step("s1"), last=False)).outcome == "chunk"
    row = await a.row()
    assert (row.wake, row.replayed_to) == ("start", 0)
    assert await a.holds(turn.delivery)


async def test_a_pass_crashed_between_chunks_is_redone_with_a_longer_prefix(a: Consumer, b: Consumer) -> None:
    # given a chunk of a fan-out, one of whose steps completes, and a crash
    turn = await a.begin()
    await a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False)
    done = await a.complete(await a.claim((await a.steps_delivered())["s1"]))
    await a.world.cancel(RUN)

    # when another worker redoes the pass, seeing more
    redone = await b.load(await b.take(turn.delivery))
    answer = await b.commit(redone, *(step(f"s{n}", "g1") for n in (1, 2, 3)), ["seal", "g1", "all"])

    # then each step is there once, and the last two completions tell
    assert (done.detail, answer.outcome) == ("settled", "committed")
    assert (await a.kinds()).count("step_created") == 3
    dispatched = await b.steps_delivered()
    assert set(dispatched) == {"s3"}
    third = await b.complete(await b.claim(dispatched["s3"]))
    row = await a.row()
    assert (third.detail, row.wake, row.woken_at <= row.replayed_to) == ("settled", "", True)


async def test_the_slow_half_of_a_crashed_pass_is_lost_and_dispatches_nothing(a: Consumer, b: Consumer) -> None:
    turn = await a.begin()
    taken = await b.take(turn.delivery)
    await b.commit(await b.load(taken), step("s1"))
    await b.steps_delivered()

    assert (await a.commit(turn, step("s1"), step("s2"))).outcome == "lost"
    assert await b.steps_delivered() == {}


async def test_a_pass_without_its_delivery_still_commits_and_the_taker_is_settled(a: Consumer, b: Consumer) -> None:
    turn = await a.begin()
    taken = await b.take(turn.delivery)

    assert (await a.commit(turn, step("s1"), inline("s2", "t2"))).inline is False

    assert set(await b.steps_delivered()) == {"s1", "s2"}
    assert (await b.load(taken)).loaded.outcome == "settled"
    assert await b.pending(taken) is None


async def test_a_pass_without_its_delivery_and_with_news_leaves_the_taker_responsible(a: Consumer, b: Consumer) -> None:
    turn = await a.begin()
    taken = await b.take(turn.delivery)
    await a.world.cancel(RUN)

    assert (await a.commit(turn, step("s1"))).outcome == "committed"
    assert (await a.row()).wake == "start"
    assert (await b.load(taken)).loaded.outcome == "loaded"


@pytest.mark.parametrize("op", ["assign", "step"])
@pytest.mark.parametrize("last_chunk_too", [False, True], ids=["one_chunk", "early_chunk"])
async def test_a_step_that_ended_unseen_and_is_seen_now_makes_the_commit_go_again(
    a: Consumer, op: str, last_chunk_too: bool
) -> None:
    # given a step nobody observes, that ends after the load of the pass that is going to await it
    d = await a.dispatch(step("s0"), step("s1", "-"))
    await a.complete(await a.claim(d["s0"]))
    turn = await a.load(d["s0"])
    await a.complete(await a.claim(d["s1"]))

    # when the pass moves it to where its end is seen
    item: list[str | bytes | int] = ["assign", "s1", ""] if op == "assign" else step("s1")
    if last_chunk_too:
        await a.commit(turn, item, last=False)
        answer = await a.commit(turn)
    else:
        answer = await a.commit(turn, item)

    # then the pass goes on
    assert answer.outcome == "again"


# -- owners of inline steps


async def test_an_inline_step_makes_the_message_its_owner(a: Consumer) -> None:
    turn, _ = await owner(a)

    state = await a.step("s1")
    assert (state.status, state.attempt, state.message_id) == ("running", 1, "start")
    assert await a.redis.hget(a.key(), "own:start") == b"s1"
    assert (await a.row()).wake == ""
    assert await a.holds(turn.delivery)


async def test_an_inline_step_without_a_held_delivery_is_queued(a: Consumer, b: Consumer) -> None:
    turn = await a.begin()
    await b.take(turn.delivery)

    assert (await a.commit(turn, inline("s1", "t1"))).inline is False
    assert (await a.step("s1")).status == "pending"
    assert set(await b.steps_delivered()) == {"s1"}


async def test_the_owner_that_completes_its_step_becomes_responsible(a: Consumer) -> None:
    turn, token = await owner(a)

    assert (await complete_owned(a, turn, token)).detail == "responsible"
    assert (await a.row()).wake == "start"
    assert await a.redis.hget(a.key(), "own:start") is None
    assert (await a.commit(await a.load(turn.delivery), end())).outcome == "ended"


async def test_an_event_during_an_inline_step_publishes_its_own_wake_and_the_owner_is_settled(a: Consumer) -> None:
    turn, token = await owner(a)
    await a.world.cancel(RUN)

    assert len(await a.wakes()) == 1
    assert (await complete_owned(a, turn, token)).detail == "settled"
    assert await a.pending(turn.delivery) is None


async def test_a_redelivered_owner_is_told_its_step_and_recovers_it(a: Consumer, b: Consumer) -> None:
    turn, token = await owner(a)
    taken = await b.take(turn.delivery)

    loaded = (await b.load(taken)).loaded
    recovered = await b.claim(taken, step_id="s1")

    assert (loaded.outcome, loaded.owned) == ("loaded", "s1")
    assert (recovered.outcome, recovered.claim.attempt) == ("started", 2)
    assert (await complete_owned(a, turn, token)).outcome == "stale"
    assert (await b.complete(recovered)).detail == "responsible"


async def test_an_owner_redelivered_while_another_message_is_responsible_still_recovers_its_step(
    a: Consumer, b: Consumer
) -> None:
    turn, _ = await owner(a)
    await a.world.cancel(RUN)
    taken = await b.take(turn.delivery)

    assert (await b.load(taken)).loaded.owned == "s1"
    assert (await b.claim(taken, step_id="s1")).claim.attempt == 2


async def test_another_message_does_not_recover_an_owned_step(a: Consumer, b: Consumer) -> None:
    turn, _ = await owner(a)
    await a.world.cancel(RUN)
    (wake,) = await b.read("workflows")

    assert (await b.load(wake)).loaded.owned == ""
    assert (await b.claim(await b.publish("s1"))).outcome == "stale"
    assert await a.holds(turn.delivery)


async def test_an_owned_step_that_retries_becomes_a_queued_message_and_its_owner_is_settled(a: Consumer) -> None:
    turn, token = await owner(a)
    attempt = await a.claim(turn.delivery, step_id="s1", token=token)

    assert (await a.retry(attempt)).outcome == "retrying"
    assert await a.pending(turn.delivery) is None
    assert await a.redis.hget(a.key(), "own:start") is None
    assert (await a.claim((await a.steps_delivered())["s1"])).claim.attempt == 2


async def test_an_owner_is_not_settled_by_a_forgotten_pass_of_the_same_worker(a: Consumer, b: Consumer) -> None:
    # given a worker that lost its delivery and got it again, and so has two passes under one message
    forgotten = await a.begin()
    await b.take(forgotten.delivery)
    current = await a.load(await a.take(forgotten.delivery))
    assert (await a.commit(current, inline("s1", a.world.next_token()))).inline

    # when the forgotten one commits too
    assert (await a.commit(forgotten, inline("s1", a.world.next_token()))).outcome == "lost"

    # then the message is still there to recover the inline step after a crash
    taken = await b.take(current.delivery)
    assert await b.holds(taken)
    assert (await b.claim(taken, step_id="s1")).claim.attempt == 2


async def test_an_owner_is_not_settled_by_a_forgotten_attempt_of_the_same_worker(a: Consumer, b: Consumer) -> None:
    # given a worker that lost its delivery and got it again, and so runs one step twice
    forgotten = await a.claim((await a.dispatch(step("s1")))["s1"])
    await b.take(forgotten.delivery)
    current = await a.claim(await a.take(forgotten.delivery))
    assert (await a.complete(current)).detail == "responsible"
    await a.commit(await a.load(current.delivery), inline("s2", a.world.next_token()))

    # when the forgotten attempt reports too
    assert (await a.complete(forgotten)).outcome == "skipped"

    # then the message is still there to recover the inline step after a crash
    taken = await b.take(current.delivery)
    assert await b.holds(taken)
    assert (await b.claim(taken, step_id="s2")).claim.attempt == 2


# -- redelivered step messages


async def test_a_redelivered_step_message_that_is_responsible_replays(a: Consumer, b: Consumer) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])
    await a.complete(attempt)

    again = await b.claim(await b.take(attempt.delivery))

    assert (again.outcome, again.claim.detail) == ("skipped", "responsible")
    assert (await b.load(again.delivery)).loaded.outcome == "loaded"


async def test_a_redelivered_step_message_of_no_consequence_is_settled(a: Consumer, b: Consumer) -> None:
    d = await a.dispatch(step("s1", "g1"), step("s2", "g1"))
    attempt = await a.claim(d["s1"])
    second = await b.duplicate(d["s1"])
    await a.complete(attempt)

    again = await b.claim(second)

    assert (again.outcome, again.claim.detail) == ("skipped", "settled")
    assert await b.pending(second) is None


async def test_a_redelivered_step_message_that_owns_an_inline_step_says_so(a: Consumer, b: Consumer) -> None:
    # given a step message that became responsible and whose pass started an inline step
    first = await a.claim((await a.dispatch(step("s1")))["s1"])
    await a.complete(first)
    await a.commit(await a.load(first.delivery), inline("s2", a.world.next_token()))

    again = await b.claim(await b.take(first.delivery))

    assert (again.outcome, again.claim.detail, again.claim.step_id) == ("skipped", "owned", "s2")
    assert (await b.claim(again.delivery, step_id="s2")).claim.attempt == 2


async def test_an_exhausted_owned_step_leaves_its_owner_responsible_and_owning_nothing(
    a: Consumer, b: Consumer
) -> None:
    turn, _ = await owner(a)
    taken = await b.take(turn.delivery)

    answer = await b.claim(taken, step_id="s1", attempts_allowed=1)

    assert (answer.outcome, answer.claim.detail) == ("exhausted", "responsible")
    loaded = (await b.load(taken)).loaded
    assert (loaded.owned, events.parse(loaded.elements[-1]).kind) == ("", "step_failed")


# -- the invariant: an open run never has news without a living wake


@pytest.mark.parametrize("loser", ["completes", "retries"])
async def test_a_lease_lost_around_an_outcome_never_leaves_the_run_without_a_message(
    a: Consumer, b: Consumer, loser: str
) -> None:
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])
    taken = await b.take(attempt.delivery)
    await (a.complete(attempt) if loser == "completes" else a.retry(attempt))

    again = await b.claim(taken)
    if loser == "completes":
        assert (again.outcome, again.claim.detail) == ("skipped", "settled")
        assert len(await a.wakes()) == 1
    else:
        assert (again.outcome, again.claim.attempt) == ("started", 2)
        (duplicate,) = (await a.steps_delivered()).values()
        assert (await a.claim(duplicate)).outcome == "stale"


async def test_a_completer_whose_message_is_responsible_but_that_may_not_replay_is_not_settled_away(
    a: Consumer,
) -> None:
    # given a first message that is responsible (loaded, not committed) and a step it created in a chunk
    turn = await a.begin()
    await a.commit(turn, step("s1"), last=False)
    attempt = await a.claim((await a.steps_delivered())["s1"], message_id="s1")

    # when the step completes elsewhere, where nobody may replay
    record = await a.complete(attempt, may_replay=False)

    # then the first message is still there for the run
    assert record.detail == "settled"
    assert (await a.row()).wake == "start"
    assert await a.holds(turn.delivery)


async def test_a_load_makes_a_message_responsible_only_while_its_caller_holds_it(a: Consumer) -> None:
    # given a run with news and no wake, as a repair finds it, and a message that is settled already
    attempt = await a.claim((await a.dispatch(step("s1")))["s1"])
    await a.complete(attempt)
    await a.redis.hset(a.key(), "wake", "")
    await a.world.deliveries.settle(attempt.delivery)

    await a.load(attempt.delivery)

    assert (await a.row()).wake == ""
