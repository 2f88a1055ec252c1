"""What may a workflow body call for time and chance? Everything here gives the same answer in every replay."""

from __future__ import annotations

import asyncio
import math
import random as stdlib_random
import uuid
from asyncio import events
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar, overload

from redisworld import values
from redisworld.durations import named_ms
from redisworld.errors import InvalidInput
from redisworld.keys import check_token
from redisworld.replay.body import Body
from redisworld.replay.hooks import Hook
from redisworld.replay.loop import ReplayLoop

T = TypeVar("T")


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
    loop = _body("redisworld's sleep()", "use asyncio.sleep() in a step").loop
    waiter: asyncio.Future[None] = loop.create_future()
    timer = loop.wait_until(_due_ms(until, loop.now_ms), _release, waiter)
    try:
        await waiter
    finally:
        timer.cancel()


@overload
def hook(*, token: str | None = None, metadata: Any = None) -> Hook[Any]: ...
@overload
def hook(type: type[T], /, *, token: str | None = None, metadata: Any = None) -> Hook[T]: ...
@overload
def hook(type: Any, /, *, token: str | None = None, metadata: Any = None) -> Hook[Any]: ...
def hook(type: Any = Any, /, *, token: str | None = None, metadata: Any = None) -> Hook[Any]:
    """A hook: a place where this run takes payloads from outside, by its token (``World.resume``).

    ``type`` is what a payload must be: a dataclass, Struct, pydantic model or any annotation. Without a ``token`` it
    gets one that no other run has; ``metadata`` is for whoever looks at the log. The token is claimed when the body
    next waits; payloads that arrive before somebody awaits the hook are kept. Raises InvalidInput outside a body and
    for a token that cannot be one, InvalidValue for metadata that cannot be stored.
    """
    return _hook("redisworld's hook()", type, token, metadata)


def _hook(what: str, type: Any, token: str | None, metadata: Any) -> Hook[Any]:
    body = _body(what, "a step can resume one: World.resume")
    if token is not None:
        check_token(token)
    packed = (
        b"" if metadata is None else values.encode(metadata, where="metadata of a hook", max_bytes=body.max_payload)
    )
    return Hook(body.ask_hook(token, packed), type)


class BaseHook:
    """Mixed into a dataclass, Struct or pydantic model, the class is a payload and ``wait()`` its hook.

    ::

        @dataclass
        class Approval(BaseHook):
            by: str

        approval = await Approval.wait(token="order:42")  # in a body
    """

    __slots__ = ()

    @classmethod
    def wait(cls, *, token: str | None = None, metadata: Any = None) -> Hook[Self]:
        """``hook(cls, token=token, metadata=metadata)``: await it for one payload, or iterate over it."""
        return _hook(f"{cls.__name__}.wait()", cls, token, metadata)


def now() -> datetime:
    """Body time: when the last event the body has seen was recorded, as an aware UTC datetime."""
    return datetime.fromtimestamp(_body("redisworld's now()", "use datetime.now() in a step").loop.now_ms / 1_000, UTC)


def random() -> stdlib_random.Random:
    """A random generator that repeats in every replay of this run. Not for secrets: its seed is the run id."""
    return _random("redisworld's random()", "use the random module in a step")


def uuid4() -> uuid.UUID:
    """A random UUID that is the same in every replay of this run."""
    return uuid.UUID(int=_random("redisworld's uuid4()", "use uuid.uuid4() in a step").getrandbits(128), version=4)


def _random(what: str, instead: str) -> stdlib_random.Random:
    return _body(what, instead).random()


def patched(name: str) -> bool:
    """Whether this run goes with a change of its code: the gate for changing a body under its running runs.

    Write ``if patched("fraud-check"):`` around what is new, and ``else:`` before what it replaces. A run that comes to
    the place for the first time is told True, for good; a run that had passed it before the gate was there is told
    False in every replay. The first call of a name in a run decides for all of them. ``name`` is a word of at most 100
    characters; a run has at most 100. Raises InvalidInput, also outside a workflow body.
    """
    return _body("redisworld's patched()", "a step always runs the newest code").patched(name)


def _body(what: str, instead: str) -> Body:
    body = current()
    if body is None:
        raise InvalidInput(f"{what} belongs in a workflow body; {instead}")
    return body


def _due_ms(until: timedelta | float | str | datetime, now_ms: int) -> int:
    if not isinstance(until, datetime):
        return now_ms + named_ms("sleep()", until)
    if until.utcoffset() is None:
        raise InvalidInput(
            f"sleep({until!r}): a datetime without a zone means another moment on every host; add a tzinfo"
        )
    return math.ceil((until - datetime.fromtimestamp(0, UTC)) / timedelta(milliseconds=1))


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
