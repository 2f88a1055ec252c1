"""Which error does a user see who works inside ``async with World.connect(...)``, and who works outside it?"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any
from unittest.mock import AsyncMock, Mock

import anyio
import anyio.to_thread
import pytest
import redis

from redisworld import (
    ForbiddenInWorkflow,
    InvalidInput,
    MalformedMessage,
    RedisUnavailable,
    RunCancelled,
    RunNotFound,
    Settings,
    Workflows,
    World,
    get_writable,
    scripts,
)
from redisworld.world import Delivery, Renewal, StateReader, endings
from tests.conformance.conftest import Connect
from tests.conformance.harness import working

pytestmark = pytest.mark.anyio

wf = Workflows()
ASKED: dict[str, Callable[[World], Coroutine[Any, Any, Any]]] = {
    "start": lambda world: world.start(nothing),
    "row": lambda world: world.run("other").row(),
    "result": lambda world: world.run("other").result(timeout=5),
    "cancel": lambda world: world.run("other").cancel(),
    "resume": lambda world: world.resume("token"),
    "read": lambda world: anext(world.run("other").read()),
}


@wf.step(max_retries=0)
def tells() -> str:
    asyncio.run(get_writable().write("a line"))  # instead of anyio.from_thread.run
    return "written"


@wf.workflow
async def nothing() -> None: ...


@wf.workflow
async def telling() -> str:
    try:
        return await tells()
    except Exception as error:
        return str(error)


@pytest.mark.parametrize("part", ["row", "log"])
async def test_a_run_whose_key_somebody_has_overwritten_is_malformed(
    redis_url: str, raw: redis.Redis, part: str
) -> None:
    """It was the ResponseError of redis-py, which no caller of ours knows."""
    async with World.connect(redis_url) as world:
        run = await world.start(nothing, run_id="r", delay="1h")
        await run.terminate()
        partition = world.partition("r")
        raw.set(partition.run("r") if part == "row" else partition.log("r"), "a text")

        for ask in (run.result(timeout=5), run.row(), run.status()):
            with pytest.raises(MalformedMessage, match=r"'r' cannot be read.*doctor"):
                await ask


async def test_a_body_that_connects_is_told_that_it_may_not_and_not_that_redis_is_away(connect: Connect) -> None:
    app = Workflows()

    @app.workflow
    async def starts(url: str) -> str:
        try:
            async with World.connect(url) as world:
                await world.start(nothing)
        except ForbiddenInWorkflow as error:
            return str(error)
        return "started"

    async with connect(app=app) as consumers:
        run = await consumers.world.start(starts, "redis://127.0.0.1:1/0")
        await consumers.drain()

        assert "in a workflow body cannot be replayed: move it into a step" in await run.result(timeout=5)


async def test_an_error_raised_inside_the_context_arrives_as_itself(redis_url: str) -> None:
    with pytest.raises(RunNotFound):
        async with World.connect(settings=Settings(url=redis_url)) as world:
            await world.row("no-such-run")


def test_a_script_that_exits_inside_the_context_exits_with_its_code(redis_url: str) -> None:
    """It exited with 1 and the traceback of a BaseExceptionGroup."""

    async def script() -> None:
        async with World.connect(redis_url):
            sys.exit(3)

    with pytest.raises(SystemExit) as exited:
        asyncio.run(script())
    assert exited.value.code == 3


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
async def test_a_world_that_is_closed_says_so(redis_url: str, ask: Callable[[World], Any]) -> None:
    async with World.connect(redis_url) as world:
        pass

    with pytest.raises(InvalidInput, match="closed"):
        await ask(world)


async def test_who_reads_while_its_world_is_closed_is_told_so_and_leaves_no_connection(redis_url: str) -> None:
    """It connected anew behind the close, and nobody ever closed that."""
    with closing(redis.Redis.from_url(redis_url, decode_responses=True)) as raw:

        def ours(command: str = "") -> list[Any]:
            return [c for c in raw.client_list() if c["name"] == "redisworld" and command in c["cmd"]]

        async with World.connect(redis_url) as world:
            run = await world.start(nothing, delay="1h")
            reader = asyncio.create_task(anext(run.read()))
            with anyio.fail_after(20):
                while not ours("xread"):  # noqa: ASYNC110  # Redis tells it
                    await anyio.sleep(0.01)

        with anyio.fail_after(20), pytest.raises(InvalidInput, match="closed"):
            await reader
        with anyio.fail_after(20):
            while ours():  # noqa: ASYNC110  # likewise
                await anyio.sleep(0.01)


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
async def test_another_event_loop_is_refused_and_takes_nothing_along(
    redis_url: str, ask: Callable[[World], Any]
) -> None:
    async with World.connect(redis_url) as world:
        run = await world.start(nothing, delay="1h")

        with pytest.raises(InvalidInput, match="event loop"):
            await anyio.to_thread.run_sync(lambda: asyncio.run(ask(world)))

        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=5)


async def test_a_sync_step_with_a_loop_of_its_own_is_told_how_and_its_worker_works_on(connect: Connect) -> None:
    async with connect(app=wf) as consumers, working(consumers):
        for _ in range(2):
            run = await consumers.world.start(telling)
            assert "anyio.from_thread.run" in await run.result(timeout=10)


async def test_only_a_workflow_can_be_started(redis_url: str) -> None:
    async with World.connect(redis_url) as world:
        for given in (tells, "telling", telling.func, wf):
            with pytest.raises(InvalidInput, match=r"@wf\.workflow"):
                await world.start(given)  # type: ignore[call-overload]
            with pytest.raises(InvalidInput, match=r"@wf\.workflow"):
                world.run("id", given)  # type: ignore[call-overload]


@pytest.mark.parametrize("reason", ["\ud800", "x" * 4_097, None, 5])
async def test_a_reason_that_cannot_be_recorded_is_refused_and_the_run_goes_on(redis_url: str, reason: Any) -> None:
    async with World.connect(redis_url) as world:
        run = await world.start(nothing, delay="1h")
        for end in (run.cancel, run.terminate):
            with pytest.raises(InvalidInput, match="reason"):
                await end(reason)

        assert await run.status() == "pending"
        await run.cancel("x" * 4_096)


async def test_a_patience_of_nothing_looks_once(redis_url: str) -> None:
    """It used to be over before it had looked, also for a run that has ended or never was."""
    async with World.connect(redis_url) as world:
        run = await world.start(nothing, delay="1h", run_id="order-7")
        with pytest.raises(TimeoutError, match=r"^run 'order-7' has not ended yet; it goes on$"):
            await run.result(timeout=0)
        await run.terminate()
        with pytest.raises(RunCancelled):
            await run.result(timeout=0)
        with pytest.raises(RunNotFound):
            await world.run("nobody").result(timeout="0s")


async def test_the_patience_for_a_result_is_written_like_every_duration(redis_url: str) -> None:
    async with World.connect(redis_url) as world:
        run = await world.start(nothing, delay="1h", run_id="order-7")
        with pytest.raises(TimeoutError, match=r"^run 'order-7' has not ended within .* ms; it goes on$"):
            await run.result(timeout="10ms")
        for given in ("soon", -1, float("nan"), True, b"5s"):
            with pytest.raises(InvalidInput, match=r"^result\(\): timeout: .*duration"):
                await run.result(timeout=given)  # type: ignore[arg-type]
        await run.cancel()


@pytest.mark.parametrize("end", ["run_failed", "run_cancelled", "run_completed"])
async def test_a_garbled_end_of_a_run_is_told_as_such(redis_url: str, raw: redis.Redis, end: str) -> None:
    async with World.connect(redis_url) as world:
        run = await world.start(nothing, delay="1h")
        await run.terminate()
        partition = world.partition(run.run_id)
        raw.hset(partition.run(run.run_id), "status", end.removeprefix("run_"))
        raw.lset(partition.log(run.run_id), -1, f"{end} - - 5\n".encode() + b"\xc1")

        with pytest.raises(MalformedMessage):
            await run.result(timeout=5)


async def test_every_question_about_an_unknown_run_says_that_there_is_none(redis_url: str) -> None:
    async with World.connect(redis_url) as world:
        unknown = world.run("nobody")
        asked: list[Coroutine[Any, Any, Any]] = [
            *(unknown.row(), unknown.status(), unknown.result(), unknown.attributes(), unknown.outputs()),
            *(unknown.cancel(), unknown.terminate(), unknown.set_attributes(a="1")),
            *(anext(unknown.read()), anext(unknown.stream(follow=False))),
            anext(unknown.events()),  # type: ignore[list-item]
        ]
        for question in asked:
            with pytest.raises(RunNotFound):
                await question


@pytest.mark.parametrize("run_id", ["", "a b", "a|b", "a:log", "a" * 129, "\u00e9", 5])
async def test_what_cannot_be_a_run_id_is_refused_wherever_it_enters(redis_url: str, run_id: Any) -> None:
    """``a:log`` would have its row where the log of run ``a`` is."""
    async with World.connect(redis_url) as world:
        asked: list[Coroutine[Any, Any, Any]] = [
            *(world.start(nothing, run_id=run_id), world.create_run(run_id, "nothing", b"\x90")),
            *(world.cancel(run_id), world.cancel(run_id, terminate=True)),
        ]
        for question in asked:
            with pytest.raises(InvalidInput, match="run id"):
                await question


async def test_a_run_whose_retention_ends_while_its_result_is_read_is_not_found(
    redis_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World.connect(redis_url) as world:
        run = await world.start(nothing, delay="1h")
        await run.terminate()
        read = world.log

        async def log(run_id: str, start: int = 0, count: int | None = None) -> list[bytes]:
            raw.flushall()  # the row has been read
            return await read(run_id, start, count)

        monkeypatch.setattr(world, "log", log)
        with pytest.raises(RunNotFound):
            await run.result(timeout=5)


async def test_a_parameter_that_start_has_too_is_given_by_position(connect: Connect) -> None:
    """By name it was taken for the run's id, and the body got its default in silence."""
    app = Workflows()

    @app.workflow
    async def follow(run_id: str = "nobody's") -> str:
        return run_id

    @app.workflow
    async def by_name(*, run_id: str) -> str:
        return run_id

    async with connect(app=app) as consumers, working(consumers):
        world = consumers.world
        for workflow in (follow, by_name):
            with pytest.raises(InvalidInput, match="has a parameter 'run_id', so run_id= could mean either"):
                await world.start(workflow, run_id="theirs")
        run = await world.start(follow, "theirs", run_id="ours")
        assert (run.run_id, await run.result(timeout=10)) == ("ours", "theirs")


FROM_REDIS_PY = [
    AttributeError("'NoneType' object has no attribute 'writelines'"),
    RuntimeError("the handler is closed"),
]
"""What it lets through when a connection dies while it writes, of asyncio's transports and of uvloop's."""


async def test_a_subscription_that_dies_while_it_is_made_does_not_end_the_body(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World.connect(redis_url) as world:
        pubsub, left, again = world.connection.followers.pubsub, list(FROM_REDIS_PY), anyio.Event()

        def dying() -> Any:
            channel = pubsub()
            if left:
                monkeypatch.setattr(channel, "subscribe", AsyncMock(side_effect=left.pop()))
            else:
                again.set()
            return channel

        monkeypatch.setattr(world.connection.followers, "pubsub", dying)
        monkeypatch.setattr(endings, "_LOOK_AGAIN_S", 0.01)
        run = await world.start(nothing, delay="1h")
        waiting = asyncio.ensure_future(run.result())
        with anyio.fail_after(10):
            await again.wait()
        await run.terminate()

        with pytest.raises(RunCancelled):
            await waiting


@pytest.mark.parametrize("error", FROM_REDIS_PY, ids=lambda error: type(error).__name__)
async def test_a_blocking_client_whose_connection_dies_is_redis_that_is_unavailable(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with World.connect(redis_url) as world:
        reader, renewal = StateReader(world.connection, world.partitions), Renewal(world.connection, world.consumer)
        monkeypatch.setattr(reader._client, "pipeline", Mock(side_effect=error))
        monkeypatch.setattr(renewal._client, "evalsha", Mock(side_effect=error))
        held = Delivery(world.partitions[0], "steps", "1-0", {}, 1)

        with closing(reader), pytest.raises(RedisUnavailable):
            reader.read()
        with closing(renewal), pytest.raises(RedisUnavailable):
            renewal.renew(world.partitions[0], [held])


async def test_no_script_is_read_from_disk_after_connecting(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be that of another version by then, where the package was upgraded; or no file can be opened."""

    def read(path: str) -> str:
        raise OSError(24, "Too many open files", path)

    scripts.load.cache_clear()
    scripts.load_all.cache_clear()
    async with World.connect(redis_url):
        monkeypatch.setattr(scripts, "_read", read)
        for name in scripts.names():
            assert scripts.load(name).text
