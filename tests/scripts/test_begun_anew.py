"""What of an earlier run of the same id reaches the one that has begun under it? Nothing.

A row goes by its TTL, and log and resumes with it; whatever has none stays until the reaper comes, and a worker may not
have run for days. And people delete keys by hand.
"""

from __future__ import annotations

import pytest

from redisworld import MalformedMessage
from tests.scripts.driver import RUN, Attempt, Consumer, step
from tests.scripts.scenes.outputs import write

pytestmark = pytest.mark.anyio


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
