"""From when on does a process keep its bodies from clocks, chance and the outside? From its first ``install``."""

from __future__ import annotations

import sys
import threading

from redisworld.replay import ambient, blocking, hashes
from redisworld.replay.standins import Replaced, replace_captured

_lock = threading.Lock()
_replaced: Replaced = {}


def install() -> None:
    """Guard all bodies of this process from now on; a repeat changes nothing. Cannot be undone.

    Steps, and all other code that is not a body's, keep the real functions. Whoever only starts runs needs no guard.
    Before the application is imported is best; what it has captured by then is found in modules, classes, defaults
    and closures, but not in what C keeps.
    """
    with _lock:
        if _replaced:
            return
        ambient.install_time(_replaced)
        ambient.install_chance(_replaced)
        ambient.install_tasks(_replaced)
        blocking.install_waits(_replaced)
        blocking.install_handlers(_replaced)
        hashes.install()
        replace_captured(_replaced, ambient.RENEWED)
        # Python has no way to take a hook away again, so this one only looks for a running body.
        sys.addaudithook(blocking.audit)
