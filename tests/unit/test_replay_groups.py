"""Which completions wake a run: is every open step assigned as the body observes it?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redisworld.replay import Assign, SealGroup, sleep
from redisworld.workflows import Workflow, Workflows
from tests.unit.replay_driver import Driver

wf = Workflows()


@wf.step
async def work(x: int) -> str:
    return str(x)


@wf.step
async def other(x: int) -> str:
    return str(x)


def drive(body: Any, **options: Any) -> Driver:
    workflow: Workflow[..., Any] = Workflow(body)
    return Driver(workflow, **options)


def groups(driver: Driver) -> list[str]:
    """What the store holds for the open steps, in the order they were asked for."""
    return [driver.store.groups[id] for id in driver.store.open]


async def one_await() -> str:
    return await work(1)


async def gather_all() -> Any:
    return await asyncio.gather(work(1), work(2), work(3), return_exceptions=True)


async def gather_fail_fast() -> Any:
    return await asyncio.gather(work(1), work(2), work(3))


async def gather_of_one() -> Any:
    return await asyncio.gather(work(1))


async def gather_in_a_task() -> Any:
    return await asyncio.wait_for(asyncio.gather(work(1), work(2)), None)


async def gather_of_tasks() -> Any:
    return await asyncio.gather(asyncio.create_task(work(1)), asyncio.create_task(work(2)))


async def gather_with_a_chain() -> Any:
    async def chain() -> str:
        return await other(3)

    return await asyncio.gather(work(1), chain(), work(2), sleep(5))


async def two_gathers() -> Any:
    return await asyncio.gather(asyncio.gather(work(1), work(2)), asyncio.gather(work(3), work(4)))


async def task_group() -> None:
    async with asyncio.TaskGroup() as group:
        for x in range(3):
            group.create_task(work(x))


async def wait_first() -> None:
    await asyncio.wait([asyncio.create_task(work(x)) for x in range(2)], return_when=asyncio.FIRST_COMPLETED)


async def completed_in_order() -> None:
    for coro in asyncio.as_completed([work(1), work(2)]):
        await coro


async def wait_for_one() -> None:
    await asyncio.wait_for(work(1), 10)


async def shielded() -> None:
    await asyncio.shield(work(1))


async def task_awaited() -> str:
    return await asyncio.create_task(work(1))


async def task_of_a_coroutine() -> None:
    async def inner() -> str:
        return await work(1)

    task = asyncio.create_task(inner())
    await sleep(9)
    await task


async def task_nobody_awaits() -> None:
    task = asyncio.create_task(work(1))
    await sleep(9)
    del task


async def gather_with_an_eye_on_one() -> Any:
    first = asyncio.create_task(work(1))
    first.add_done_callback(lambda _: None)
    return await asyncio.gather(first, work(2), work(3))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (one_await, [""]),
        (gather_all, ["g1", "g1", "g1"]),
        (gather_fail_fast, ["g1", "g1", "g1"]),
        (gather_of_one, [""]),
        (gather_in_a_task, ["g1", "g1"]),
        (gather_of_tasks, ["g1", "g1"]),
        (gather_with_a_chain, ["g1", "g1", ""]),
        (two_gathers, ["g1", "g1", "g3", "g3"]),
        (task_group, ["g1", "g1", "g1"]),
        (wait_first, ["", ""]),
        (completed_in_order, ["", ""]),
        (wait_for_one, [""]),
        (shielded, [""]),
        (task_awaited, [""]),
        (task_of_a_coroutine, [""]),
        (task_nobody_awaits, ["-"]),
        (gather_with_an_eye_on_one, ["", "g1", "g1"]),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_steps_are_assigned_as_the_body_observes_them(body: Any, expected: list[str]) -> None:
    assert groups(drive(body)) == expected


def test_the_mode_of_a_group_says_whether_a_failure_wakes() -> None:
    assert drive(gather_all).store.modes == {"g1": "all"}
    assert drive(gather_fail_fast).store.modes == {"g1": "fail_fast"}
    assert drive(task_group).store.modes == {"g1": "fail_fast"}


def test_a_fan_out_is_one_wake() -> None:
    driver = drive(gather_fail_fast)

    driver.run()

    assert len(driver.store.passes) == 2


def test_the_first_failure_of_a_gather_wakes_and_leaves_the_others_unobserved() -> None:
    async def body() -> None:
        try:
            await asyncio.gather(work(1), work(2), work(3))
        except ValueError:
            await other(4)

    driver = drive(body, script=lambda name, x: ValueError("x") if x == 2 else name)
    failing, *rest = driver.named("work")[1], driver.named("work")[0], driver.named("work")[2]
    driver.finish(failing)

    assert driver.store.passes[-1][1].assigns == [Assign(id, "-") for id in sorted(rest)]
    assert driver.named("other")


def test_a_tolerant_gather_is_not_woken_by_a_failure() -> None:
    driver = drive(gather_all, script=lambda name, x: ValueError("x") if x == 2 else name)

    driver.finish(driver.named("work")[1])

    assert len(driver.store.passes) == 1


def test_a_gather_that_failed_by_a_child_that_is_no_step_leaves_its_steps_unobserved() -> None:
    async def body() -> None:
        async def breaks() -> None:
            await sleep(1)
            raise ValueError

        try:
            await asyncio.gather(work(1), work(2), breaks())
        except ValueError:
            await sleep(1)

    driver = drive(body)
    driver.finish(next(iter(driver.store.waits)))

    assert groups(driver) == ["-", "-"]


def test_a_background_task_awaited_later_is_observed_from_then_on() -> None:
    async def body() -> str:
        task = asyncio.create_task(work(1))
        await sleep(1)
        return await task

    driver = drive(body)
    assert groups(driver) == ["-"]
    driver.finish(next(iter(driver.store.waits)))

    assert groups(driver) == [""]
    assert driver.store.passes[-1][1].assigns == [Assign(driver.named("work")[0], "")]


def test_a_task_that_joins_a_group_later_brings_the_group_about() -> None:
    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work(1))
            await sleep(1)
            group.create_task(work(2))

    driver = drive(body)
    assert groups(driver) == [""]
    driver.finish(next(iter(driver.store.waits)))

    asked = driver.store.passes[-1][1]
    first, second = driver.named("work")
    assert asked.assigns == [Assign(first, "g1")]
    assert [(step.id, step.group) for step in asked.steps] == [(second, "g1")]
    assert asked.groups == [SealGroup("g1", "fail_fast")]


def test_two_joins_with_the_same_first_step_are_two_groups() -> None:
    """Under one name the end of the first gather was told with that of the second only."""

    async def body() -> list[str]:
        shared, *others = [asyncio.create_task(work(number)) for number in range(5)]
        first = asyncio.gather(shared, *others[:2])
        second = asyncio.gather(shared, *others[2:], return_exceptions=True)
        return [*await first, *await second]

    driver = drive(body)

    asked = driver.store.passes[-1][1]
    assert groups(driver) == ["", "g1", "g1", "g1.1", "g1.1"]
    assert asked.groups == [SealGroup("g1", "fail_fast"), SealGroup("g1.1", "all")]


def test_a_cancelled_wait_for_leaves_its_step_unobserved() -> None:
    async def body() -> None:
        try:
            await asyncio.wait_for(work(1), 10)
        except TimeoutError:
            await other(2)

    driver = drive(body)
    driver.finish(next(iter(driver.store.waits)))

    assert groups(driver) == ["-", ""]


def test_a_shielded_step_goes_on_unobserved_when_its_waiter_is_cancelled() -> None:
    async def body() -> str:
        step = asyncio.create_task(work(1))
        try:
            async with asyncio.timeout(5):
                await asyncio.shield(step)
        except TimeoutError:
            await other(2)
        return await step

    driver = drive(body)
    driver.finish(next(iter(driver.store.waits)))
    assert groups(driver) == ["-", ""]
    driver.finish(driver.named("other")[0])
    assert groups(driver) == [""]

    assert driver.run() == "work:1"


def test_nothing_is_assigned_again_when_nothing_changed() -> None:
    async def body() -> None:
        await asyncio.gather(work(1), work(2), chain(), chain())

    async def chain() -> None:
        await other(1)
        await other(2)

    driver = drive(body)
    driver.finish(driver.named("other")[0])

    asked = driver.store.passes[-1][1]
    assert (asked.assigns, asked.groups) == ([], [])


def test_a_long_body_keeps_no_joins_it_is_done_with() -> None:
    async def body() -> None:
        for _ in range(20):
            await asyncio.gather(work(1), work(2))

    driver = drive(body)
    driver.run()

    kept = driver.instance._body.groups
    assert not kept._joins
