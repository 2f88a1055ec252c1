"""Does a worker end in time when steps that have ended left threads or tasks behind?"""

from __future__ import annotations

import json

import pytest

from redisworld import World
from tests.apps import left_app
from tests.integration import cli_process

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("where", "name"), [("executor", "asyncio_0"), ("thread", "forgotten")])
async def test_threads_that_steps_left_behind_do_not_hold_up_the_end(redis_url: str, where: str, name: str) -> None:
    with cli_process.worker(redis_url, "--log-format", "json", app="tests.apps.left_app:wf") as worker:
        async with World.connect(redis_url) as world:
            run = await world.start(left_app.leaves, where)
            assert await run.result(timeout=20) == "left"

        worker.process.terminate()
        _, log = worker.process.communicate(timeout=30)

    last = json.loads(log.splitlines()[-1])
    assert (worker.process.returncode, last["level"], last["threads"]) == (0, "warning", name)


async def test_a_task_that_a_step_left_behind_and_nobody_can_cancel_does_not_hold_up_the_end(redis_url: str) -> None:
    with cli_process.worker(redis_url, "--log-format", "json", app="tests.apps.left_app:wf") as worker:
        async with World.connect(redis_url) as world:
            run = await world.start(left_app.leaves, "task")
            assert await run.result(timeout=20) == "left"

        worker.process.terminate()
        _, log = worker.process.communicate(timeout=30)

    [told] = [line for line in map(json.loads, log.splitlines()) if "tasks" in line]
    assert (worker.process.returncode, told["level"], told["tasks"]) == (0, "warning", "deaf")
