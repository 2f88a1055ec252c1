"""How does a worker end while threads go on that code of its steps has left behind?

The interpreter waits for every thread that is no daemon, however long. A step that hands something to an executor and
does not wait, or starts a thread, would keep the process after its drain, until somebody kills it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_WAIT_S = 1.0
"""For those that are about to end, and for idle threads of a pool, which the interpreter ends."""


def end_without_them(tell: Callable[[list[str]], None]) -> None:
    """Called where the process is about to end: a second later at most it does; ``tell`` is given what still ran."""
    me = threading.current_thread()
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread is not me]
    if left:
        threading.Thread(target=_end, args=(left, tell), name="redisworld-end", daemon=True).start()


def _end(left: list[threading.Thread], tell: Callable[[list[str]], None]) -> None:
    until = time.monotonic() + _WAIT_S
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    if running := sorted(thread.name for thread in left if thread.is_alive()):
        tell(running)
        os._exit(0)
