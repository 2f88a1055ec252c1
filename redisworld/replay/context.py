"""What may a workflow body call for time and chance? Everything here gives the same answer in every replay."""

from __future__ import annotations

import asyncio
import math
import random as stdlib_random
import uuid
from asyncio import events
from datetime import UTC, datetime, timedelta

from redisworld.durations import parse_ms
from redisworld.errors import InvalidInput
from redisworld.replay.body import Body
from redisworld.replay.loop import ReplayLoop


def current() -> Body | None:
    """The body whose code is running, or None in a step, in a client, anywhere else."""
    loop = events._get_running_loop()
    if isinstance(loop, ReplayLoop) and isinstance(loop.host, Body):
        return loop.host
    return None


async def sleep(until: timedelta | float | str | datetime) -> None:
    """Wait durably: for seconds, a timedelta or text like ``"1h 30m"``, or until an aware datetime.

    The run uses no worker meanwhile and may sleep for months; a time that has passed returns at once.
    Raises InvalidInput outside a workflow body, for a naive datetime and for what is no duration.
    """
    loop = _body("sleep()", "use asyncio.sleep() in a step").loop
    waiter: asyncio.Future[None] = loop.create_future()
    timer = loop.wait_until(_due_ms(until, loop.now_ms), _release, waiter)
    try:
        await waiter
    finally:
        timer.cancel()


def now() -> datetime:
    """Body time: when the last event the body has seen was recorded, as an aware UTC datetime."""
    return datetime.fromtimestamp(_body("now()", "use datetime.now() in a step").loop.now_ms / 1_000, UTC)


def random() -> stdlib_random.Random:
    """A random generator that repeats in every replay of this run. Not for secrets: its seed is the run id."""
    return _body("random()", "use the random module in a step").random()


def uuid4() -> uuid.UUID:
    """A random UUID that is the same in every replay of this run."""
    return uuid.UUID(int=random().getrandbits(128), version=4)


def _body(what: str, instead: str) -> Body:
    body = current()
    if body is None:
        raise InvalidInput(f"redisworld's {what} belongs in a workflow body; {instead}")
    return body


def _due_ms(until: timedelta | float | str | datetime, now_ms: int) -> int:
    if not isinstance(until, datetime):
        return now_ms + parse_ms(until)
    if until.utcoffset() is None:
        raise InvalidInput(
            f"sleep({until!r}): a datetime without a zone means another moment on every host; add a tzinfo"
        )
    return math.ceil((until - datetime.fromtimestamp(0, UTC)) / timedelta(milliseconds=1))


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
