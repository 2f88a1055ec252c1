"""Are tasks of a step's body contained, and those of everybody else left as they are?"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import anyio
import pytest

from consumers.children import contained_children
from redisworld.metadata import StepInfo, WorkflowInfo, current_step

pytestmark = pytest.mark.anyio
SCOPE = SimpleNamespace(info=StepInfo("r", "s1", "step", 1, datetime.now(UTC)), workflow=WorkflowInfo("r", "flow"))


async def exits() -> None:
    await asyncio.sleep(0)
    sys.exit(3)


async def test_a_child_that_exits_fails_with_an_error_that_says_so() -> None:
    with contained_children():
        current_step.set(SCOPE)
        with pytest.raises(RuntimeError, match="a task of the step's body raised SystemExit: 3"):
            await asyncio.create_task(exits())


async def test_children_work_as_ever() -> None:
    async def cleans_up() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return "cleaned up"
        return "?"

    with contained_children():
        current_step.set(SCOPE)
        child = asyncio.create_task(cleans_up(), name="mine")
        unstarted = asyncio.create_task(cleans_up())
        unstarted.cancel()
        await asyncio.sleep(0)
        assert "cleans_up" in repr(child)
        child.cancel()
        assert await child == "cleaned up"
        assert unstarted.cancelled()
        with anyio.move_on_after(0.01):
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)


async def test_tasks_of_others_and_the_factory_of_the_loop_are_left_alone() -> None:
    loop, made = asyncio.get_running_loop(), []

    def factory(loop: asyncio.AbstractEventLoop, coro: object, **options: object) -> asyncio.Task[object]:
        made.append(coro)
        return asyncio.Task(coro, loop=loop, **options)  # type: ignore[arg-type]

    loop.set_task_factory(factory)  # type: ignore[arg-type]
    try:
        with contained_children():
            await asyncio.create_task(asyncio.sleep(0))
            assert asyncio.iscoroutine(made[0])
            assert type(made[0]).__name__ == "coroutine"
        assert loop.get_task_factory() is factory
    finally:
        loop.set_task_factory(None)
