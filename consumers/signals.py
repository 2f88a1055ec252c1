"""How does a process that works end when it is told to?

SIGTERM or SIGINT lets a worker drain. SIGINT during that ends the process at once; SIGTERM changes nothing, for what
starts a worker may send it twice, or forward what the worker gets too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from consumers.timekeeper import Timekeeper
from consumers.worker import Worker
from redisworld.facts import fact

_BLOCKED_S = 1.0
"""Beyond the drain: a body blocks the event loop, and nothing else is going to end the process."""


@contextmanager
def ending_at_sigterm() -> Iterator[None]:
    """SIGTERM ends the process while no worker runs yet, also the first one of a container: Linux keeps from that what
    it has no handler for. It would start all the same, and be killed in the middle of work.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        os._exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def run_until_signalled(worker: Worker | Timekeeper) -> None:
    """Run a worker that drains on SIGTERM or SIGINT.

    The handlers are Python's own, not the event loop's: a body that blocks the loop must not hold up the second signal.
    A process that a body has forked has them too, and gives them up: it is no worker, and must end when it is told to.
    """
    loop, signalled, mine = asyncio.get_running_loop(), False, os.getpid()

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal signalled
        if os.getpid() != mine:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
        elif not signalled:
            signalled = True
            told.set()
            loop.call_soon_threadsafe(worker.stop)
        elif number == signal.SIGINT:
            fact(logging.WARNING, "second signal, ending at once")
            os._exit(1)

    with _ending_in_time(worker.ends_within_s + _BLOCKED_S) as told:
        before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            await worker.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _ending_in_time(within_s: float) -> Iterator[threading.Event]:
    """A thread ends the process where the block goes on for so long after the event is set; leases do the rest."""
    told, over = threading.Event(), threading.Event()

    def end_in_time() -> None:
        told.wait()
        if not over.wait(within_s):
            fact(logging.WARNING, "ending although a body blocks the event loop, what is held waits for its lease")
            os._exit(0)

    threading.Thread(target=end_in_time, name="redisworld-end", daemon=True).start()
    try:
        yield told
    finally:
        over.set()
        told.set()
