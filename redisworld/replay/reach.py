"""Who makes this call: a body's own code, or what needs the real world: machinery below it, a handler of a signal?"""

from __future__ import annotations

import sys
from asyncio import events
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Final, Literal, NoReturn

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

_TELEMETRY: Final = frozenset(
    ("structlog", "loguru", "opentelemetry", "prometheus_client", "sentry_sdk", "ddtrace", "datadog", "statsd")
)
"""Packages that tell the outside of what happens, as a log does. What they do where they are called is not the body's
doing; code that they decorate is the body's, and functions of others that they stand around are those functions."""

_AROUND: Final = frozenset({"integrations", "instrumentation", "contrib"})
"""Their parts that stand around functions of others."""

_GLUE: Final = frozenset({"contextlib", "functools"})
"""What is between a ``with`` or a decorator and the one it calls."""

_LIBRARY: Final = (sys.stdlib_module_names - {"__main__"}) | {"redisworld"}

_Role = Literal["machinery", "telemetry", "glue", "library", "caller"]

_known: Final[dict[str, _Role]] = {}
"""Modules met on stacks: a body may draw a million numbers."""

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
    """The body whose own code makes this call; None anywhere else, also in machinery or telemetry that the body called
    and in a handler of a signal that interrupts it.
    """
    loop = events._get_running_loop()
    if type(loop) is not ReplayLoop:
        return None
    frame: FrameType | None = sys._getframe(1)
    called: _Role = "library"  # by this frame; once a caller has been passed, what is further out called that
    while frame is not None and frame.f_code not in EDGES:
        role = _role(frame)
        if role == "machinery" or frame.f_code in _handlers or (role == "caller" and called == "telemetry"):
            return None
        if role != "glue" and called != "caller":
            called = role
        frame = frame.f_back
    return loop.host if isinstance(loop.host, Body) else None


def refused(what: str, hint: str = "move it into a step") -> Callable[..., NoReturn]:
    """What to call in a body in place of something that has no stable answer."""

    def refuse(body: Body, *args: object, **kwargs: object) -> NoReturn:
        raise refusal(what, hint)

    return refuse


def _role(frame: FrameType) -> _Role:
    name = frame.f_globals.get("__name__")
    if type(name) is not str:
        return "caller"
    role = _known.get(name)
    if role is None:
        role = _known[name] = _role_of(*name.split(".", 2)[:2])
    return role


def _role_of(package: str, part: str = "") -> _Role:
    if package in _MACHINERY:
        return "machinery"
    if package in _TELEMETRY:
        return "library" if part in _AROUND else "telemetry"
    if package in _GLUE:
        return "glue"
    return "library" if package in _LIBRARY else "caller"
