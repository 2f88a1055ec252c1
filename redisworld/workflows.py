"""What does an application register: which workflows, which steps, under which rules?"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, cast, overload

from redisworld.backoff import Backoff
from redisworld.durations import named_ms
from redisworld.errors import InvalidInput
from redisworld.replay import context
from redisworld.replay.calls import StepCall
from redisworld.retries import Retries, Types
from redisworld.values import Signature

P = ParamSpec("P")
R = TypeVar("R")

MAX_NAME = 100
MOST_RETRIES = 1_000_000_000
"""As good as for ever: at one a second for 30 years."""
_FORBIDDEN_IN_NAME = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff{}|]")
_FORBIDDEN_IN_QUEUE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff{}|:@]")
"""White space and control characters, lone surrogates, which are no UTF-8, and what keys and headers are cut at."""


class Step(Generic[P, R]):
    """A registered step. Calling it in a workflow body asks for it to be run; anywhere else it calls the function.

    To tools it looks like its function, whose name, module, docstring and signature it has.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        func: Callable[P, Any],
        *,
        name: str | None = None,
        max_retries: int = 3,
        timeout: timedelta | float | str | None = None,
        queue: str = "",
        backoff: Backoff | None = None,
        fatal: Types = (),
        retry_on: Types | None = None,
    ) -> None:
        self.func = func
        self.name = _checked_name("step", func, name)
        self.max_retries = _checked_retries(self.name, max_retries)
        self.timeout_ms = _checked_timeout(self.name, timeout)
        self.queue = _checked_queue(self.name, queue)
        self.backoff = _checked_backoff(self.name, backoff)
        self.retries = _checked_types(self.name, fatal, retry_on)
        self.is_async = inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(_call_of(func))
        self.signature = Signature(func, f"step {self.name}")
        _refuse_method(f"step {self.name}", func)
        update_wrapper(self, func, updated=())
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise InvalidInput(f"step {self.name}: a generator has no result to record; return a list instead")

    @property
    def max_attempts(self) -> int:
        """Starts in all: one more than the retries."""
        return self.max_retries + 1

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> StepCall[R]:
        """In a body: the step's awaitable result; bad arguments raise here. Elsewhere: just the function's call.

        So a step may call another as a plain function; one written with ``def`` then gives its result directly.
        """
        body = context.current()
        if body is None:
            return cast("StepCall[R]", self.func(*args, **kwargs))  # awaited alike when async
        return body.call_step(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<step {self.name}>"


class Workflow(Generic[P, R]):
    """A registered workflow; start a run of it with ``world.start``. To tools it looks like its function, as a step."""

    __name__: str
    __qualname__: str

    startable: Literal[True] = True
    """What ``world.start`` takes says this."""

    def __init__(self, func: Callable[P, Coroutine[Any, Any, R]], *, name: str | None = None) -> None:
        self.func = func
        self.name = _checked_name("workflow", func, name)
        self.signature = Signature(func, f"workflow {self.name}")
        _refuse_method(f"workflow {self.name}", func)
        update_wrapper(self, func, updated=())
        if inspect.isasyncgenfunction(func):
            raise InvalidInput(f"workflow {self.name}: a body with 'yield' has no result to record; return it instead")
        if not inspect.iscoroutinefunction(func):
            raise InvalidInput(f"workflow {self.name} must be written with 'async def'")

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        """Always raises InvalidInput: a body runs only as a run."""
        where = "" if context.current() is None else ", in a step"
        raise InvalidInput(
            f"workflow {self.name} cannot be called: start a run with world.start({self.name}, ...){where}"
        )

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


class _StepDecorator:
    """What ``wf.step(...)`` gives."""

    def __init__(self, register: Callable[[Callable[..., Any]], Step[Any, Any]]) -> None:
        self._register = register

    # An async function is also a plain one that returns a coroutine: the first overload that fits wins.
    @overload
    def __call__(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, R], /) -> Step[P, R]: ...
    def __call__(self, func: Callable[..., Any], /) -> Step[Any, Any]:
        return self._register(func)


class Workflows:
    """The workflows and steps of an application, by name. Names are stored: renaming one is a change of data."""

    def __init__(self) -> None:
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.steps: dict[str, Step[..., Any]] = {}

    @overload
    def workflow(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def workflow(
        self, /, *, name: str | None = None
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Workflow[P, R]]: ...
    def workflow(self, func: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
        """Register an ``async def`` as a workflow, under its own name or ``name``.

        Raises InvalidInput for a bad name, a name taken, or a plain function.
        """

        def register(func: Callable[..., Any]) -> Workflow[..., Any]:
            workflow = Workflow(func, name=name)
            _refuse_taken("workflow", workflow.name, func, self.workflows)
            self.workflows[workflow.name] = workflow
            return workflow

        return register if func is None else register(func)

    @overload
    def step(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def step(self, func: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def step(
        self,
        /,
        *,
        name: str | None = None,
        max_retries: int = 3,
        timeout: timedelta | float | str | None = None,
        queue: str = "",
        backoff: Backoff | None = None,
        fatal: Types = (),
        retry_on: Types | None = None,
    ) -> _StepDecorator: ...
    def step(
        self,
        func: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        max_retries: int = 3,
        timeout: timedelta | float | str | None = None,
        queue: str = "",
        backoff: Backoff | None = None,
        fatal: Types = (),
        retry_on: Types | None = None,
    ) -> Any:
        """Register a function, ``async def`` or ``def``, as a step.

        ``max_retries`` failed attempts are tried again after ``backoff``; an attempt longer than ``timeout`` counts as
        failed; ``queue`` sends it to workers of that queue. Exceptions of the types ``fatal`` are not tried again;
        with ``retry_on`` only those are. Raises InvalidInput for options that make no sense.
        """

        def register(func: Callable[..., Any]) -> Step[..., Any]:
            step: Step[..., Any] = Step(
                func,
                name=name,
                max_retries=max_retries,
                timeout=timeout,
                queue=queue,
                backoff=backoff,
                fatal=fatal,
                retry_on=retry_on,
            )
            _refuse_taken("step", step.name, func, self.steps)
            self.steps[step.name] = step
            return step

        return _StepDecorator(register) if func is None else register(func)


def _refuse_taken(
    what: str, name: str, func: Callable[..., Any], taken: dict[str, Step[..., Any]] | dict[str, Workflow[..., Any]]
) -> None:
    if (other := taken.get(name)) is not None:
        raise InvalidInput(
            f"two {what}s named {name!r}: {_place(other.func)} and {_place(func)}; give one another name="
        )


def _place(func: Callable[..., Any]) -> str:
    return f"{func.__module__}.{func.__qualname__}"


def _call_of(func: Callable[..., Any]) -> Any:
    """What runs when an object is called that is no function: its class says whether that is async."""
    return getattr(type(func), "__call__", None)  # noqa: B004  # not asked whether it can be called


def _checked_name(what: str, func: Callable[..., Any], name: str | None) -> str:
    if isinstance(func, (Step, Workflow)):
        raise InvalidInput(f"a {what} is a function, not {func!r}, which is registered already; wrap it in another one")
    if isinstance(func, classmethod):
        raise InvalidInput(f"a {what} is a function, not {func!r}; a @staticmethod can be one")
    if isinstance(func, type):
        raise InvalidInput(f"a {what} is a function, not the class {func.__qualname__}; write one that makes use of it")
    if not callable(func):
        raise InvalidInput(f"a {what} is a function, not {func!r}; options go by keyword, like name={func!r}")
    chosen = name if name is not None else getattr(func, "__name__", None)
    if chosen is None or chosen == "<lambda>":
        raise InvalidInput(f"a {what} of {func!r:.100} has no name of its own: give it one with name=")
    if not isinstance(chosen, str) or not 1 <= len(chosen) <= MAX_NAME or _FORBIDDEN_IN_NAME.search(chosen):
        raise InvalidInput(
            f"{what} name {chosen!r}: must be 1 to {MAX_NAME} characters, no space, control character, '{{', '}}', '|'"
        )
    return chosen


def _refuse_method(what: str, func: Callable[..., Any]) -> None:
    """Of a class no object is there to be ``self`` when a worker calls it."""
    owner = getattr(func, "__qualname__", "").rpartition(".")[0]
    first = next(iter(inspect.signature(func).parameters), "")
    if owner and not owner.endswith("<locals>") and first in ("self", "cls"):
        raise InvalidInput(
            f"{what}: {func.__qualname__} is a method, and {first!r} would be one of its arguments: "
            "define it outside the class, or make it a @staticmethod"
        )


def _checked_retries(name: str, max_retries: int) -> int:
    if not isinstance(max_retries, int) or isinstance(max_retries, bool) or not 0 <= max_retries <= MOST_RETRIES:
        raise InvalidInput(
            f"step {name}: max_retries must be a whole number from 0 to {MOST_RETRIES:,}, not {max_retries!r}"
        )
    return max_retries


def _checked_timeout(name: str, timeout: timedelta | float | str | None) -> int | None:
    timeout_ms = None if timeout is None else named_ms(f"step {name}: timeout", timeout)
    if timeout_ms == 0:
        raise InvalidInput(f"step {name}: a timeout of 0 would fail every attempt; leave it out for none")
    return timeout_ms


def check_queue(queue: str) -> str:
    """The name of a queue, ``""`` for the default one, as it is. Raises InvalidInput for what cannot be one."""
    if not isinstance(queue, str) or len(queue) > MAX_NAME or _FORBIDDEN_IN_QUEUE.search(queue):
        raise InvalidInput(f"queue {queue!r} must be a plain word without spaces, ':', '@', '{{', '}}', '|'")
    return queue


def _checked_queue(name: str, queue: str) -> str:
    try:
        return check_queue(queue)
    except InvalidInput as error:
        raise InvalidInput(f"step {name}: {error}") from error


def _checked_backoff(name: str, backoff: Backoff | None) -> Backoff:
    if backoff is not None and not isinstance(backoff, Backoff):
        raise InvalidInput(f"step {name}: backoff must be a Backoff, like Backoff.fixed('5s'), not {backoff!r}")
    return backoff or Backoff()


def _checked_types(name: str, fatal: Types, retry_on: Types | None) -> Retries:
    try:
        return Retries.checked(fatal=fatal, retry_on=retry_on)
    except InvalidInput as error:
        raise InvalidInput(f"step {name}: {error}") from error
