"""Is what cannot be replayed refused by name, and does a dropped body leave nothing behind?"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import anyio
import pytest

from redisworld import values
from redisworld.errors import InvalidInput
from redisworld.metadata import get_step_metadata, get_workflow_metadata
from redisworld.replay import Instance, current, hook, loop, now, patched, random, sleep, uuid4
from redisworld.telling import get_writable, set_attributes
from redisworld.workflows import Workflow, Workflows
from tests.unit.replay_driver import START, Driver, Store

wf = Workflows()
performed: list[str] = []


@wf.step
async def work(x: int) -> str:
    performed.append(f"work {x}")
    return str(x)


def drive(body: Any, **options: Any) -> Driver:
    workflow: Workflow[..., Any] = Workflow(body)
    return Driver(workflow, **options)


def start(body: Any) -> Instance:
    instance = Instance(run_id="r", workflow=Workflow(body), input=values.encode({}), at=START)
    instance.start()
    return instance


async def in_thread() -> None:
    await asyncio.to_thread(print)


async def connects() -> None:
    await asyncio.open_connection("localhost", 1)


async def resolves() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 1)


async def spawns() -> None:
    await asyncio.create_subprocess_exec("true")


async def reaches_out() -> None:
    asyncio.get_running_loop().call_soon_threadsafe(print)


async def watches_a_socket() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def traps_signals() -> None:
    asyncio.get_running_loop().add_signal_handler(15, print)


@pytest.mark.parametrize(
    ("body", "call"),
    [
        (in_thread, "run_in_executor"),
        (connects, "create_connection"),
        (resolves, "getaddrinfo"),
        (spawns, "subprocess_exec"),
        (reaches_out, "call_soon_threadsafe"),
        (watches_a_socket, "add_reader"),
        (traps_signals, "add_signal_handler"),
    ],
)
def test_what_cannot_be_replayed_is_refused_naming_the_call_and_the_way_out(body: Any, call: str) -> None:
    error = drive(body).run()

    assert error.type.endswith("ForbiddenInWorkflow")
    assert f"loop.{call}()" in error.message
    assert "move it into a step" in error.message
    assert f"({__file__}:" in error.message


def test_as_completed_over_coroutines_is_refused_and_over_tasks_taken() -> None:
    async def chain(x: int) -> str:
        return await work(x)

    async def unordered() -> None:
        for coro in asyncio.as_completed([chain(1), chain(2)]):
            await coro

    async def ordered() -> list[str]:
        return [await coro for coro in asyncio.as_completed([asyncio.create_task(chain(x)) for x in (1, 2)])]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python complains of the coroutines it did not start
        assert "give it tasks" in drive(unordered).run().message
        gc.collect()
    assert drive(ordered).run() == ["work:1", "work:2"]


def test_a_body_that_polls_for_ever_fails_instead_of_blocking_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spins() -> None:
        while True:  # noqa: ASYNC110  # the mistake this is about
            await asyncio.sleep(0)

    monkeypatch.setattr(loop, "MAX_HANDLES", 1_000)

    message = drive(spins).run().message
    assert "does it poll in a loop?" in message
    assert f"({__file__}:{spins.__code__.co_firstlineno + 2})" in message


@pytest.mark.parametrize("delay", [float("nan"), 1e12])
def test_timers_beyond_a_hundred_years_are_refused(delay: float) -> None:
    async def body() -> None:
        asyncio.get_running_loop().call_later(delay, print)

    assert "out of range" in drive(body).run().message


def test_a_timer_that_never_fires_is_no_wait() -> None:
    async def body() -> str:
        for_ever = asyncio.create_task(asyncio.sleep(float("inf")))
        done = await work(1)
        for_ever.cancel()
        return done

    driver = drive(body)
    assert driver.store.waits == {}
    assert driver.run() == "work:1"
    driver.check_every_prefix()


@pytest.mark.parametrize("by_anyio", [False, True])
def test_what_polls_a_deadline_finds_it_reached_by_its_timer(by_anyio: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_HANDLES", 1_000)  # a double a hair above its millisecond was never reached

    async def body() -> None:
        for delay_ms in range(1, 501):
            if by_anyio:
                with anyio.move_on_after(delay_ms / 1_000) as scope:
                    await anyio.sleep_forever()
                deadline = scope.deadline
            else:
                deadline = asyncio.get_running_loop().time() + delay_ms / 1_000
                reached = asyncio.Event()
                asyncio.get_running_loop().call_at(deadline, reached.set)
                await reached.wait()
            assert asyncio.get_running_loop().time() >= deadline

    store = Store()
    store.tick_ms = 0
    driver = drive(body, store=store)
    assert driver.run() is None
    assert store.clock == START + sum(range(1, 501))


def test_a_body_runs_inside_a_running_loop_and_leaves_it_as_it_was() -> None:
    async def worker() -> None:
        outer, task = asyncio.get_running_loop(), asyncio.current_task()
        instance = start(waits)
        assert asyncio.get_running_loop() is outer
        assert asyncio.current_task() is task
        assert current() is None
        await asyncio.sleep(0)
        instance.close()

    asyncio.run(worker())
    assert gc.isenabled()


async def waits() -> str:
    return await work(1)


def test_the_workers_context_does_not_reach_the_body_and_the_bodys_own_works() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("the worker's")

    async def child() -> str:
        await work(1)
        return variable.get()

    async def body() -> list[str]:
        before = variable.get()
        variable.set("the body's")
        task = asyncio.create_task(child())
        variable.set("later")
        return [before, await task, variable.get()]

    assert drive(body).run() == ["unset", "the body's", "later"]
    assert variable.get() == "the worker's"


def test_task_names_count_from_one_in_every_instance() -> None:
    async def body() -> list[str]:
        task = asyncio.create_task(work(1))
        return [asyncio.current_task().get_name(), task.get_name()]  # type: ignore[union-attr]

    assert drive(body).run() == drive(body).run()


OUTSIDE: dict[str, Callable[[], object]] = {
    "redisworld's now()": now,
    "redisworld's random()": random,
    "redisworld's uuid4()": uuid4,
    "redisworld's hook()": hook,
    "redisworld's patched()": lambda: patched("gate"),
    "redisworld's sleep()": lambda: asyncio.run(sleep(1)),
    "get_step_metadata()": get_step_metadata,
    "get_workflow_metadata()": get_workflow_metadata,
    "get_writable()": get_writable,
    "set_attributes()": lambda: asyncio.run(set_attributes(a="1")),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_called_outside_a_body_is_refused_by_its_own_name(name: str) -> None:
    """uuid4() complained of random()."""
    with pytest.raises(InvalidInput) as refused:
        OUTSIDE[name]()
    assert str(refused.value).startswith(f"{name} ")


def test_a_naive_datetime_is_refused() -> None:
    async def body() -> None:
        await sleep(datetime(2030, 1, 1))

    assert "add a tzinfo" in drive(body).run().message


def test_errors_nobody_awaits_are_kept_for_the_logs_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async def breaks() -> None:
        raise ValueError("lost")

    async def body() -> None:
        asyncio.create_task(breaks())  # noqa: RUF006  # nobody awaits it on purpose
        await work(1)

    instance = start(body)
    gc.collect()

    assert [context["exception"].args for context in instance.unhandled] == [("lost",)]
    assert capsys.readouterr().err == ""


# --- dropping -----------------------------------------------------------------------------------------------------


async def cleans_up_with_steps() -> None:
    try:
        await work(1)
    finally:
        performed.append("synchronous clean-up")
        await work(2)
        performed.append("never")


async def sleeps_in_finally() -> None:
    try:
        await work(1)
    finally:
        await asyncio.sleep(1)
        performed.append("never")


async def insists() -> None:
    gate = asyncio.Event()
    while True:
        try:
            await work(1)
        except BaseException:
            performed.append("caught")
            task = asyncio.current_task()
            assert task is not None
            await gate.wait()


async def swallows_everything() -> None:
    other = asyncio.create_task(work(9))
    for _ in range(50):
        try:
            await other
        except BaseException:
            continue


async def tries_on_with_steps() -> None:
    while True:
        try:
            await work(1)
        except BaseException:
            continue


async def tries_on_with_sleeps() -> None:
    while True:
        with suppress(BaseException):
            await sleep(1)


async def tries_on_with_groups() -> None:
    while True:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(work(1))
        except BaseException:
            continue


async def in_task_groups() -> None:
    async def child() -> None:
        try:
            async with asyncio.timeout(50), asyncio.Lock():
                await work(1)
        finally:
            await work(2)

    async with asyncio.TaskGroup() as group:
        group.create_task(child())
        group.create_task(work(3))
        coroutines = [child(), child()]
        await asyncio.gather(work(4), sleep(4))
        for coroutine in coroutines:
            await coroutine


async def numbers() -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        await work(5)


async def all_children_of_a_group_done() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        await work(1)


async def exits_in_finally() -> None:
    try:
        await work(1)
    finally:
        sys.exit("in a clean-up")


async def in_an_async_generator() -> None:
    async for number in numbers():
        await work(number)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "body",
    [
        *(cleans_up_with_steps, sleeps_in_finally, insists, swallows_everything, in_task_groups, in_an_async_generator),
        *(all_children_of_a_group_done, exits_in_finally),
        *(tries_on_with_steps, tries_on_with_sleeps, tries_on_with_groups),
    ],
)
def test_a_dropped_body_awaits_nothing_performs_nothing_and_prints_nothing(
    body: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    performed.clear()
    instance = start(body)
    before = instance.open_steps()

    instance.close()
    instance.close()
    assert instance.open_steps() == before
    del instance
    gc.collect()

    assert not [entry for entry in performed if entry.startswith(("work", "never"))]
    assert capfd.readouterr() == ("", "")
    assert unraisable == []


def test_an_async_generator_left_early_is_finished_by_the_body_in_every_replay_alike() -> None:
    async def body() -> str:
        async for _ in numbers():
            break
        return await work(7)

    driver = drive(body)

    assert sorted(driver.store.open.values())[0][0] == "work"
    assert len(driver.store.open) == 2
    driver.run()
    driver.check_every_prefix()
