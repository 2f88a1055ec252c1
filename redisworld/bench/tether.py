"""How does a process that a bench started go when the bench does, however that ends?

Its standard input is a pipe that only the bench holds open: SIGKILL of the bench ends the pipe too.
"""

from __future__ import annotations

import os
import sys
import threading


def hold() -> None:
    """End this process at once when its standard input ends."""
    threading.Thread(target=_until_end, name="redisworld-bench-tether", daemon=True).start()


def _until_end() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)
