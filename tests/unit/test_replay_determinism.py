"""Does every replay of every prefix of a log ask for the same, in any order of completions, in any process?"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redisworld.replay import Instance, hook, now, random, sleep, uuid4
from redisworld.workflows import Workflow, Workflows
from tests.unit.replay_driver import START, Driver

wf = Workflows()


@wf.step
async def work(x: int) -> str:
    return str(x)


@wf.step
async def charge(x: int) -> str:
    return str(x)


@wf.step
async def follow(name: str) -> str:
    return name


@wf.workflow
async def fan_out() -> list[str]:
    thumbs = await asyncio.gather(*(work(w) for w in (64, 256, 1024)))
    await sleep("1h")
    return thumbs


@wf.workflow
async def fan_out_tolerant() -> list[Any]:
    found = await asyncio.gather(*(charge(x) for x in range(4)), return_exceptions=True)
    return [str(item) for item in found]


@wf.workflow
async def fan_out_failing() -> str:
    try:
        await asyncio.gather(*(charge(x) for x in range(4)), sleep(60))
    except ValueError as error:
        await work(1)
        return f"caught {error}"
    return "none failed"


@wf.workflow
async def nested() -> Any:
    return await asyncio.gather(asyncio.gather(work(1), work(2)), asyncio.gather(work(3), work(4)), chain(5))


async def chain(x: int) -> str:
    first = await work(x)
    await asyncio.sleep(1)
    return first + await follow(first)


@wf.workflow
async def chains() -> list[str]:
    return await asyncio.gather(*(chain(x) for x in range(3)))


@wf.workflow
async def task_group() -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(x)) for x in range(3)]
        await follow("inside")
        tasks.append(group.create_task(work(9)))
    return [task.result() for task in tasks]


@wf.workflow
async def task_group_failing() -> str:
    try:
        async with asyncio.TaskGroup() as group:
            for x in range(3):
                group.create_task(charge(x))
            group.create_task(chain(7))
    except ExceptionGroup as errors:
        return str(errors)
    return "none failed"


@wf.workflow
async def background() -> str:
    task = asyncio.create_task(work(1))
    await follow("first")
    other = asyncio.create_task(work(2))
    await follow("second")
    return await task + await other


@wf.workflow
async def racing() -> list[str]:
    tasks = {asyncio.create_task(work(x)) for x in range(5)}
    order = []
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            order.append(await follow(task.result()))
    return order


@wf.workflow
async def in_order_of_completion() -> list[str]:
    found = []
    for coro in asyncio.as_completed([work(x) for x in range(5)]):
        found.append(await coro)
        await follow(found[-1])
    return found


@wf.workflow
async def with_timeouts() -> list[str]:
    found = []
    for x in range(3):
        try:
            found.append(await asyncio.wait_for(work(x), 10))
        except TimeoutError:
            found.append("late")
    try:
        async with asyncio.timeout(5):
            await asyncio.gather(work(8), work(9), asyncio.shield(work(10)))
    except TimeoutError:
        found.append("all late")
    return found


@wf.workflow
async def queues_and_locks() -> list[str]:
    queue: asyncio.Queue[int] = asyncio.Queue()
    lock, seen = asyncio.Lock(), []

    async def consumer() -> None:
        while True:
            item = await queue.get()
            async with lock:
                seen.append(await work(item))
            queue.task_done()

    workers = [asyncio.create_task(consumer()) for _ in range(3)]
    for x in range(6):
        queue.put_nowait(x)
    await queue.join()
    for worker in workers:
        worker.cancel()
    return seen


@wf.workflow
async def chance_and_time() -> str:
    first = f"{uuid4()} {random().random()} {now().isoformat()}"
    await work(1)
    loop_time = asyncio.get_running_loop().time()
    await follow(f"{uuid4()} {random().random()} {now().isoformat()} {loop_time}")
    return first


@wf.workflow
async def pairs() -> list[str]:
    tasks = {asyncio.create_task(work(x)) for x in range(2)} | {asyncio.ensure_future(asyncio.gather(work(7), work(8)))}
    first = await work(99)
    waited = {asyncio.shield(asyncio.create_task(work(x))) for x in (4, 5, 6)}
    for future in waited:
        first += await follow(await future)
    await asyncio.wait(tasks)
    return [first]


def failing(name: str, argument: Any) -> Any:
    return ValueError(f"no {argument}") if name == "charge" and argument % 2 else f"{name}:{argument}"


BODIES = sorted(wf.workflows.values(), key=lambda workflow: workflow.name)


@pytest.mark.parametrize("workflow", BODIES, ids=lambda workflow: workflow.name)
@settings(max_examples=30)
@given(data=st.data())
def test_any_order_of_completions_ends_the_run_and_every_prefix_replays_alike(
    workflow: Workflow[..., Any], data: st.DataObject
) -> None:
    driver = Driver(workflow, script=failing)

    driver.run(choose=lambda count: data.draw(st.integers(0, count - 1)))

    driver.check_every_prefix()
    driver.instance.close()


@pytest.mark.parametrize("workflow", BODIES, ids=lambda workflow: workflow.name)
@settings(max_examples=30)
@given(data=st.data())
def test_events_that_come_together_or_before_the_commit_are_neither_lost_nor_replayed_otherwise(
    workflow: Workflow[..., Any], data: st.DataObject
) -> None:
    driver = Driver(workflow, script=failing)
    store = driver.store

    def some_end(at_least: int = 0) -> None:
        candidates = [*store.open, *store.waits]
        for id in data.draw(st.permutations(candidates))[: data.draw(st.integers(at_least, 3))]:
            driver.end(id)

    while driver.instance.outcome is None:
        assert store.woken or store.open or store.waits, "the run is stuck"
        if not store.woken:
            some_end(at_least=1)
        if store.woken:
            driver.step_once(between=some_end)

    driver.check_every_prefix()
    driver.instance.close()


_IN_ANOTHER_PROCESS = """
import random
from tests.unit.test_replay_determinism import BODIES, failing
from tests.unit.replay_driver import START, Driver
for workflow in BODIES:
    driver = Driver(workflow, script=failing)
    chance = random.Random(7)
    driver.run(choose=chance.randrange)
    print(workflow.name, [(p.steps, p.waits, p.groups, p.assigns) for _, p in driver.store.passes])
"""


def test_the_hash_seed_of_a_process_changes_nothing() -> None:
    root = Path(__file__).parents[2]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _IN_ANOTHER_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (0, 1, 2, 3)
    }

    assert len(outputs) == 1


def test_two_runs_get_different_ids_and_random_numbers() -> None:
    first, second = Driver(chance_and_time, run_id="a"), Driver(chance_and_time, run_id="b")

    assert first.run() != second.run()
    assert not {event.id for event in first.store.log} & {event.id for event in second.store.log}


def test_tasks_of_a_body_iterate_as_made_and_those_of_different_bodies_do_not_collide() -> None:
    """asyncio keeps the tasks of all loops in one set: bodies in memory must not make each other slow."""
    seen: list[list[int]] = []
    hashes: set[int] = set()

    async def body() -> None:
        tasks = [asyncio.create_task(asyncio.sleep(60)) for _ in range(20)]
        seen.append([tasks.index(task) for task in set(tasks)])
        hashes.update(map(hash, tasks))

    for number in range(100):
        instance = Instance(run_id=f"r{number}", workflow=Workflow(body), input=b"\x80", at=START)
        instance.start()
        instance.close()

    assert all(order == seen[0] for order in seen)
    assert len(hashes) == 20 * 100


def test_a_set_of_hooks_iterates_alike_in_every_process() -> None:
    async def body() -> list[int]:
        hooks = [hook(token=f"t{number}") for number in range(5)]
        return [hooks.index(found) for found in set(hooks)]

    assert Driver(Workflow(body)).run() == [0, 1, 2, 3, 4]
