"""On which event loop does a worker run, how often is garbage looked for, and what is not waited for at its end?"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from redisworld.errors import InvalidInput
from redisworld.facts import fact

T = TypeVar("T")

_GARBAGE = (20_000, 20, 20)
"""Python's own (700 or 2,000) looks through the messages at work several times a second, and finds nothing."""

_WAIT_S = 1.0
"""For tasks that are left at the end, and are cancelled."""


def run(work: Callable[[], Coroutine[Any, Any, T]], *, uvloop: bool | None) -> T:
    """Run to the end, on uvloop's loop where it is installed; ``uvloop`` insists on it, or on asyncio's own.

    What has been imported so far is never looked at by the garbage collector. Raises InvalidInput for a loop that is
    not installed.
    """
    factory = None if uvloop is False else _uvloop(insist=bool(uvloop))
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    with asyncio.Runner(loop_factory=factory) as runner:
        loop, threads = runner.get_loop(), ThreadPoolExecutor(thread_name_prefix="asyncio")
        loop.set_default_executor(threads)
        try:
            return runner.run(work())
        finally:
            runner.run(_end_tasks())
            # The loop would wait for all that code of steps has left in them, for as long as it takes.
            loop.set_default_executor(ThreadPoolExecutor())
            threads.shutdown(wait=False)


async def _end_tasks() -> None:
    """End the tasks that code of steps has left behind. The loop would wait for one that lets nobody cancel it."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=_WAIT_S)
    for task in left:
        asyncio.tasks._unregister_task(task)
    if left:
        names = ",".join(sorted(getattr(task.get_coro(), "__qualname__", task.get_name()) for task in left))
        fact(logging.WARNING, "ending without tasks that steps have left behind", tasks=names)


def _uvloop(*, insist: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        if insist:
            raise InvalidInput("--uvloop needs the extra: pip install 'redisworld[uvloop]'") from None
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
