"""Scenes of claim_many and complete_many."""

from __future__ import annotations

from tests.scripts.driver import Attempt, Consumer, inline, step
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, scene
from tests.scripts.test_fences import put_step

CREATE = {"ensure": True, "input": b"\x90"}


async def owned(a: Consumer) -> Attempt:
    """A finished step whose message owns an inline step."""
    attempt = await put_step(a, "running")
    await a.complete(attempt)
    await a.commit(await a.load(attempt.delivery), inline("s2", "t2"))
    return attempt


async def inline_attempt(a: Consumer) -> Attempt:
    """An inline step in flight under the first message."""
    turn = await a.begin()
    await a.commit(turn, inline("s1", "t1"))
    item = a.claim_item(turn.delivery, step_id="s1", token="t1")
    return Attempt(turn.delivery, item, None)  # type: ignore[arg-type]  # the commit started it


async def first_of_two(a: Consumer) -> Attempt:
    """The first attempt of a step whose second one runs under the same message."""
    attempt = await put_step(a, "running")
    await a.claim(attempt.delivery)
    return attempt


async def of_a_group(a: Consumer) -> Attempt:
    """One of two steps that the body waits for together."""
    return await a.claim((await a.dispatch(step("s1", "g1"), step("s2", "g1")))["s1"])


# -- claim_many


@scene("claim_many", "started")
async def a_step_is_claimed(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    return lambda: a.claim(attempt.delivery)


@scene("claim_many", "started")
async def a_step_is_claimed_whose_input_the_caller_has(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    return lambda: a.claim(attempt.delivery, input=b"\x90")


@scene("claim_many", "started")
async def a_running_step_is_claimed_by_a_redelivery(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "running")
    taken = await b.take(attempt.delivery)
    return lambda: b.claim(taken)


@scene("claim_many", "started")
async def a_step_is_claimed_after_a_retry(a: Consumer, b: Consumer) -> Ask:
    first = await put_step(a, "running")
    a.clock.advance(10)
    await a.retry(first)
    delivery = await a.redelivered(first)
    return lambda: a.claim(delivery)


@scene("claim_many", "started")
async def a_missing_step_is_created_and_claimed(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "missing")
    return lambda: a.claim(attempt.delivery, **CREATE)


@scene("claim_many", "started")
async def a_running_step_is_claimed_by_a_duplicate_whose_first_is_gone(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(b, "running")
    second = await a.duplicate(attempt.delivery)
    await b.world.deliveries.settle(attempt.delivery)
    return lambda: a.claim(second)


@scene("claim_many", "skipped owned")
async def a_finished_step_is_claimed_whose_message_owns_an_inline_step(a: Consumer, b: Consumer) -> Ask:
    attempt = await owned(a)
    return lambda: a.claim(attempt.delivery)


@scene("claim_many", "skipped responsible")
async def a_finished_step_is_claimed_whose_message_continues_the_run(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "running")
    await a.complete(attempt)
    return lambda: a.claim(attempt.delivery)


@scene("claim_many", "skipped settled")
async def a_finished_step_is_claimed(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "completed")
    second = await a.duplicate(attempt.delivery)
    return lambda: a.claim(second)


@scene("claim_many", "gone completed")
async def a_step_of_a_run_that_has_ended_is_claimed(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await a.finish()
    return lambda: a.claim(attempt.delivery)


@scene("claim_many", "missing")
async def a_missing_step_is_claimed(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "missing")
    return lambda: a.claim(attempt.delivery)


@scene("claim_many", "stale")
async def a_step_is_claimed_under_a_lost_delivery(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await b.take(attempt.delivery)
    return lambda: a.claim(attempt.delivery)


@scene("claim_many", "stale")
async def a_running_step_is_claimed_by_a_duplicate(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "running")
    second = await b.duplicate(attempt.delivery)
    return lambda: b.claim(second)


@scene("claim_many", "full", again="gone failed")
async def a_step_of_a_run_with_a_full_log_is_claimed(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await a.world.events.hook_created("r1", "h1", "chat:42")
    a.limit_log(2)
    return lambda: a.claim(attempt.delivery)


@scene("claim_many", "exhausted responsible", again="skipped responsible")
async def a_step_without_attempts_left_is_claimed(a: Consumer, b: Consumer) -> Ask:
    first = await put_step(a, "running")
    await a.retry(first)
    second = await a.claim(await a.redelivered(first))
    return lambda: a.claim(second.delivery, attempts_allowed=2)


@scene("claim_many", "exhausted woken", again="skipped settled")
async def a_step_without_attempts_left_is_claimed_by_one_who_may_not_replay(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "running")
    return lambda: a.claim(attempt.delivery, attempts_allowed=1, may_replay=False)


@scene("claim_many", "exhausted settled", again="skipped settled")
async def a_step_of_a_group_without_attempts_left_is_claimed(a: Consumer, b: Consumer) -> Ask:
    attempt = await of_a_group(a)
    return lambda: a.claim(attempt.delivery, attempts_allowed=1)


@scene("claim_many", "too_early 1000")
async def a_step_is_claimed_before_its_retry_time(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "delayed")
    second = await a.duplicate(attempt.delivery)
    return lambda: a.claim(second)


@scene("claim_many", "not_found")
async def a_step_of_a_run_that_does_not_exist_is_claimed(a: Consumer, b: Consumer) -> Ask:
    delivery = await a.publish("s1")
    return lambda: a.claim(delivery, **CREATE)


@scene("claim_many", "broken")
async def a_step_is_claimed_whose_state_cannot_be_read(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await a.redis.hset(a.key(), "s:s1", "nonsense")
    return lambda: a.claim(attempt.delivery)


# -- complete_many

for _outcome in ("completed", "failed"):

    @scene("complete_many", f"{_outcome} responsible", name=f"a step {_outcome} and its message continues the run")
    async def _(a: Consumer, b: Consumer, outcome: str = _outcome) -> Ask:
        attempt = await put_step(a, "running")
        return lambda: a.complete(attempt, outcome)

    @scene(
        "complete_many",
        f"{_outcome} woken",
        again=f"{_outcome} settled",
        name=f"a step {_outcome} and its worker may not replay",
    )
    async def _(a: Consumer, b: Consumer, outcome: str = _outcome) -> Ask:
        attempt = await put_step(a, "running")
        return lambda: a.complete(attempt, outcome, may_replay=False)

    @scene("complete_many", f"{_outcome} settled", name=f"a step of a group {_outcome}")
    async def _(a: Consumer, b: Consumer, outcome: str = _outcome) -> Ask:
        attempt = await of_a_group(a)
        return lambda: a.complete(attempt, outcome)


@scene("complete_many", "completed responsible")
async def an_inline_step_completed(a: Consumer, b: Consumer) -> Ask:
    attempt = await inline_attempt(a)
    return lambda: a.complete(attempt)


@scene("complete_many", "completed settled")
async def a_step_completed_after_the_end_of_its_run(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "running")
    await a.finish()
    return lambda: a.complete(attempt)


_RETRIES: dict[str, dict[str, object]] = {
    "at once": {},
    "in another queue": {"target": "steps:gpu"},
    "after a delay": {"delay_ms": 1000},
    "with its worker": {"cause": "drain"},
}
for _how, _changes in _RETRIES.items():

    @scene("complete_many", "retrying", name=f"a step goes back {_how}")
    async def _(a: Consumer, b: Consumer, changes: dict[str, object] = _changes) -> Ask:
        attempt = await put_step(a, "running")
        return lambda: a.complete(attempt, "retrying", **changes)


@scene("complete_many", "retrying")
async def an_inline_step_goes_back(a: Consumer, b: Consumer) -> Ask:
    attempt = await inline_attempt(a)
    return lambda: a.retry(attempt, 50)


@scene("complete_many", "stale")
async def a_forgotten_attempt_completed(a: Consumer, b: Consumer) -> Ask:
    attempt = await first_of_two(a)
    return lambda: a.complete(attempt)


@scene("complete_many", "skipped responsible")
async def a_forgotten_attempt_completed_after_the_one_that_continues_the_run(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "running")
    await a.complete(await a.claim(attempt.delivery))
    return lambda: a.complete(attempt)


@scene("complete_many", "skipped settled")
async def a_forgotten_attempt_completed_after_another(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "running")
    await a.complete(await a.claim(attempt.delivery), may_replay=False)
    return lambda: a.complete(attempt)


@scene("complete_many", "skipped settled")
async def a_forgotten_attempt_completed_under_a_message_that_owns_an_inline_step(a: Consumer, b: Consumer) -> Ask:
    attempt = await owned(a)
    return lambda: a.complete(attempt, token="forgotten")


@scene("complete_many", "gone completed")
async def a_step_of_a_run_that_has_ended_wants_another_attempt(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "running")
    await a.finish()
    return lambda: a.retry(attempt)


@scene("complete_many", "gone completed")
async def a_step_completed_that_the_run_which_has_ended_never_started(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await a.finish()
    return lambda: a.complete(attempt)


@scene("complete_many", "invalid")
async def a_step_completed_that_nobody_has_claimed(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    return lambda: a.complete(attempt)


@scene("complete_many", "missing")
async def a_missing_step_completed(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "missing")
    return lambda: a.complete(attempt)


@scene("complete_many", "not_found")
async def a_step_of_a_run_that_does_not_exist_completed(a: Consumer, b: Consumer) -> Ask:
    delivery = await a.publish("s1")
    return lambda: a.complete(Attempt(delivery, a.claim_item(delivery), None))  # type: ignore[arg-type]


@scene("complete_many", "broken")
async def a_step_wants_another_attempt_in_a_stream_that_another_program_has_overwritten(
    a: Consumer, b: Consumer
) -> Ask:
    attempt = await put_step(a, "running")
    await overwrite(a, a.partition.steps("gpu"))
    return lambda: a.complete(attempt, "retrying", target="steps:gpu")
