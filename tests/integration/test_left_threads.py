"""Does a worker end in time when steps that have ended left threads or tasks behind, or when none has begun yet?"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redisworld import World
from tests.apps import left_app
from tests.chaos.processes import until
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


def test_the_first_process_of_a_container_ends_at_a_sigterm_that_comes_before_its_worker_runs() -> None:
    """Linux kept it from that process: it waited on for Redis, or imported on and took work, until it was killed."""
    new = [shutil.which("unshare") or "unshare", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*new, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no process id namespaces here")
    command = [sys.executable, "-m", "redisworld", "worker", "--timers-only", "--url", "redis://127.0.0.1:1/0"]
    with subprocess.Popen(
        [*new, *command], cwd=cli_process.ROOT, env=cli_process.environment(), stderr=subprocess.PIPE, text=True
    ) as outer:
        assert outer.stderr is not None
        until(lambda: "repeating" in outer.stderr.readline())
        (first,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert outer.wait(10) == 128 + signal.SIGTERM
