"""What does a Worker say of a world, an application and queues that are none, or that nobody uses?"""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from consumers.worker import Worker
from redisworld import InvalidInput, World
from tests.apps import conf_app

pytestmark = pytest.mark.anyio

TAKES_AN_APPLICATION = "takes the Workflows object of an application, not "


@pytest.mark.parametrize(
    ("app", "queues", "told"),
    [
        (None, None, TAKES_AN_APPLICATION + "None"),
        (conf_app.chain, None, TAKES_AN_APPLICATION + "<workflow chain>"),
        (conf_app, None, TAKES_AN_APPLICATION + "<module"),
        (conf_app.wf, "gpu", r"takes names of queues, like \['gpu'\], not 'gpu'"),
        (conf_app.wf, 1, "takes names of queues, .*, not 1"),
        (conf_app.wf, [None], "queue None must be a plain word"),
        (conf_app.wf, ["a:b"], "queue 'a:b' must be a plain word"),
    ],
)
async def test_what_is_no_application_or_no_queue_is_refused(redis_url: str, app: Any, queues: Any, told: str) -> None:
    """It was an AttributeError, and a text was taken for queues of one letter."""
    async with World.connect(redis_url) as world:
        with pytest.raises(InvalidInput, match=told):
            Worker(world, app, queues=queues)


def test_what_is_no_world_is_refused() -> None:
    url: Any = "redis://localhost"
    with pytest.raises(InvalidInput, match="works in a World that is connected, not in 'redis://localhost'"):
        Worker(url, conf_app.wf)


async def test_a_queue_that_no_step_uses_is_served_and_named(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Steps of the version before may be in it, so it is no error; a slip of the pen looks alike."""
    async with World.connect(redis_url) as world, anyio.create_task_group() as tasks:
        worker = Worker(world, conf_app.wf, queues=["gpu"])
        tasks.start_soon(worker.run)
        with anyio.fail_after(10):
            while worker.health.ready() is not None:  # noqa: ASYNC110  # it is asked, as by a probe
                await anyio.sleep(0.02)
        worker.stop()
    assert {name for _, name in worker.streams} >= {"steps", "steps:gpu"}
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "no step of the application uses this queue: queue=gpu"
    ]
