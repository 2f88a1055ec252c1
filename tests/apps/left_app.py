"""An application whose steps leave threads and tasks behind that go on for longer than any worker waits."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

from redisworld import Workflows

wf = Workflows()
tasks: list[asyncio.Task[None]] = []
LONG_S = 600


@wf.step
async def in_the_executor() -> str:
    asyncio.get_running_loop().run_in_executor(None, time.sleep, LONG_S)
    return "left"


@wf.step
def in_a_thread() -> str:
    threading.Thread(target=time.sleep, args=(LONG_S,), name="forgotten").start()
    return "left"


async def deaf() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG_S)


@wf.step
async def in_a_task() -> str:
    tasks.append(asyncio.create_task(deaf()))
    return "left"


@wf.workflow
async def leaves(where: str) -> str:
    return await {"executor": in_the_executor, "thread": in_a_thread, "task": in_a_task}[where]()
