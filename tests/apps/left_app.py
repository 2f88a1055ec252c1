"""An application whose steps leave threads behind that go on for longer than any worker waits."""

from __future__ import annotations

import asyncio
import threading
import time

from redisworld import Workflows

wf = Workflows()
LONG_S = 600


@wf.step
async def in_the_executor() -> str:
    asyncio.get_running_loop().run_in_executor(None, time.sleep, LONG_S)
    return "left"


@wf.step
def in_a_thread() -> str:
    threading.Thread(target=time.sleep, args=(LONG_S,), name="forgotten").start()
    return "left"


@wf.workflow
async def leaves(where: str) -> str:
    return await (in_the_executor() if where == "executor" else in_a_thread())
