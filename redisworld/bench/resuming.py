"""How is a run that waits for a hook resumed, and the time to its next body taken?"""

from __future__ import annotations

import asyncio
import time

from redisworld.bench.marks import NotMeasured
from redisworld.bench.session import Session
from redisworld.errors import HookNotFound


async def waiting(session: Session, token: str) -> None:
    """Return when a hook holds the token. Raises NotMeasured."""
    deadline = time.monotonic() + session.options.timeout_s
    while True:
        try:
            await session.world.hooks.find(token)
        except HookNotFound:
            session.check()
            if time.monotonic() > deadline:
                raise NotMeasured(
                    f"no run came to wait for the hook within {session.options.timeout_s:.0f} s"
                ) from None
            await asyncio.sleep(0.01)
        else:
            return


async def resumed(session: Session, token: str, count: int, *, label: str) -> list[float]:
    """Ms from each of ``count`` resume calls to the body of the step that follows it."""
    took = []
    for number in range(count):
        if label:
            session.progress(label, number, count)
        slot, began = session.marks.give(1), session.now_ns()
        await session.world.resume(token, slot)
        [start] = await session.started(slot, 1)
        took.append((start - began) / 1e6)
        await session.pause()
    return took
