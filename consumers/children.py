"""How does a task that a step's body starts end, when what it raises would end the worker?

asyncio raises SystemExit and KeyboardInterrupt of any task past the loop, so a ``sys.exit()`` two libraries below a
step would take all other runs of the process with it. What the body itself raises is caught where it is awaited; its
child tasks are ours only when they are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from redisworld.metadata import current_step


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine that raises RuntimeError in place of what would end the process; all else is the inner one's."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # cr_frame, cr_code and the like: what shows a task asks for them

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def send(self, value: Any, /) -> Any:
        """Run to the next suspension."""
        return _contained(self._inner.send, value)

    def throw(self, *raised: Any) -> Any:
        """Raise at the suspension."""
        return _contained(self._inner.throw, *raised)

    def close(self) -> None:
        """Give up."""
        self._inner.close()


def _contained(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"a task of the step's body raised {type(error).__name__}: {error}") from error


@contextmanager
def contained_children() -> Iterator[None]:
    """While it lasts, tasks that step bodies make on the running loop are contained; a factory of the loop's stays."""
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        if current_step.get() is not None and asyncio.iscoroutine(coro):
            coro = _Contained(coro)
        return asyncio.Task(coro, loop=loop, **options) if before is None else before(loop, coro, **options)

    loop.set_task_factory(make)
    try:
        yield
    finally:
        if loop.get_task_factory() is make:  # another worker on this loop may go on with its own on top
            loop.set_task_factory(before)
