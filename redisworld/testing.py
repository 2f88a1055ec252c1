"""What does an application need to test its workflows? A World with a worker, inside the test's own process."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from consumers.worker import Worker
from redisworld.errors import InvalidInput
from redisworld.settings import Settings
from redisworld.workflows import Workflows
from redisworld.world import EMBEDDED_URL, World


@asynccontextmanager
async def working(app: Workflows, *, settings: Settings | None = None) -> AsyncIterator[World]:
    """A World with a worker of this application, for the length of the context.

    Without ``settings`` it is on an embedded Redis (extra ``redisworld[embedded]``) that nobody else has. At the
    end the worker drains; where the test has failed it is cancelled. An error inside the context arrives as itself.
    Raises InvalidInput for another kind of object and without the extra, and as ``World.connect``.
    """
    if not isinstance(app, Workflows):
        raise InvalidInput(f"working() takes the Workflows object of an application, not {app!r:.100}")
    settings = settings or Settings(url=f"{EMBEDDED_URL}/{secrets.token_hex(8)}")
    async with World.connect(settings=settings) as world:
        worker = Worker(world, app)
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            try:
                yield world
            except BaseException as error:
                failure = error  # the test's own: the task group would wrap it
                tasks.cancel_scope.cancel()
            else:
                worker.stop()
        if failure is not None:
            raise failure
