"""Who makes this call: a body's own code, or what needs the real world: machinery below it, a handler of a signal?"""

from __future__ import annotations

import sys
from asyncio import events
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Final, NoReturn

from redisworld.replay.body import Body
from redisworld.replay.forbidden import refusal
from redisworld.replay.loop import ReplayLoop
from redisworld.replay.place import EDGES

_MACHINERY: Final = frozenset(
    {
        # What an import does happens once in a process, not once in a replay: it must take nothing from the run.
        *("importlib", "zipimport", "pkgutil", "_frozen_importlib", "_frozen_importlib_external"),
        # A log record says when it was written, and a handler may open, rotate or connect. Nothing comes back.
        "logging",
        # Data of the installation, read on first use and kept.
        *("linecache", "tokenize", "traceback", "warnings", "zoneinfo", "mimetypes"),
        # A person at the keyboard, also in an editor that debugs with pydevd, as VS Code and PyCharm do.
        *("pdb", "bdb", "debugpy", "pydevd", "_pydevd_bundle", "_pydevd_frame_eval", "_pydevd_sys_monitoring"),
    }
)
"""Packages that do what they always do, also when a body is below them on the stack."""

_known: Final[dict[str, bool]] = {}
"""Modules met on stacks, and whether they are machinery: a body may draw a million numbers."""

_handlers: Final[set[CodeType]] = set()


def note_handler(handler: object) -> None:
    """Remember what handles a signal. It runs wherever the process is, also inside a body, and is none of it."""
    while isinstance(handler, partial):
        handler = handler.func
    if callable(handler):
        code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
        if isinstance(code, CodeType):
            _handlers.add(code)


def acting_body() -> Body | None:
    """The body whose own code makes this call; None anywhere else, also in machinery that the body called and in a
    handler of a signal that interrupts it.
    """
    loop = events._get_running_loop()
    if type(loop) is not ReplayLoop:
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in EDGES:
        if frame.f_code in _handlers or _is_machinery(frame):
            return None
        frame = frame.f_back
    return loop.host if isinstance(loop.host, Body) else None


def refused(what: str, hint: str = "move it into a step") -> Callable[..., NoReturn]:
    """What to call in a body in place of something that has no stable answer."""

    def refuse(body: Body, *args: object, **kwargs: object) -> NoReturn:
        raise refusal(what, hint)

    return refuse


def _is_machinery(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    if type(name) is not str:
        return False
    known = _known.get(name)
    if known is None:
        known = _known[name] = name.partition(".")[0] in _MACHINERY
    return known
