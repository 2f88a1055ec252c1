"""What does a client get to see of a run that somebody else has written over? An error of ours, or the rest of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
import redis

from redisworld import MalformedMessage, RedisworldError, Workflows, get_writable, hook, set_attributes
from redisworld.world import World
from tests.conformance.conftest import Connect

pytestmark = pytest.mark.anyio

wf = Workflows()
GARBLED = ("x", "", "inf", "9" * 30, "|" * 12, b"\xff")


@wf.step
async def write(value: int) -> int:
    async with get_writable("out") as out:
        await out.write(value)
    return value


@wf.workflow
async def everything(value: int) -> int:
    set_attributes(stage="begun")
    waiting = hook(token="door")
    await write(value)
    return int(await waiting)


async def everything_of(items: AsyncIterator[Any]) -> None:
    async for _ in items:
        pass


def questions(world: World, run_id: str) -> dict[str, Callable[[], Awaitable[object]]]:
    """What a client may ask of a run and of a hook, and do to them."""
    run = world.run(run_id)
    return {
        "row": run.row,
        "steps": lambda: world.steps(run_id),
        "attributes": run.attributes,
        "outputs": run.outputs,
        "events": lambda: everything_of(run.events()),
        "stream": lambda: everything_of(run.stream("out", follow=False)),
        "read": lambda: everything_of(run.read("out", type=int)),
        "hook": lambda: world.hook("door"),
        "start": lambda: world.start(everything, 1, run_id=run_id),
        "resume": lambda: world.resume("door", 1, resume_id="again"),
        "set_attributes": lambda: run.set_attributes(stage="over"),
        "cancel": run.cancel,
        "result": lambda: run.result(timeout=0.01),
    }


def damages(raw: redis.Redis) -> Iterator[tuple[Any, ...]]:
    """Commands, each of which damages one thing."""
    for key in raw.keys("*"):
        yield "SET", key, "theirs"
        match raw.type(key):
            case b"hash":
                yield from (("HSET", key, field, text) for field in raw.hkeys(key) for text in GARBLED)
            case b"list":
                yield from (("LSET", key, place, text) for place in range(raw.llen(key)) for text in GARBLED)
            case b"stream":
                yield "XADD", key, "*", "theirs", "x"


def damaged(raw: redis.Redis, *, within: bytes = b"") -> Iterator[tuple[Any, ...]]:
    """Bring each damage to the keys with ``within`` in their names about, one after the other, and nothing besides."""
    kept = {key: raw.dump(key) for key in raw.keys("*")}
    for damage in [damage for damage in damages(raw) if within in damage[1]]:
        raw.flushall()
        for key, value in kept.items():
            raw.restore(key, 0, value)
        raw.execute_command(*damage)
        yield damage


@pytest.mark.parametrize("ended", [False, True])
async def test_a_client_meets_no_error_but_ours(connect: Connect, raw: redis.Redis, ended: bool) -> None:
    async with connect(app=wf) as consumers:
        await consumers.world.start(everything, 7, run_id="r")
        await consumers.drain()
        if ended:
            await consumers.world.resume("door", 8)
            await consumers.drain()

        met = []
        for damage in damaged(raw):
            for name, ask in questions(consumers.world, "r").items():
                try:
                    with anyio.fail_after(5):
                        await ask()
                except (RedisworldError, TimeoutError):
                    continue
                except Exception as error:
                    met.append((name, damage, repr(error)))
        assert not met, f"{len(met)} errors, such as {met[:5]}"


@pytest.mark.parametrize("moment", ["begun", "resumed"])
async def test_a_worker_meets_nothing_that_nobody_expected(
    connect: Connect, raw: redis.Redis, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    async with connect(app=wf) as consumers:
        await consumers.world.start(everything, 7, run_id="r")
        if moment == "resumed":
            await consumers.drain()
            await consumers.world.resume("door", 8)

        met = []
        for damage in damaged(raw, within=b":run:"):
            caplog.clear()
            try:
                with anyio.fail_after(10):
                    await consumers.drain()
            except MalformedMessage:  # its message goes to the dead letters
                continue
            except Exception as error:
                met.append((damage, "raised", repr(error)))
            met += [
                (damage, record.getMessage(), repr(record.exc_info[1])) for record in caplog.records if record.exc_info
            ]
        assert not met, f"{len(met)} errors, such as {met[:5]}"
