"""What becomes of a process that a body has forked? It never goes on as this worker, whose connections it shares."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from types import TracebackType


class EndsForked:
    """Around what a body runs: a child that it has forked, and that comes out here, ends.

    Where it returns with exit code 0, where it raises with 1 and a traceback, or the code of its ``SystemExit``. With
    ``waits`` it comes out where it waits for the event loop, which is the parent's, unless it raises StopIteration.
    """

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self._parent = os.getpid()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._parent:
            code = self._code(error)
            for stream in (sys.stdout, sys.stderr):
                with suppress(AttributeError, OSError, ValueError):  # there may be none, or it is closed
                    stream.flush()
            os._exit(code)

    def _code(self, error: BaseException | None) -> int:
        if isinstance(error, StopIteration) or (error is None and not self._waits):
            return 0
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            return error.code or 0
        if error is None:
            print("a process that a step has forked cannot await: the event loop is its parent's", file=sys.stderr)
        else:
            traceback.print_exception(error)
        return 1
