"""Do values of every kind reach the body as they were, and is what cannot refused where it is given? (A29 to A31)"""

from __future__ import annotations

import asyncio
import enum
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
import redis

from redisworld import StepError, get_workflow_metadata, hook
from redisworld.events import EventKind
from tests.constructs.catalogue import Construct, resume
from tests.constructs.playing import check_promises, player
from tests.constructs.steps import echo, wf, work

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int
    y: int


class Line(msgspec.Struct):
    ends: tuple[Point, Point]


class Model(pydantic.BaseModel):
    when: datetime


WHEN = datetime(2026, 3, 4, 5, 6, 7, 891_011)
VALUES: list[Any] = [
    *(WHEN, WHEN.replace(tzinfo=ZoneInfo("Asia/Kolkata")), WHEN.date(), WHEN.time(), timedelta(seconds=1.5)),
    *(Decimal("0.10"), {1, 2}, frozenset({3}), (1, "a"), b"\x00\xff", bytearray(b"ab"), UUID(int=7)),
    *(Colour.RED, Level.LOW, Point(1, 2), Line((Point(1, 2), Point(3, 4))), Model(when=WHEN.replace(tzinfo=UTC))),
    *(Path("/var/x"), {None: 1, "a": [None]}),
]
KINDS = [type(value) for value in VALUES]


def _step(kind: type[Any], value: Any) -> Any:
    async def makes() -> Any:
        return value

    makes.__annotations__["return"] = kind
    return wf.step(name=f"makes_{kind.__name__}_{VALUES.index(value)}")(makes)


MAKES = [_step(kind, value) for kind, value in zip(KINDS, VALUES, strict=True)]


@wf.workflow
async def kinds() -> list[str]:
    out = []
    for makes, value in zip(MAKES, VALUES, strict=True):
        made = await makes()
        out.append(await work(f"{type(made).__name__} {made == value}"))
    return out


@pytest.mark.parametrize("die_before", [None, 9, 40])
async def test_the_body_branches_alike_on_the_kind_of_a_result_before_and_after_a_crash(
    redis_url: str, raw: redis.Redis, die_before: int | None
) -> None:
    """A30: a live pass sees the decoded value, not the object that the step returned."""
    expected = [f"{kind.__name__} True" for kind in KINDS]
    async with player(redis_url, raw) as playing:
        played = await playing.play(Construct(kinds, expected), "r", die_before=die_before)
    assert played.outcome == expected
    check_promises(raw)


INTEGERS = [2**63 - 1, 2**64 - 1, 2**64, -(2**63) - 1, 10**40, -(10**40), True]


@wf.workflow
async def takes_integers() -> list[Any]:
    got = await hook(Any, token=f"integers:{get_workflow_metadata().run_id}")
    return [got, await echo(got)]


async def test_integers_of_any_size_survive_a_hook(redis_url: str, raw: redis.Redis) -> None:
    """A29: the positions that tests/conformance/test_values.py does not have."""
    given = [*INTEGERS, {"deep": INTEGERS}]
    async with player(redis_url, raw) as playing:
        played = await playing.play(Construct(takes_integers, None, (resume("integers", given),)), "r")
    for back in played.outcome:
        assert back == given
        assert [type(value) for value in back] == [type(value) for value in given]


@wf.step
async def sends(text: str, cb: Any = None) -> str:
    return text


@wf.workflow
async def sends_a_function() -> list[str]:
    async def unlucky() -> str:
        try:
            return await sends("x", cb=lambda: 1)
        except Exception as error:
            await work("caught")
            return str(error)

    return list(await asyncio.gather(unlucky(), work("sibling")))


async def test_an_argument_that_cannot_be_stored_is_the_bodys_to_catch_and_its_sibling_goes_on(
    redis_url: str, raw: redis.Redis
) -> None:
    """A31: one clean-up step, the sibling's result kept, two steps in the log."""
    async with player(redis_url, raw) as playing:
        played = await playing.play(Construct(sends_a_function, None), "r")
    error, sibling = played.outcome
    assert sibling == "sibling"
    assert "cb" in error
    assert "function" in error
    assert sum(event.kind is EventKind.STEP_CREATED for event in played.log) == 2
    check_promises(raw)


@wf.step(max_retries=3)
async def returns(what: str) -> Any:
    return {"lock": threading.Lock(), "generator": (x for x in "a"), "complex": 1j}[what]


@wf.workflow
async def returns_what_cannot_be() -> list[str]:
    out = []
    for what in ("lock", "generator", "complex"):
        try:
            await returns(what)
        except StepError as error:
            out.append(str(error).partition("\n")[0])
    return out


async def test_a_result_that_cannot_be_stored_fails_its_step_without_a_retry(redis_url: str, raw: redis.Redis) -> None:
    """A31."""
    async with player(redis_url, raw) as playing:
        played = await playing.play(Construct(returns_what_cannot_be, None), "r")
    said = played.outcome
    assert len(said) == 3
    assert all(kind in text for kind, text in zip(("lock", "generator", "complex"), said, strict=True)), said
    kinds_seen = [event.kind for event in played.log]
    assert kinds_seen.count(EventKind.STEP_STARTED) == kinds_seen.count(EventKind.STEP_FAILED) == 3
    check_promises(raw)
