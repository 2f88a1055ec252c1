"""Which line of the application is running? What a refusal names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

EDGES: Final[set[CodeType]] = set()
"""Where a body's frames end on the stack: below are the worker's."""

_OURS: Final = str(Path(__file__).parents[1])


def edge(function: F) -> F:
    """Mark a function that calls the body's code."""
    EDGES.add(function.__code__)
    return function


def place() -> str:
    """``file:line`` of the innermost frame of the body that is neither a library's nor ours."""
    frame: FrameType | None = sys._getframe(1)
    outermost = ""
    while frame is not None and frame.f_code not in EDGES:
        outermost = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if _is_application(frame.f_code, _package(frame)):
            return outermost
        frame = frame.f_back
    return outermost


def _package(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name.partition(".")[0] if isinstance(name, str) else ""


def _is_application(code: CodeType, package: str) -> bool:
    return (
        package not in (sys.stdlib_module_names - {"__main__"})
        and not code.co_filename.startswith((_OURS, "<frozen"))
        and "site-packages" not in code.co_filename
    )
