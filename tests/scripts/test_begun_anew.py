"""What of an earlier run of the same id reaches the one that has begun under it? Nothing.

A row goes by its TTL, and log and resumes with it; whatever has none stays until the reaper comes, and a worker may not
have run for days. And people delete keys by hand.
"""

from __future__ import annotations

import pytest

from redisworld import HookNotFound, MalformedMessage
from tests.scripts.driver import RUN, Attempt, Consumer, end, step
from tests.scripts.scenes.outputs import write

pytestmark = pytest.mark.anyio

TOKEN = "chat:42"


async def hold(worker: Consumer, token: str = TOKEN, run: str = RUN) -> str:
    """A hook of a running run, and what became of it."""
    return (await worker.world.events.hook_created(run, "h1", token, b"\xa1m")).outcome


async def row_goes(a: Consumer) -> None:
    """As by its TTL, or by somebody's DEL."""
    await a.redis.delete(a.key(), a.partition.log(RUN))


async def running_step(a: Consumer) -> Attempt:
    return await a.claim((await a.dispatch(step("s1")))["s1"])


@pytest.mark.parametrize("names", ["default", "default progress"])
async def test_chunks_of_an_earlier_run_are_not_read_and_hide_none(a: Consumer, names: str) -> None:
    """The first chunks of the new run were taken for a repeat: they were dropped without a word."""
    attempt = await running_step(a)
    for name in names.split():
        await write(a, attempt.item.token, name)
        await write(a, attempt.item.token, name, close=True)
    await a.complete(attempt)
    await a.finish()
    await row_goes(a)

    attempt = await running_step(a)
    await write(a, attempt.item.token, names.split()[-1])

    streams = [key.decode() for key in await a.redis.keys(f"{a.key()}:out:*")]
    assert streams == [a.partition.output(RUN, names.split()[-1])]
    [(_, chunk)] = await a.redis.xrange(streams[0])
    assert (chunk[b"number"], chunk[b"msg"]) == (b"1", b"\xa5hello")


async def test_what_a_stranger_has_written_beside_a_row_is_not_deleted(a: Consumer) -> None:
    await a.redis.set(a.partition.outs(RUN), "theirs")
    before = await a.dump()

    with pytest.raises(MalformedMessage, match=f"run:{RUN}:outs is a string"):
        await a.start()

    assert await a.dump() == before


async def test_a_resume_id_that_an_earlier_run_knew_is_new(a: Consumer) -> None:
    """Its payload was answered as received, and reached nobody."""
    await a.begin()
    await hold(a)
    await a.world.hooks.resume(TOKEN, b"\x01", resume_id="k1")
    await row_goes(a)
    await a.begin()
    await hold(a)

    await a.world.hooks.resume(TOKEN, b"\x01", resume_id="k1")

    assert await a.kinds() == ["run_created", "run_started", "hook_created", "hook_received"]
    await a.world.hooks.resume(TOKEN, b"\x01", resume_id="k1")
    assert (await a.row()).log_length == 4


async def test_a_token_of_an_earlier_run_that_is_held_again_does_not_expire(a: Consumer) -> None:
    """The release of the earlier hook, which has the same id, let go of the pointer of an open one."""
    await a.begin()
    await hold(a)
    await a.later_pass(end())
    await row_goes(a)
    await a.begin()
    await hold(a)

    assert await a.world.hooks.release(a.partition) == 0

    assert await a.redis.pttl(a.partition.hook(TOKEN)) == -1
    assert (await a.world.hooks.find(TOKEN)).run_id == RUN


async def test_a_token_of_an_earlier_run_is_let_go_though_its_hook_has_another_one_now(a: Consumer) -> None:
    """The new hook, which has the same id, took the release of the old token away: its pointer stayed for ever."""
    await a.begin()
    await hold(a, "old")
    await a.later_pass(end())
    await row_goes(a)
    await a.begin()
    await hold(a, "new")

    assert await a.world.hooks.release(a.partition) == 1

    assert await a.redis.pttl(a.partition.hook("old")) > 0
    assert await a.redis.pttl(a.partition.hook("new")) == -1


async def test_a_token_of_an_earlier_run_reaches_no_hook_of_another_token(a: Consumer) -> None:
    """Hooks have the ids that they had: the payload went to a hook whose token nobody has named."""
    for run in (RUN, "r2"):
        await a.begin(run)
    await hold(a, "theirs")
    await a.later_pass(end())
    await row_goes(a)
    await a.begin()
    assert await hold(a, "ours") == "created"

    with pytest.raises(HookNotFound):
        await a.world.hooks.find("theirs")
    with pytest.raises(HookNotFound):
        await a.world.hooks.resume("theirs", b"\x01")
    assert "hook_received" not in await a.kinds()
    assert await hold(a, "theirs", run="r2") == "created"
    assert (await a.world.hooks.resume("ours", b"\x01"))[0] == RUN


async def test_a_hook_of_which_no_token_is_known_any_more_is_reached_by_that_of_its_pointer(a: Consumer) -> None:
    """As after a DEL of the hash of tokens."""
    await a.begin()
    await hold(a)
    await a.redis.delete(a.partition.hooks(RUN))

    assert (await a.world.hooks.resume(TOKEN, b"\x01"))[0] == RUN


async def letter_of(a: Consumer) -> str:
    """A dead letter that holds the message of a step of the run."""
    delivery = (await a.dispatch(step("s1")))["s1"]
    await a.world.deliveries.bury(delivery, run_id=RUN, reason="unknown_name", detail="why")
    return [letter.name async for letter in a.world.dead.letters()][-1]


async def test_a_letter_of_an_earlier_run_is_not_sent_to_the_one_that_has_begun_anew(a: Consumer) -> None:
    """Step ids are those of the earlier run: its message would have started the step with the old input."""
    name = await letter_of(a)
    await a.world.cancel(RUN, terminate=True)
    await row_goes(a)
    a.clock.advance(1)
    await a.begin()
    before = await a.dump()

    with pytest.raises(MalformedMessage, match=f"an earlier run {RUN}, which is gone"):
        await a.world.dead.redrive(name)

    assert await a.dump() == before
    await a.world.dead.drop(name)


async def test_a_letter_that_its_run_waits_for_is_sent_again_whatever_the_clock_says(a: Consumer) -> None:
    """A replica that takes over may be behind: the letter then looks older than its run."""
    a.clock.advance(5_000)
    await a.begin("other")
    turn = await a.begin()
    await a.commit(turn, step("s1"))
    delivery = (await a.steps_delivered())["s1"]
    a.clock.advance(-4_000)
    await a.world.deliveries.bury(delivery, run_id=RUN, reason="unknown_name", detail="why")
    [letter] = [letter async for letter in a.world.dead.letters()]
    assert letter.at < (await a.row()).created_at

    assert await a.world.dead.redrive(letter.name)


async def test_a_step_whose_input_is_not_where_its_state_says_does_not_start_with_another(a: Consumer) -> None:
    """Somebody has deleted the log of a running run: what is written then stands where the input stood."""
    turn = await a.begin()
    await a.commit(turn, step("s1"))
    delivery = (await a.steps_delivered())["s1"]
    await a.redis.delete(a.partition.log(RUN))
    for number in range(4):
        await a.world.events.attr_set(RUN, {"a": str(number)})
    before = await a.written()

    answer = await a.claim(delivery)

    assert (answer.outcome, "the log does not have the input of step s1" in answer.claim.detail) == ("broken", True)
    assert await a.written() == before
