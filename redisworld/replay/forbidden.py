"""Which calls of asyncio in a body could not be replayed, and what does a refusal say?"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

from redisworld.errors import ForbiddenInWorkflow
from redisworld.replay.place import place

FORBIDDEN_LOOP_CALLS: Final = (
    # running the loop, and reaching it from threads
    *("run_forever", "run_until_complete", "stop", "close", "call_soon_threadsafe"),
    *("run_in_executor", "set_default_executor", "getaddrinfo", "getnameinfo"),
    # sockets, pipes, processes, signals
    *("create_connection", "create_server", "sendfile", "start_tls", "create_unix_connection", "create_unix_server"),
    *("connect_accepted_socket", "create_datagram_endpoint", "connect_read_pipe", "connect_write_pipe"),
    *("subprocess_shell", "subprocess_exec", "add_reader", "remove_reader", "add_writer", "remove_writer"),
    *("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto"),
    *("sock_connect", "sock_accept", "sock_sendfile", "add_signal_handler", "remove_signal_handler"),
    # changing what the loop does
    *("set_task_factory", "set_exception_handler", "get_exception_handler"),
    *("default_exception_handler", "set_debug"),
)

_AS_COMPLETED: Final = {asyncio.as_completed.__code__} | {
    # Since 3.13 a class starts the coroutines.
    kind.__init__.__code__
    for kind in (getattr(asyncio.tasks, "_AsCompletedIterator", None),)
    if kind is not None
}
_FRAMES_BELOW_AS_COMPLETED: Final = 4
"""create_task's caller up to as_completed: _ensure_future, ensure_future, a comprehension, as_completed."""


def refusal(what: str, hint: str = "move it into a step") -> ForbiddenInWorkflow:
    """The error for a call that a body must not make; it names the call and the application's line."""
    return ForbiddenInWorkflow(f"{what} in a workflow body cannot be replayed: {hint} ({place()})")


def refuse_call(name: str) -> Callable[..., NoReturn]:
    """A method in place of ``loop.<name>`` that raises ForbiddenInWorkflow."""

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise refusal(f"loop.{name}()")

    return refuse


def refuse_spinning(handle: object, count: int) -> NoReturn:
    """Raise ForbiddenInWorkflow for a body that goes on and on; it names where the last callback's task stands."""
    task = getattr(getattr(handle, "_callback", None), "__self__", None)
    stack = task.get_stack(limit=1) if isinstance(task, asyncio.Task) else []
    where = f" ({stack[0].f_code.co_filename}:{stack[0].f_lineno})" if stack else ""
    raise ForbiddenInWorkflow(
        f"the body ran {count:,} callbacks without waiting for a step or a sleep: does it poll in a loop?{where}"
    )


def refuse_unordered_start(coro: Coroutine[Any, Any, Any]) -> None:
    """Raise ForbiddenInWorkflow when as_completed starts a coroutine: it does so in the order of their addresses."""
    frame = sys._getframe(2)
    for _ in range(_FRAMES_BELOW_AS_COMPLETED):
        if frame.f_code in _AS_COMPLETED:
            coro.close()
            raise ForbiddenInWorkflow(
                "asyncio.as_completed() over coroutines starts them in another order in every process; give it tasks: "
                f"as_completed([asyncio.create_task(c) for c in coroutines]) ({place()})"
            )
        if frame.f_back is None:
            return
        frame = frame.f_back
