"""On which event loop does a worker run, how often is garbage looked for, and what is not waited for at its end?"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from redisworld.errors import InvalidInput

T = TypeVar("T")

_GARBAGE = (20_000, 20, 20)
"""Python's own (700 or 2,000) looks through the messages at work several times a second, and finds nothing."""


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
            # The loop would wait for all that code of steps has left in them, for as long as it takes.
            loop.set_default_executor(ThreadPoolExecutor())
            threads.shutdown(wait=False)


def _uvloop(*, insist: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        if insist:
            raise InvalidInput("--uvloop needs the extra: pip install 'redisworld[uvloop]'") from None
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
