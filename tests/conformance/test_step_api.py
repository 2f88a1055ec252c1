"""Do steps do what their options say: threads, timeouts, types of exceptions, metadata, steps within steps?"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from redisworld import (
    Backoff,
    RetryableError,
    RunFailed,
    StepError,
    StepInfo,
    StepTimeout,
    Workflows,
    get_step_metadata,
)
from redisworld.events import EventKind
from tests.apps import outside_app
from tests.conformance.conftest import Connect
from tests.conformance.harness import working

pytestmark = pytest.mark.anyio

FAST = Backoff.fixed("1ms")


def app_of(**options: Any) -> tuple[Workflows, Any, list[Any]]:
    """An application of one workflow that runs one step, which does what it is given; and what the step noted."""
    app, ran = Workflows(), []

    @app.step(**{"backoff": FAST, **options})
    async def act(what: str) -> Any:
        ran.append(get_step_metadata())
        return await ACTIONS[what]()

    @app.workflow
    async def one(what: str) -> Any:
        try:
            return await act(what)
        except StepError as error:
            return f"{type(error).__name__}: {error}"
        except Exception as error:
            return type(error).__name__

    return app, one, ran


async def _raise(error: BaseException) -> None:
    raise error


async def _in_a_group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_raise(ValueError("within")))


class Careless(RetryableError):
    """One that does not call the ``__init__`` above it."""

    def __init__(self) -> None: ...


class Undecided(RetryableError):
    @property
    def retry_after(self) -> float:  # type: ignore[override]
        raise LookupError("not known yet")

    def __init__(self) -> None: ...


ACTIONS: dict[str, Any] = {
    "careless": lambda: _raise(Careless()),
    "undecided": lambda: _raise(Undecided()),
    "value": lambda: _raise(ValueError("no")),
    "key": lambda: _raise(KeyError("no")),
    "reset": lambda: _raise(ConnectionResetError("no")),
    "group": _in_a_group,
    "hang": lambda: asyncio.sleep(60),
    "ok": lambda: asyncio.sleep(0, "ok"),
    "tomorrow": lambda: _raise(RetryableError("x", retry_after=datetime.now(UTC) + timedelta(days=1))),
    "soon": lambda: _raise(RetryableError("x", retry_after="soon")),
}


# -- which exceptions


@pytest.mark.parametrize(
    ("options", "what", "attempts"),
    [
        ({}, "value", 4),
        ({"fatal": ValueError}, "value", 1),
        ({"fatal": (ValueError,)}, "key", 4),
        ({"fatal": ValueError}, "group", 1),
        ({"retry_on": ConnectionError}, "reset", 4),
        ({"retry_on": ConnectionError}, "value", 1),
        ({"retry_on": ConnectionError, "timeout": "20ms", "max_retries": 1}, "hang", 2),
        ({"fatal": StepTimeout, "timeout": "20ms"}, "hang", 1),
        ({"max_retries": 0, "retry_on": ValueError}, "value", 1),
    ],
)
async def test_types_of_exceptions_decide_about_another_attempt(
    connect: Connect, options: dict[str, Any], what: str, attempts: int
) -> None:
    app, one, ran = app_of(**options)
    async with connect(app=app) as consumers:
        await consumers.world.start(one, what, run_id="r")

        await consumers.drain()

        assert [info.attempt for info in ran] == list(range(1, attempts + 1))
        kinds = consumers.kinds("r")
        assert (kinds.count(EventKind.STEP_RETRYING), kinds.count(EventKind.STEP_FAILED)) == (attempts - 1, 1)


async def test_a_fatal_type_reaches_the_body_as_itself(connect: Connect) -> None:
    app, one, _ = app_of(fatal=ValueError)
    async with connect(app=app) as consumers:
        run = await consumers.world.start(one, "value", run_id="r")
        await consumers.drain()

        assert await run.result(timeout=5) == "ValueError"


@pytest.mark.parametrize(
    ("what", "least", "most"),
    [("tomorrow", 86_390_000, 86_400_000), ("soon", 1, 1), ("careless", 1_000, 1_000), ("undecided", 1, 1)],
    ids=["a moment", "unreadable", "never set", "raises"],
)
async def test_retry_after_may_be_a_moment_and_what_cannot_be_read_leaves_it_to_the_backoff(
    connect: Connect, what: str, least: int, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    app, one, _ = app_of()
    async with connect(app=app) as consumers:
        now = consumers.world.now_ms()
        consumers.world.clock = lambda: now
        await consumers.world.start(one, what, run_id="r")
        await consumers.wake()

        [(due, _)] = consumers.delayed()
        assert now + least <= due <= now + most
        assert ("retry_after" in caplog.text) == (what in ("soon", "undecided"))


@pytest.mark.parametrize("error", [GeneratorExit(), SystemExit(2), KeyboardInterrupt()])
async def test_a_sync_step_that_raises_what_is_no_exception_fails_like_others(
    connect: Connect, error: BaseException
) -> None:
    app = Workflows()

    @app.step(max_retries=0)
    def raises() -> None:
        raise error

    @app.workflow
    async def one() -> None:
        await raises()

    async with connect(app=app) as consumers:
        run = await consumers.world.start(one)
        await consumers.drain()

        with pytest.raises(RunFailed, match=rf"the step's body raised {type(error).__name__}") as failed:
            await run.result(timeout=5)
        assert "in raises" in (failed.value.error.traceback or ""), "it says what, but not where"


# -- metadata


async def test_metadata_tells_the_attempt_the_retries_left_and_the_deadline(connect: Connect) -> None:
    app, one, ran = app_of(max_retries=1, timeout="1h")
    async with connect(app=app) as consumers:
        await consumers.world.start(one, "value", run_id="r")
        await consumers.drain()

    first, second = ran
    assert isinstance(first, StepInfo)
    assert (first.run_id, first.step_name, first.step_id) == ("r", "act", second.step_id)
    assert (first.attempt, first.max_attempts, first.retries_left) == (1, 2, 1)
    assert (second.attempt, second.max_attempts, second.retries_left) == (2, 2, 0)
    assert first.step_started_at == second.step_started_at
    assert first.deadline is not None
    assert timedelta(minutes=59) < first.deadline - datetime.now(UTC) <= timedelta(hours=1)
    app, one, ran = app_of()
    async with connect(app=app) as consumers:
        await consumers.world.start(one, "ok", run_id="r2")
        await consumers.drain()
    assert ran[0].deadline is None


# -- sync steps


async def test_as_many_sync_steps_run_at_once_as_the_concurrency_says(connect: Connect) -> None:
    """More than the 40 that anyio's own limiter lets run, and none of its places is taken."""
    async with connect(app=outside_app.wf, concurrency=100) as consumers:
        outside_app.together = threading.Barrier(100)  # broken, and the steps fail, unless 100 meet
        limiter = anyio.to_thread.current_default_thread_limiter()
        async with working(consumers):
            run = await consumers.world.start(outside_app.gathering, 100)

            assert await run.result(timeout=60) == sum(range(100))
        assert limiter.borrowed_tokens == 0


async def test_threads_of_the_application_do_not_wait_for_sync_steps(connect: Connect) -> None:
    """All places of sync steps are taken, and an async step still finds a thread."""
    app, entered, gate = Workflows(), [], threading.Event()

    @app.step
    def holds() -> None:
        entered.append(1)
        gate.wait(20)

    @app.step
    async def opens() -> bool:
        while len(entered) < 45:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return await anyio.to_thread.run_sync(lambda: gate.set() or gate.is_set())  # type: ignore[func-returns-value]

    @app.workflow
    async def both() -> bool:
        results = await asyncio.gather(*(holds() for _ in range(45)), opens())
        return bool(results[-1])

    async with connect(app=app, concurrency=46) as consumers, working(consumers):
        run = await consumers.world.start(both)

        assert await run.result(timeout=60) is True


async def test_a_sync_step_that_times_out_is_tried_again_while_its_thread_goes_on(connect: Connect) -> None:
    app, gate, attempts = Workflows(), threading.Event(), []

    @app.step(timeout="50ms", max_retries=1, backoff=FAST)
    def hangs() -> str:
        attempts.append(get_step_metadata().attempt)
        if attempts[-1] == 1:
            gate.wait(20)
        return f"attempt {attempts[-1]}"

    @app.workflow
    async def one() -> str:
        return await hangs()

    async with connect(app=app) as consumers:
        run = await consumers.world.start(one, run_id="r")
        await consumers.drain()

        assert await run.result(timeout=5) == "attempt 2"
        assert consumers.step_slots.held == 1  # the thread of attempt 1 keeps its place
        gate.set()
        with anyio.fail_after(10):
            while consumers.step_slots.held:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert consumers.kinds("r").count(EventKind.STEP_COMPLETED) == 1


async def test_a_def_that_gives_an_awaitable_is_awaited(connect: Connect) -> None:
    def traced(func: Any) -> Any:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        return wrapper

    app = Workflows()

    @app.step
    @traced
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @app.workflow
    async def one(n: int) -> int:
        return int(await double(n))

    async with connect(app=app) as consumers:
        run = await consumers.world.start(one, 4)
        await consumers.drain()

        assert await run.result(timeout=5) == 8


async def test_an_async_step_that_times_out_may_await_in_its_clean_up(connect: Connect) -> None:
    app, seen = Workflows(), []

    @app.step(timeout="50ms", max_retries=0)
    async def lock() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("releasing")
            await asyncio.sleep(0.05)
            seen.append("released")

    @app.workflow
    async def one() -> str:
        try:
            await lock()
        except StepTimeout as error:
            return str(error)
        return "ended"

    async with connect(app=app) as consumers:
        run = await consumers.world.start(one)
        await consumers.drain()

        assert await run.result(timeout=5) == "step 'lock' ran longer than its timeout of 0.05 s"
    assert seen == ["releasing", "released"]


async def test_an_async_step_that_swallows_the_cancellation_of_its_timeout_is_cancelled_again(
    connect: Connect,
) -> None:
    app = Workflows()

    @app.step(timeout="50ms", max_retries=0)
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        await anyio.sleep_forever()

    @app.workflow
    async def one() -> str:
        try:
            await stubborn()
        except StepTimeout:
            return "timed out"
        return "ended"

    async with connect(app=app) as consumers:
        run = await consumers.world.start(one)
        await consumers.drain()

        assert await run.result(timeout=5) == "timed out"


@pytest.mark.parametrize("inline", [0, 1])
async def test_what_a_step_sets_in_a_context_variable_reaches_no_other_step(connect: Connect, inline: int) -> None:
    app, tenant = Workflows(), ContextVar("tenant", default="nobody")

    @app.step
    async def on_the_loop(name: str) -> list[str]:
        before = tenant.get()
        tenant.set(name)
        await asyncio.sleep(0)
        return [before, await asyncio.create_task(_tenant()), tenant.get()]

    @app.step
    def in_a_thread(name: str) -> list[str]:
        before = tenant.get()
        tenant.set(name)
        return [before, tenant.get()]

    async def _tenant() -> str:
        return tenant.get()

    @app.workflow
    async def three() -> list[list[str]]:
        return [await on_the_loop("a"), await on_the_loop("b"), await in_a_thread("c"), await on_the_loop("d")]

    async with connect(app=app, max_inline_steps=inline) as consumers:
        run = await consumers.world.start(three)
        await consumers.drain()

        assert await run.result(timeout=5) == [
            ["nobody", "a", "a"],
            ["nobody", "b", "b"],
            ["nobody", "c"],
            ["nobody", "d", "d"],
        ]


# -- steps within steps


async def test_a_step_calls_other_steps_as_functions_in_its_own_attempt(connect: Connect) -> None:
    app, infos = Workflows(), []

    @app.step
    async def double(n: int) -> int:
        infos.append(get_step_metadata())
        return 2 * n

    @app.step
    def add_one(n: int) -> int:
        infos.append(get_step_metadata())
        return n + 1

    @app.step
    async def outer_async(n: int) -> int:
        return add_one(await double(n))  # type: ignore[arg-type, return-value]

    @app.step
    def outer_sync(n: int) -> int:
        return add_one(anyio.from_thread.run(double, n))  # type: ignore[return-value]

    @app.workflow
    async def both(n: int) -> list[int]:
        return [await outer_async(n), await outer_sync(n)]

    async with connect(app=app) as consumers:
        run = await consumers.world.start(both, 4, run_id="r")
        await consumers.drain()

        assert await run.result(timeout=5) == [9, 9]
        created = [event.detail for event in consumers.log("r") if event.kind is EventKind.STEP_CREATED]
        assert created == ["outer_async", "outer_sync"]
        assert [info.step_name for info in infos] == ["outer_async"] * 2 + ["outer_sync"] * 2


async def test_a_sync_body_that_raises_stop_iteration_fails_and_does_not_hang(connect: Connect) -> None:
    app = Workflows()

    @app.step(max_retries=0)
    def first_of_none() -> Any:
        return next(iter([]))

    @app.workflow
    async def one() -> Any:
        return await first_of_none()

    async with connect(app=app) as consumers:
        run = await consumers.world.start(one)
        started = time.monotonic()
        await consumers.drain()

        with pytest.raises(RunFailed, match="StopIteration"):
            await run.result(timeout=5)
        assert time.monotonic() - started < 10
