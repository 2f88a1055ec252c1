"""Who holds a hook token, and does a payload reach its hook once, whoever asks how often?"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from consumers.retention import Retention
from redisworld import HookNotFound, InvalidInput, MalformedMessage, ResumeConflict, RunGone
from redisworld.errors import ErrorInfo
from redisworld.keys import Partition
from redisworld.observe import RedisCalled, observing
from redisworld.world import Answer
from tests.scripts.driver import RUN, Consumer, end, step

pytestmark = pytest.mark.anyio

TOKEN = "chat:42"


async def hold(worker: Consumer, run: str = RUN, hook: str = "h1", token: str = TOKEN) -> Answer:
    """A hook of a running run, as a foreign runtime creates it."""
    return await worker.world.events.hook_created(run, hook, token, b"\xa1m")


async def test_a_hook_is_created_and_receives_a_payload_that_wakes_its_run(a: Consumer) -> None:
    turn = await a.begin()
    await a.commit(turn, step("s1"))

    assert await hold(a) == Answer("created")
    assert await a.world.hooks.resume(TOKEN, b"\x01") == (RUN, 5)

    created, received = (await a.log())[-2:]
    assert (created.kind, created.id, created.detail, created.payload) == ("hook_created", "h1", TOKEN, b"\xa1m")
    assert (received.kind, received.id, received.payload) == ("hook_received", "h1", b"\x01")
    assert [wake.reason for wake in await a.wakes()] == ["hook"]
    assert ((await a.row()).woken_at, (await a.row()).wake) == (5, "w5")


async def test_a_pass_creates_a_hook_whose_token_it_has_claimed(a: Consumer) -> None:
    turn = await a.begin()
    holder = await a.world.hooks.claim(RUN, "h1", TOKEN)

    answer = await a.commit(turn, ["hook", "h1", TOKEN, b"\xc0", holder, 0])

    assert (holder, answer.outcome) == ("", "committed")
    assert (await a.kinds())[-1] == "hook_created"
    assert (await a.world.hooks.find(TOKEN)).hook_id == "h1"


async def test_a_pass_cannot_create_a_hook_whose_token_was_not_claimed(a: Consumer) -> None:
    turn = await a.begin()
    before = await a.dump()

    with pytest.raises(MalformedMessage, match="the token of hook h1 was not claimed"):
        await a.commit(turn, ["hook", "h1", TOKEN, b"\xc0", "", 0])
    assert await a.dump() == before


async def test_a_token_of_a_living_hook_makes_a_conflict_that_names_its_run(a: Consumer) -> None:
    for run in ("r1", "r2"):
        await a.begin(run)
    await hold(a, "r1")

    assert await hold(a, "r2") == Answer("hook_conflict", "r1")

    conflict = (await a.log("r2"))[-1]
    assert (conflict.kind, conflict.id, conflict.detail) == ("hook_conflict", "h1", "r1")
    assert await a.world.hooks.resume(TOKEN, b"\x01") == ("r1", 4)
    assert await hold(a, "r2") == Answer("conflict")


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "disposed", "reaped"])
async def test_a_token_is_free_at_once_when_its_hook_is_over(a: Consumer, how: str) -> None:
    # given a hook of a run that has ended, or that disposed of it
    for run in ("r1", "r2"):
        await a.begin(run)
    await hold(a, "r1")
    if how == "disposed":
        assert await a.world.events.hook_disposed("r1", "h1") == Answer("disposed")
    elif how == "cancelled":
        await a.world.cancel("r1", terminate=True)
    else:
        await a.world.events.run_failed("r1", ErrorInfo("Oops", ""))
    if how == "reaped":
        a.clock.advance(a.world.settings.retention_ms)
        assert await a.world.upkeep.reap(a.partition, 10) == 1

    # then nobody can resume it, and another run takes the token
    with pytest.raises((HookNotFound, RunGone)):
        await a.world.hooks.resume(TOKEN, b"\x01")
    assert await hold(a, "r2") == Answer("created")
    assert (await a.world.hooks.resume(TOKEN, b"\x02"))[0] == "r2"


async def test_a_hook_disposed_of_in_the_same_pass_gives_its_token_to_the_next(a: Consumer) -> None:
    turn = await a.begin()
    await hold(a)

    holder = await a.world.hooks.claim(RUN, "h2", TOKEN, disposing=frozenset({"h1"}))
    await a.commit(turn, ["dispose", "h1"], ["hook", "h2", TOKEN, b"\xc0", holder, 0])

    assert (await a.kinds())[-2:] == ["hook_disposed", "hook_created"]
    assert (await a.world.hooks.find(TOKEN)).hook_id == "h2"


async def test_a_resume_that_comes_while_a_token_changes_hooks_goes_to_the_new_one(a: Consumer, b: Consumer) -> None:
    """The pointer names the new hook before the pass that disposes of the old one is committed."""
    turn = await a.begin()
    await hold(a)
    holder = await a.world.hooks.claim(RUN, "h2", TOKEN, disposing=frozenset({"h1"}))
    refused = asyncio.Event()

    def watch(seen: object) -> None:
        if isinstance(seen, RedisCalled) and seen.op == "resume_hook":
            refused.set()

    with observing(watch):
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(b.world.hooks.resume(TOKEN, b"\x02"))
            await refused.wait()
            await a.commit(turn, ["dispose", "h1"], ["hook", "h2", TOKEN, b"\xc0", holder, 0])

    received = (await a.log())[-1]
    assert (received.kind, received.id, received.payload) == ("hook_received", "h2", b"\x02")


async def test_two_passes_that_create_the_same_hook_at_once_never_conflict(a: Consumer, b: Consumer) -> None:
    await a.begin()
    for number in range(30):
        hook, token = f"h{number}", f"{TOKEN}:{number}"
        answers = await asyncio.gather(hold(a, RUN, hook, token), hold(b, RUN, hook, token))
        assert sorted(answer.outcome for answer in answers) == ["conflict", "created"]
    assert (await a.kinds()).count("hook_created") == 30


async def test_of_many_runs_that_claim_one_token_at_once_one_gets_it(a: Consumer, b: Consumer) -> None:
    runs = [f"r{number}" for number in range(10)]
    for run in runs:
        await a.begin(run)

    answers = await asyncio.gather(*(hold((a, b)[n % 2], run) for n, run in enumerate(runs)))

    assert sorted(answer.outcome for answer in answers) == ["created", *["hook_conflict"] * 9]


async def test_a_claimer_that_died_before_its_commit_holds_the_token_until_its_run_ends(a: Consumer) -> None:
    for run in ("r1", "r2"):
        await a.begin(run)
    await a.world.hooks.claim("r1", "h1", TOKEN)
    with pytest.raises(HookNotFound):
        await a.world.hooks.resume(TOKEN, b"\x01")  # it was not created yet

    assert await hold(a, "r2") == Answer("hook_conflict", "r1")
    await a.world.cancel("r1", terminate=True)
    assert await hold(a, "r2") == Answer("conflict")
    await a.begin("r3")
    assert await hold(a, "r3") == Answer("created")


# -- resume ids


async def test_a_resume_asked_again_under_its_id_is_the_first_one(a: Consumer) -> None:
    await a.begin()
    await hold(a)

    first = await a.world.hooks.resume(TOKEN, b"\x01", resume_id="k1")
    before = await a.dump()

    assert [await a.world.hooks.resume(TOKEN, b"\x01", resume_id="k1") for _ in range(3)] == [first] * 3
    assert await a.dump() == before


@pytest.mark.parametrize("after", ["disposed", "ended", "released", "reused", "reused by another run"])
async def test_a_resume_asked_again_is_answered_whatever_became_of_its_hook(a: Consumer, after: str) -> None:
    await a.begin()
    await a.begin("r2")
    await hold(a)
    first = await a.world.hooks.resume(TOKEN, b"\x01", resume_id="k1")
    if after == "ended":
        await a.world.cancel(RUN, terminate=True)
    else:
        await a.world.events.hook_disposed(RUN, "h1")
    if after == "released":
        assert await a.world.hooks.release(a.partition) == 1
    elif after == "reused":
        assert await hold(a, RUN, "h2") == Answer("created")
    elif after == "reused by another run":
        assert await hold(a, "r2") == Answer("created")
    before = await a.dump()

    assert await a.world.hooks.resume(TOKEN, b"\x01", resume_id="k1") == first
    assert await a.dump() == before


@pytest.mark.parametrize(("token", "payload"), [(TOKEN, b"\x02"), ("other", b"\x01")], ids=["payload", "token"])
async def test_a_resume_id_used_for_something_else_is_a_conflict(a: Consumer, token: str, payload: bytes) -> None:
    await a.begin()
    await hold(a)
    await hold(a, RUN, "h2", "other")
    await a.world.hooks.resume(TOKEN, b"\x01", resume_id="k1")
    before = await a.dump()

    with pytest.raises(ResumeConflict, match="'k1'"):
        await a.world.hooks.resume(token, payload, resume_id="k1")
    assert await a.dump() == before


async def test_payloads_arrive_in_the_order_they_were_accepted(a: Consumer, b: Consumer) -> None:
    await a.begin()
    await hold(a)

    answers = await asyncio.gather(*((a, b)[n % 2].world.hooks.resume(TOKEN, bytes([n])) for n in range(20)))

    log = await a.log()
    assert sorted(number for _, number in answers) == list(range(4, 24))
    assert {log[number - 1].payload for _, number in answers} == {bytes([n]) for n in range(20)}
    assert len(await a.wakes()) == 0  # the first message of the run is responsible and will see them


async def test_an_unknown_token_stores_nothing(a: Consumer) -> None:
    await a.begin()
    before = await a.dump()
    with pytest.raises(HookNotFound, match="'nobody'"):
        await a.world.hooks.resume("nobody", b"\x01")
    assert await a.dump() == before


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "x" * 257])
async def test_a_token_that_cannot_be_one_is_refused_by_name(a: Consumer, token: str) -> None:
    await a.begin()
    before = await a.dump()
    with pytest.raises(InvalidInput, match="hook token"):
        await hold(a, RUN, "h1", token)
    with pytest.raises(InvalidInput, match="hook token"):
        await a.world.hooks.resume(token, b"\x01")
    assert await a.dump() == before


# -- what is left behind


async def test_pointers_of_hooks_that_are_over_expire_and_those_of_living_hooks_do_not(a: Consumer) -> None:
    # given a disposed hook, one whose run has ended, one that was taken over, and a living one
    for run in ("r1", "r2"):
        await a.begin(run)
    for hook, token in (("h1", "disposed"), ("h2", "taken"), ("h3", "ended")):
        await hold(a, "r1", hook, token)
    await a.world.events.hook_disposed("r1", "h1")
    await a.world.events.hook_disposed("r1", "h2")
    await hold(a, "r2", "h4", "taken")
    await a.world.cancel("r1", terminate=True)
    await hold(a, "r2", "h5", "living")

    # when the retention loop has worked off what was given up
    released = await a.world.hooks.release(a.partition)

    # then
    ttl = {token: await a.redis.pttl(a.partition.hook(token)) for token in ("disposed", "taken", "ended", "living")}
    assert released == 3
    assert {token for token, left in ttl.items() if left > 0} == {"disposed", "ended"}
    assert await a.redis.exists(a.partition.releases, a.partition.hooks("r1")) == 0
    assert await a.world.hooks.release(a.partition) == 0


STRANGERS: dict[str, Callable[[Consumer], tuple[str | bytes, ...]]] = {
    "is a string": lambda a: ("SET", a.partition.hook("theirs"), "x"),
    "names no hook": lambda a: ("HSET", a.partition.releases, "one-word", "theirs"),
    "argument token": lambda a: ("HSET", a.partition.releases, "r9 h9", "two words"),
}
"""What is said of something a stranger has written, and how it is written."""


@pytest.mark.parametrize("why", STRANGERS)
async def test_what_a_stranger_has_written_among_tokens_keeps_no_other_one(
    a: Consumer, why: str, recwarn: pytest.WarningsRecorder
) -> None:
    """One such field was the first of each look for ever: no token was let go, and no run of the partition reaped."""
    await a.begin()
    for number in range(300):  # more than one page of them
        await a.redis.hset(a.partition.hook(f"t{number}"), mapping={"run": RUN, "hook": f"h{number}"})
    await a.redis.hset(a.partition.releases, mapping={f"{RUN} h{number}": f"t{number}" for number in range(300)})
    await a.redis.hset(a.partition.releases, "r9 h9", "theirs")
    await a.redis.execute_command(*STRANGERS[why](a))

    with pytest.raises(MalformedMessage, match=why):
        await a.world.hooks.release(a.partition)

    assert {await a.redis.pttl(a.partition.hook(f"t{number}")) > 0 for number in range(300)} == {True}
    left = await a.redis.hkeys(a.partition.releases)
    assert left == ([b"one-word"] if why == "names no hook" else [b"r9 h9"])
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("stranger", ["pointer", "field", "releases"])
async def test_runs_are_reaped_whatever_a_stranger_has_written_among_tokens(a: Consumer, stranger: str) -> None:
    await a.begin()
    await hold(a)
    await hold(a, hook="h2", token="theirs")
    await a.later_pass(end())
    a.clock.advance(a.world.settings.retention_ms)
    if stranger == "pointer":
        await a.redis.delete(a.partition.hook("theirs"))
        await a.redis.set(a.partition.hook("theirs"), "x")
    elif stranger == "field":
        await a.redis.hset(a.partition.releases, "one-word", "theirs")
    else:
        await a.redis.delete(a.partition.releases)
        await a.redis.set(a.partition.releases, "x")

    assert await Retention(a.world).tick() == 1

    assert not await a.redis.exists(a.key())
    assert (await a.redis.pttl(a.partition.hook(TOKEN)) > 0) == (stranger != "releases")


async def test_tokens_are_let_go_where_no_run_can_be_reaped(a: Consumer) -> None:
    await a.begin()
    await hold(a)
    await a.later_pass(end())
    await a.redis.set(a.partition.index("status:cancelled"), "x")

    assert await Retention(a.world).tick() == 0

    assert await a.redis.pttl(a.partition.hook(TOKEN)) > 0


async def test_a_reaped_run_leaves_no_key(a: Consumer) -> None:
    await a.begin()
    await hold(a)
    await a.world.hooks.resume(TOKEN, b"\x01", resume_id="k1")
    await a.later_pass(end())

    a.clock.advance(a.world.settings.retention_ms)
    await a.world.upkeep.reap(a.partition, 10)

    assert [key for key in await a.redis.keys("*") if b":run:" in key] == []


async def test_a_token_in_another_partition_than_its_run_works_alike(a: Consumer) -> None:
    # given a second partition, which every token falls into
    other = Partition("test", 1)
    a.world.partition = lambda name: other if name.startswith("chat") else a.partition  # type: ignore[method-assign]
    for run in ("r1", "r2"):
        await a.begin(run)

    # when a hook is made, resumed and disposed of
    assert await hold(a, "r1") == Answer("created")
    assert (await a.world.hooks.resume(TOKEN, b"\x01"))[0] == "r1"
    assert await hold(a, "r2") == Answer("hook_conflict", "r1")
    await a.world.events.hook_disposed("r1", "h1")
    assert await a.world.hooks.release(a.partition) == 2

    # then its pointer, in the other partition, will go
    assert await a.redis.pttl(other.hook(TOKEN)) > 0
