"""The application of tests of single cases: moments in zones, payloads that are passed along, steps that write much."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from redisworld import InvalidInput, Workflows, get_writable, sleep
from tests.apps.chaos_app import noted

wf = Workflows()


@wf.step
async def note(what: str) -> str:
    noted(what)
    return what


@wf.workflow
async def sleeps_until(moment: datetime) -> str:
    await sleep(moment)
    return await note("after")


@wf.workflow
async def sleeps_until_a_naive_moment() -> bool:
    """Whether it is refused."""
    try:
        await sleep(datetime.now() + timedelta(seconds=3))
    except InvalidInput as error:
        return "without a zone" in str(error)  # the text holds a time of this host's zone
    return False


@wf.workflow
async def two_half_past_ones(first: datetime, second: datetime) -> float:
    """Both moments of an autumn night, as the body has them."""
    return (second.astimezone(UTC) - first.astimezone(UTC)).total_seconds()


@wf.step
async def returned(payload: bytes) -> bytes:
    return payload


@wf.workflow
async def passed_along(payload: bytes, times: int) -> int:
    """Each step gets what the one before it returned."""
    for _ in range(times):
        payload = await returned(payload)
    return len(payload)


@wf.step
async def writes(number: int, chunks: int) -> int:
    """Leaves the stream open for the others."""
    out = get_writable()
    for chunk in range(chunks):
        await out.write([number, chunk])
    return number


@wf.step
async def closes() -> None:
    await get_writable().close()


@wf.workflow
async def many_writers(writers: int, chunks: int) -> int:
    numbers = await asyncio.gather(*(writes(number, chunks) for number in range(writers)))
    await closes()
    return len(numbers)
