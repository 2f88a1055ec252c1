"""What does a run that waits for somebody outside get, and what does each who resumes it hear?

The consumers run in this process, one delivery at a time. docs/hooks.md tells each of these in its table.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
import redis

from redisworld import HookNotFound, InvalidInput, ResumeConflict, RunGone, Status
from redisworld.events import EventKind
from tests.apps import hook_app
from tests.chaos import invariants
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers, connected

pytestmark = pytest.mark.anyio

TOKEN = "chat:42"


@pytest.fixture
async def at(connect: Connect) -> Consumers:
    async with connect(app=hook_app.wf) as consumers:
        yield consumers


async def waiting(consumers: Consumers, workflow: str, *args: object, run_id: str = "r1") -> None:
    """A run that waits at its hook."""
    await consumers.world.start(hook_app.wf.workflows[workflow], *args, run_id=run_id)
    await consumers.drain(later=False)


async def result(consumers: Consumers, run_id: str = "r1") -> object:
    """Process what is queued; what the run then has returned."""
    await consumers.drain(later=False)
    return await consumers.world.run(run_id).result(timeout=5)


# -- payloads


@pytest.mark.parametrize("payload", [hook_app.Approval("kim"), {"by": "kim"}, {"by": "kim", "ok": True}])
async def test_a_payload_arrives_as_the_type_of_its_hook_whoever_sent_it(at: Consumers, payload: object) -> None:
    await waiting(at, "approved", TOKEN)

    run = await at.world.resume(TOKEN, payload)

    assert run.run_id == "r1"
    assert await result(at) == ["Approval", "kim", True]


async def test_a_payload_that_does_not_fit_is_the_bodys_to_catch_and_the_next_one_is_taken(at: Consumers) -> None:
    await waiting(at, "strict", TOKEN)

    for payload in ("many", 7):
        await at.world.resume(TOKEN, payload)

    refused, taken = await result(at)
    assert refused.startswith("the payload of hook 'chat:42': does not fit int")
    assert taken == "7"


async def test_five_hundred_payloads_arrive_in_order_each_once(at: Consumers) -> None:
    await waiting(at, "all_of", TOKEN, 500)

    for number in range(500):
        await at.world.resume(TOKEN, number)
        if number % 100 == 50:  # and the body takes some of them meanwhile
            await at.drain(later=False)

    assert await result(at) == list(range(500))
    assert Counter(at.kinds("r1"))[EventKind.HOOK_RECEIVED] == 500


async def test_a_new_hook_under_the_same_token_of_the_same_run_gets_the_next_payload(at: Consumers) -> None:
    await waiting(at, "again", TOKEN, 3)

    for payload in ("a", "b", "c"):
        await at.world.resume(TOKEN, payload)
        await at.drain(later=False)

    assert await result(at) == ["a", "b", "c"]


async def test_a_payload_that_comes_first_wins_against_the_timer_and_the_timer_is_cancelled(at: Consumers) -> None:
    await waiting(at, "raced", TOKEN, 3600)

    await at.world.resume(TOKEN, "hello")

    assert await result(at) == "got hello"
    assert at.kinds("r1").count(EventKind.WAIT_CANCELLED) + at.raw.zcard(at.partition.delayed) == 1


async def test_a_timer_that_comes_first_ends_the_wait_and_the_token_is_free(at: Consumers) -> None:
    await waiting(at, "raced", TOKEN, 3600)

    await at.drain(later=True)

    assert await at.world.run("r1").result(timeout=5) == "nobody came"
    with pytest.raises(RunGone):
        await at.world.resume(TOKEN, "too late")
    await waiting(at, "told_apart", TOKEN, run_id="r2")
    assert (await at.world.hook(TOKEN)).run_id == "r2"


async def test_a_payload_and_a_due_timer_at_the_same_time_give_the_one_the_log_has_first(at: Consumers) -> None:
    await waiting(at, "raced", TOKEN, 3600)
    due = int(at.raw.zrange(at.partition.delayed, 0, 0, withscores=True)[0][1])
    at.world.clock = lambda: due

    await at.world.resume(TOKEN, "hello")
    await at.world.upkeep.promote(at.partition)

    assert await result(at) == "got hello"
    assert at.kinds("r1").index(EventKind.HOOK_RECEIVED) < at.kinds("r1").index(EventKind.WAIT_COMPLETED)


# -- tokens (A32)


async def test_a_token_goes_to_the_next_run_when_its_run_completes_and_only_its_own_payloads_with_it(
    at: Consumers,
) -> None:
    await waiting(at, "told_apart", TOKEN, run_id="r1")
    await at.world.resume(TOKEN, "one")
    assert await result(at, "r1") == "got one"

    await waiting(at, "told_apart", TOKEN, run_id="r2")
    assert (await at.world.hook(TOKEN)).received == 0
    await at.world.resume(TOKEN, "two")

    assert await result(at, "r2") == "got two"


async def test_a_token_that_another_run_holds_is_a_conflict_that_names_that_run(at: Consumers) -> None:
    await waiting(at, "told_apart", TOKEN, run_id="r2")
    await waiting(at, "told_apart", TOKEN, run_id="r3")

    assert await result(at, "r3") == "held by r2"
    assert (await at.world.hook(TOKEN)).run_id == "r2"


async def test_get_conflict_asks_for_the_token_and_waits_for_no_payload(at: Consumers) -> None:
    await waiting(at, "told_apart", TOKEN, run_id="r1")
    await waiting(at, "holder_of", TOKEN, run_id="r2")
    await waiting(at, "holder_of", "free", run_id="r3")

    assert [await result(at, "r2"), await result(at, "r3")] == ["r1", None]


@pytest.mark.parametrize("how", ["cancelled", "terminated", "failed"])
async def test_a_token_is_free_at_once_when_its_run_ends_without_a_result(at: Consumers, how: str) -> None:
    await waiting(at, "broken", TOKEN, run_id="r2")
    run = at.world.run("r2")
    if how == "cancelled":
        await run.cancel()
    elif how == "terminated":
        await run.terminate()
    else:
        await at.world.resume(TOKEN, "no luck")
    await at.drain(later=False)
    assert await run.status() is (Status.FAILED if how == "failed" else Status.CANCELLED)

    await waiting(at, "told_apart", TOKEN, run_id="r4")
    await at.world.resume(TOKEN, "hello")

    assert await result(at, "r4") == "got hello"


async def test_a_hundred_times_two_replays_that_create_the_hook_at_once_never_conflict(
    at: Consumers, redis_url: str, raw: redis.Redis
) -> None:
    """A wake that is delivered twice, to two processes."""
    async with connected(redis_url, raw, app=hook_app.wf) as other:
        for number in range(100):
            run_id, token = f"r{number}", f"token:{number}"
            run = await at.world.start(hook_app.told_apart, token, run_id=run_id)
            [wake] = at.queued("workflows")
            at.put(wake, kind="workflows")
            first, second = await at.take("workflows"), await other.take("workflows")
            assert first is not None
            assert second is not None

            await asyncio.gather(at.process(first), other.process(second))

            assert at.kinds(run_id).count(EventKind.HOOK_CREATED) == 1
            assert EventKind.HOOK_CONFLICT not in at.kinds(run_id)
            await at.world.resume(token, "hello")
            await asyncio.gather(at.drain(later=False), other.drain(later=False))
            assert await run.result(timeout=5) == "got hello"
    invariants.check(raw, hook_app.wf)


# -- resuming


async def test_a_resume_id_counts_once_and_its_repeats_succeed_also_after_the_end(at: Consumers) -> None:
    await waiting(at, "all_of", TOKEN, 2)

    for _ in range(3):
        await at.world.resume(TOKEN, 1, resume_id="mail-7")
    await at.world.resume(TOKEN, 2, resume_id="mail-8")
    assert await result(at) == [1, 2]

    assert (await at.world.resume(TOKEN, 2, resume_id="mail-8")).run_id == "r1"
    assert at.kinds("r1").count(EventKind.HOOK_RECEIVED) == 2


async def test_a_repeat_finds_its_run_until_two_more_have_claimed_the_token_and_is_new_then(at: Consumers) -> None:
    await waiting(at, "all_of", TOKEN, 1, run_id="r1")
    await at.world.resume(TOKEN, 1, resume_id="mail-7")
    assert await result(at, "r1") == [1]

    await waiting(at, "all_of", TOKEN, 1, run_id="r2")
    assert (await at.world.resume(TOKEN, 1, resume_id="mail-7")).run_id == "r1"
    await at.world.resume(TOKEN, 2, resume_id="mail-8")
    assert await result(at, "r2") == [2]

    await waiting(at, "all_of", TOKEN, 1, run_id="r3")
    assert (await at.world.resume(TOKEN, 1, resume_id="mail-7")).run_id == "r3"
    assert await result(at, "r3") == [1]


async def test_a_resume_id_with_another_payload_is_refused(at: Consumers) -> None:
    await waiting(at, "all_of", TOKEN, 2)
    await at.world.resume(TOKEN, 1, resume_id="mail-7")

    with pytest.raises(ResumeConflict, match="resume id 'mail-7' was used with another payload or token"):
        await at.world.resume(TOKEN, 2, resume_id="mail-7")


async def test_an_unknown_token_is_not_found_and_stores_nothing(at: Consumers) -> None:
    before = sorted(at.raw.keys())

    with pytest.raises(HookNotFound, match="no hook holds the token 'nobody'"):
        await at.world.resume("nobody", 1)
    with pytest.raises(HookNotFound):
        await at.world.hook("nobody")

    assert sorted(at.raw.keys()) == before


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "x" * 1000])
async def test_a_token_that_cannot_be_one_is_refused(at: Consumers, token: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be used"):
        await at.world.resume(token, 1)
    with pytest.raises(InvalidInput, match="cannot be used"):
        await at.world.hook(token)


async def test_a_resume_after_the_end_of_the_run_says_that_it_has_ended(at: Consumers) -> None:
    await waiting(at, "told_apart", TOKEN)
    await at.world.resume(TOKEN, "hello")
    assert await result(at) == "got hello"

    with pytest.raises(RunGone, match="the run 'r1' of hook token 'chat:42' has ended"):
        await at.world.resume(TOKEN, "again")
    with pytest.raises(HookNotFound):
        await at.world.hook(TOKEN)


async def test_a_resume_after_the_retention_loop_has_tidied_up_is_not_found(at: Consumers) -> None:
    await waiting(at, "told_apart", TOKEN)
    await at.world.resume(TOKEN, "hello")
    assert await result(at) == "got hello"
    assert await at.world.hooks.release(at.partition) == 1
    at.raw.delete(at.partition.hook(TOKEN))  # its time to live is over

    with pytest.raises(HookNotFound):
        await at.world.resume(TOKEN, "again")


async def test_what_comes_before_the_body_asks_again_is_kept(at: Consumers) -> None:
    await waiting(at, "all_of", TOKEN, 2)
    for number in (1, 2):
        await at.world.resume(TOKEN, number)

    assert await result(at) == [1, 2]


async def test_a_hook_without_a_token_gets_one_of_its_own(at: Consumers) -> None:
    for run_id in ("r1", "r2"):
        await waiting(at, "noted", run_id=run_id)
    tokens = [next(e.detail for e in at.log(run) if e.kind is EventKind.HOOK_CREATED) for run in ("r1", "r2")]
    assert len({*tokens}) == 2

    await at.world.resume(tokens[1], "hello")

    assert await result(at, "r2") == "hello"


# -- looking


async def test_a_hook_tells_its_run_its_metadata_and_how_many_payloads_it_was_handed(at: Consumers) -> None:
    await waiting(at, "all_of", "other", 9, run_id="r2")
    await waiting(at, "approved", TOKEN)
    await at.world.resume("other", 1)

    found = await at.world.hook(TOKEN)

    [created] = [event for event in at.log("r1") if event.kind is EventKind.HOOK_CREATED]
    assert (found.token, found.run_id, found.hook_id) == (TOKEN, "r1", created.id)
    assert (found.created_at, found.metadata, found.received) == (created.at, {"asks": "kim"}, 0)
    assert (await at.world.hook("other")).received == 1


async def test_a_hook_is_found_in_a_log_of_many_pages(connect: Connect) -> None:
    async with connect(app=hook_app.wf, log_page=2) as consumers:
        await waiting(consumers, "all_of", TOKEN, 9)
        for number in range(7):
            await consumers.world.resume(TOKEN, number)

        assert (await consumers.world.hook(TOKEN)).received == 7


async def test_a_hook_that_is_disposed_of_takes_no_more_while_its_run_goes_on(at: Consumers) -> None:
    await waiting(at, "moves_on", TOKEN, "next")
    await at.world.resume(TOKEN, "hello", resume_id="mail-7")
    await at.drain(later=False)

    with pytest.raises(HookNotFound):
        await at.world.resume(TOKEN, "late")
    with pytest.raises(HookNotFound):
        await at.world.hook(TOKEN)
    assert (await at.world.resume(TOKEN, "hello", resume_id="mail-7")).run_id == "r1"  # a repeat still succeeds

    await waiting(at, "told_apart", TOKEN, run_id="r2")  # and its token is free
    await at.world.resume("next", "bye")
    assert await result(at) == ["hello", "bye"]
    assert (await at.world.hook(TOKEN)).run_id == "r2"


async def test_what_the_body_has_not_taken_when_it_disposes_of_the_hook_is_dropped(at: Consumers) -> None:
    await waiting(at, "again", TOKEN, 2)
    for payload in ("a", "dropped"):
        await at.world.resume(TOKEN, payload)
    await at.drain(later=False)

    await at.world.resume(TOKEN, "b")

    assert await result(at) == ["a", "b"]


async def test_a_second_living_hook_of_the_same_run_conflicts_with_the_first(at: Consumers) -> None:
    await waiting(at, "twice", TOKEN)

    assert await result(at) == "None, r1"
