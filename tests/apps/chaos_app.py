"""The application of the chaos tests: bodies whose only effect is a note in ``probe:<run>``, made by a plain client."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress

import redis

from redisworld import Backoff, RetryableError, StepError, Workflows, get_step_metadata, hook, sleep
from redisworld.replay.calls import StepCall

wf = Workflows()
_client: redis.Redis | None = None


def client() -> redis.Redis:
    """A client that the library knows nothing of."""
    global _client  # noqa: PLW0603 one client per process, made when the first body runs
    if _client is None:
        _client = redis.Redis.from_url(os.environ["CHAOS_REDIS"])
    return _client


def noted(what: str) -> None:
    """One more execution of this body, counted outside the library."""
    client().rpush(f"probe:{get_step_metadata().run_id}", what)


_KILLED = 50
"""Retries of what is at work while hundreds of workers are killed: that takes a step four times in a row."""


@wf.step(max_retries=_KILLED)
async def note(what: str) -> str:
    noted(what)
    return what


@wf.step(max_retries=_KILLED)
async def slow(what: str, seconds: float) -> str:
    """Notes first, so that a test sees it running."""
    noted(what)
    await asyncio.sleep(seconds)
    return what


@wf.step
async def block(what: str, seconds: float) -> str:
    """Keeps the event loop from moving."""
    noted(what)
    time.sleep(seconds)  # noqa: ASYNC251 that is what this step is for
    return what


@wf.step(max_retries=_KILLED, backoff=Backoff(first_ms=200))
async def fails_once(what: str) -> str:
    attempt = get_step_metadata().attempt
    noted(f"{what}:{attempt}")
    if attempt == 1:
        raise ValueError("the first attempt fails")
    return what


@wf.step
async def fails_late(what: str, retry_after: str) -> str:
    """Asks for a retry at its first attempt."""
    attempt = get_step_metadata().attempt
    noted(f"{what}:{attempt}")
    if attempt == 1:
        raise RetryableError("later", retry_after=retry_after)
    return what


@wf.step
async def gated(what: str, gate: str) -> str:
    """Notes, then waits for the key ``gate``."""
    noted(what)
    while not client().exists(gate):  # noqa: ASYNC110 the gate is in Redis
        await asyncio.sleep(0.01)
    return what


@wf.step
async def attempt_gated(what: str, first: str, later: str) -> str:
    """Attempt 1 waits for the key ``first``, all others for ``later``; tells which attempt returned."""
    attempt = get_step_metadata().attempt
    noted(f"{what}:{attempt}")
    while not client().exists(first if attempt == 1 else later):  # noqa: ASYNC110 the gate is in Redis
        await asyncio.sleep(0.01)
    return f"{what}:{attempt}"


@wf.step(max_retries=0)
async def handed_back(what: str) -> str:
    """Never returns at its first attempt; has no retry left, so only an uncharged hand-back lets it run again."""
    attempt = get_step_metadata().attempt
    noted(f"{what}:{attempt}")
    if attempt == 1:
        await asyncio.sleep(3600)
    return f"{what}:{attempt}"


@wf.step(max_retries=0)
async def deaf() -> int:
    """Lets nobody cancel its first attempt."""
    attempt = get_step_metadata().attempt
    noted(str(attempt))
    while attempt == 1:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
    return attempt


@wf.workflow
async def deaf_at_first() -> int:
    return await deaf()


@wf.step(max_retries=2, backoff=Backoff(first_ms=20))
async def never_right() -> None:
    noted(str(get_step_metadata().attempt))
    raise ValueError("never right")


@wf.workflow
async def fails_thrice() -> None:
    await never_right()


@wf.workflow
async def listens_beside_a_step(token: str, gate: str) -> list[int]:
    """Takes payloads while a step runs, and returns what it got before the step ended."""
    got: list[int] = []

    async def listen() -> None:
        async for payload in hook(int, token=token):
            got.append(payload)

    listening = asyncio.ensure_future(listen())
    await gated("s", gate)
    listening.cancel()
    return got


@wf.step(max_retries=_KILLED)
async def quick(number: int) -> int:
    noted(str(number))
    return number


@wf.workflow
async def diamond() -> list[str]:
    """a -> gather(b, c) -> d"""
    a = await note("a")
    b, c = await asyncio.gather(note("b"), note("c"))
    return [a, b, c, await note("d")]


@wf.workflow
async def one_slow(seconds: float) -> str:
    """Its first step runs inline."""
    return await slow("s", seconds)


@wf.workflow
async def one_blocking(seconds: float) -> str:
    return await block("s", seconds)


@wf.workflow
async def many_slow(count: int, seconds: float) -> int:
    return len(await asyncio.gather(*(slow(f"s{i}", seconds) for i in range(count))))


@wf.workflow
async def taken_over(first: str, later: str) -> str:
    """The step is an inline one."""
    return await attempt_gated("t", first, later)


@wf.workflow
async def queued_taken_over(first: str, later: str) -> str:
    """``note`` is the inline one, the gated one is queued."""
    return (await asyncio.gather(note("n"), attempt_gated("t", first, later)))[1]


@wf.workflow
async def fan_out(count: int) -> int:
    return sum(await asyncio.gather(*(quick(i) for i in range(count))))


@wf.workflow
async def fan_out_then_join(count: int) -> str:
    values = await asyncio.gather(*(note(f"b{i}") for i in range(count)))
    return await note(f"join {len(values)}")


@wf.workflow
async def gated_fan_out(count: int, gate: str) -> str:
    values = await asyncio.gather(*(gated(f"b{i}", gate) for i in range(count)))
    return await note(f"join {len(values)}")


@wf.workflow
async def two_notes() -> list[str]:
    return [await note("x"), await note("y")]


@wf.workflow
async def slept(seconds: float) -> str:
    await sleep(seconds)
    return await note("after")


@wf.workflow
async def pause_between(seconds: float) -> list[str]:
    x = await note("x")
    await sleep(seconds)
    return [x, await note("y")]


@wf.workflow
async def retried() -> str:
    return await fails_once("r")


@wf.workflow
async def retried_late(retry_after: str) -> str:
    return await fails_late("r", retry_after)


@wf.workflow
async def short_and_long(seconds: float, long_first: bool) -> list[str]:
    """The first of the two runs inline, the other one is queued."""
    calls = [slow("short", seconds), handed_back("long")]
    return sorted(await asyncio.gather(*(reversed(calls) if long_first else calls)))


@wf.workflow
async def gate_then_note(gate: str) -> list[str]:
    return [await gated("a", gate), await note("d")]


@wf.step(max_retries=20, backoff=Backoff(first_ms=100, cap_ms=500))
async def patient(number: int) -> int:
    """Its note may fail while Redis is away; that is an ordinary failed attempt."""
    noted(str(number))
    await asyncio.sleep(0.05)
    return 1


@wf.workflow
async def steady(count: int) -> int:
    """Half in a row, half in parallel."""
    total = 0
    for number in range(count // 2):
        total += await patient(number)
    return total + sum(await asyncio.gather(*(patient(number) for number in range(count // 2, count))))


@wf.workflow
async def nothing() -> None:
    """No step, no wait."""


@wf.step(max_retries=0)
async def once(what: str) -> str:
    """Has no retry to spend on somebody else's trouble."""
    noted(what)
    return what


@wf.workflow
async def blocked_neighbours(seconds: float) -> list[str]:
    """One body keeps the loop from moving while its neighbours have been claimed and not begun."""
    return list(await asyncio.gather(block("block", seconds), *(once(f"n{i}") for i in range(3))))


@wf.workflow
async def mixed() -> list[str]:
    """A retry, a sleep, a race, a group that fails fast, and two chains that do not wait for each other."""
    out = [await fails_once("r")]
    await sleep(0.1)

    async def chain(name: str) -> str:
        return await note(f"{name}1") + await note(f"{name}2")

    out += await asyncio.gather(chain("p"), chain("q"))
    done, rest = await asyncio.wait(
        [asyncio.ensure_future(slow("w1", 0.05)), asyncio.ensure_future(slow("w2", 0.2))],
        return_when=asyncio.FIRST_COMPLETED,
    )
    out.append(str(len(done) + len(rest)))
    for task in rest:
        out.append(str(len(await task)))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_awaited(note("g")))
            group.create_task(_awaited(never_works("x")))
    except* StepError as errors:
        out.append(str(len(errors.exceptions)))
    except* ValueError as errors:
        out.append(str(len(errors.exceptions)))
    return [*out, await note("end")]


async def _awaited(call: StepCall[str]) -> str:
    return await call


@wf.step(max_retries=0)
async def never_works(what: str) -> str:
    noted(what)
    raise ValueError(what)


@wf.step(max_retries=5)
async def slow_then_fails(seconds: float) -> None:
    noted("f")
    await asyncio.sleep(seconds)
    raise ValueError("too late to be retried")


@wf.workflow
async def one_slow_failure(seconds: float) -> None:
    await slow_then_fails(seconds)


@wf.workflow
async def over_a_set(gate: str) -> list[str]:
    """The order of a set of texts differs from process to process, unless their hash seeds are equal."""
    names = {"ann", "bob", "cas", "dee", "eve"}
    asked = list(names)
    given = await asyncio.gather(*(note(name) for name in asked))
    await gated("gate", gate)
    return [f"{name}={value}" for name, value in zip(asked, given, strict=True)]


@wf.step(max_retries=0)
def in_a_thread(what: str, seconds: float) -> str:
    """Cannot be cancelled at its first attempt; quick at all others."""
    attempt = get_step_metadata().attempt
    noted(f"{what}:{attempt}")
    if attempt == 1:
        time.sleep(seconds)
    return f"{what}:{attempt}"


@wf.workflow
async def one_in_a_thread(seconds: float) -> str:
    return await in_a_thread("t", seconds)
