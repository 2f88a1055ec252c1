"""The application of the conformance tests: its bodies run in the test's own process and note themselves in ``ran``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redisworld import Backoff, FatalError, RetryableError, StepError, Workflows, get_step_metadata, sleep

wf = Workflows()

ran: list[tuple[str, Any, int]] = []
"""(step name, first argument, attempt) of each execution."""

during: list[Callable[[], Awaitable[object] | None]] = []
"""Called once each in the bodies of ``double``, ``fails`` and ``fatal``, first come first served; and awaited."""


def executions(name: str) -> int:
    """How often bodies of this step have run."""
    return sum(1 for step, _, _ in ran if step == name)


def _noted(value: Any) -> int:
    info = get_step_metadata()
    ran.append((info.step_name, value, info.attempt))
    return info.attempt


async def _interlude() -> None:
    waiting = during.pop(0)() if during else None
    if waiting is not None:
        await waiting


@wf.step
async def double(number: int) -> int:
    _noted(number)
    await _interlude()
    return number * 2


@wf.step
async def echo(value: Any) -> Any:
    _noted(value)
    return value


@wf.step(backoff=Backoff(first_ms=1_000, jitter=0))
async def fails(number: int) -> int:
    _noted(number)
    await _interlude()
    raise ValueError(f"no luck with {number}")


@wf.step
async def stumbles(number: int) -> int:
    """Fails at its first attempt, with the backoff that a step has by default."""
    if _noted(number) == 1:
        raise ValueError(f"no luck with {number}")
    return number


@wf.step
async def asks_for_time(number: int) -> int:
    if _noted(number) == 1:
        raise RetryableError("busy", retry_after="5s")
    return number


@wf.step
async def fatal(number: int) -> int:
    _noted(number)
    await _interlude()
    raise FatalError("never")


@wf.step
async def raises(value: Any) -> None:
    _noted(value)
    raise FatalError(f"value is {value}")


def _retrying(retries: int) -> Any:
    @wf.step(name=f"retries_{retries}", max_retries=retries, backoff=Backoff(first_ms=1, jitter=0))
    async def retries_n(succeeds_at: int) -> str:
        attempt = _noted(succeeds_at)
        if attempt != succeeds_at:
            raise ValueError(f"attempt {attempt}")
        return "ok"

    return retries_n


retrying = {retries: _retrying(retries) for retries in (0, 1, 2)}


@wf.workflow
async def pair() -> list[int]:
    """The two-step fan-out of the reference's two-phase test."""
    return list(await asyncio.gather(double(1), double(2)))


@wf.workflow
async def wide(count: int) -> int:
    return sum(await asyncio.gather(*(double(number) for number in range(count))))


@wf.workflow
async def joined(count: int) -> tuple[list[int], int]:
    values = await asyncio.gather(*(double(number) for number in range(count)))
    return list(values), await echo(len(values))


@wf.workflow
async def chain(count: int) -> int:
    total = 0
    for number in range(count):
        total += await double(number)
    return total


@wf.workflow
async def napped(seconds: float) -> str:
    await sleep(seconds)
    return str(await echo("awake"))


@wf.workflow
async def mixed() -> list[str]:
    """Three branches; the argument of the second one cannot be stored."""

    async def branch(value: Any) -> Any:
        return await echo(value)

    found = await asyncio.gather(branch(1), branch(object()), branch(3), return_exceptions=True)
    return [type(value).__name__ if isinstance(value, Exception) else str(value) for value in found]


@wf.workflow
async def one(name: str, number: int) -> Any:
    """One step by its name."""
    return await wf.steps[name](number)


@wf.workflow
async def caught(name: str, number: int) -> list[str]:
    """One step by its name, and what its failure looks like in the body."""
    try:
        return ["ok", str(await wf.steps[name](number))]
    except Exception as error:
        return [type(error).__name__, str(error), type(error.__cause__).__name__, str(error.__cause__)]


@wf.workflow
async def round_trip(value: Any) -> list[Any]:
    """The value through an argument, a step's argument and result, and an exception's message."""
    back = await echo(value)
    try:
        await raises(value)
    except StepError as error:
        return [back, value, str(error)]
    return []
