"""Who takes over when a worker process has died? A second worker, in the process of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from consumers.worker import Worker
from redisworld import Workflows, World


@asynccontextmanager
async def taking_over(world: World, app: Workflows) -> AsyncIterator[None]:
    """It starts at once, so that waits are the lease's and not the interpreter's."""
    worker = Worker(world, app)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        try:
            yield
        finally:
            worker.stop()
