"""Is a failed attempt worth another? What the types of exceptions say, whatever is left of the retry budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from redisworld.errors import FatalError, InvalidInput, RetryableError, StepTimeout

Types = type[Exception] | Sequence[type[Exception]]
"""One type of exception or several; those below it are meant too."""


class Retries(msgspec.Struct, frozen=True):
    """Which exceptions of a step are tried again.

    What the body says itself counts first: FatalError never, RetryableError always. Then, of ``fatal`` and
    ``retry_on``, the type nearest to the one raised decides. What neither names is tried again, unless ``retry_on``
    was given: then only that. A timeout is no exception of the body: it is tried again unless ``fatal`` names it.
    A group is fatal where one of its exceptions is.
    """

    fatal: tuple[type[Exception], ...] = ()
    retry_on: tuple[type[Exception], ...] | None = None

    @classmethod
    def checked(cls, *, fatal: Types = (), retry_on: Types | None = None) -> Retries:
        """The policy of these options. Raises InvalidInput for what is no type of exception, or cannot be meant."""
        never = _types("fatal", fatal)
        again = None if retry_on is None else _types("retry_on", retry_on)
        if again == ():
            raise InvalidInput("retry_on=() would retry nothing: say max_retries=0")
        if both := [kind.__name__ for kind in again or () if kind in never]:
            raise InvalidInput(f"{', '.join(both)} cannot be both in fatal and in retry_on")
        if wrong := [kind.__name__ for kind in never if issubclass(kind, RetryableError)]:
            raise InvalidInput(f"fatal={wrong[0]}: a RetryableError asks for a retry")
        if wrong := [kind.__name__ for kind in again or () if issubclass(kind, FatalError)]:
            raise InvalidInput(f"retry_on={wrong[0]}: a FatalError is never retried")
        return cls(never, again)

    def allow(self, error: BaseException) -> bool:
        """Whether an attempt that raised this may be followed by another."""
        return all(self._allow(leaf) for leaf in leaves(error))

    def _allow(self, error: BaseException) -> bool:
        if isinstance(error, (FatalError, InvalidInput)):  # input that was refused would be refused again
            return False
        if isinstance(error, RetryableError):
            return True
        for kind in type(error).__mro__:
            if kind in self.fatal:
                return False
            if self.retry_on is not None and kind in self.retry_on:
                return True
        return self.retry_on is None or isinstance(error, StepTimeout)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions themselves: a task group wraps what is raised inside it, even a single one."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def _types(option: str, given: Any) -> tuple[type[Exception], ...]:
    kinds = (given,) if isinstance(given, type) else given
    if not isinstance(kinds, (tuple, list, set, frozenset)):
        raise InvalidInput(f"{option} takes types of exceptions, like {option}=(ValueError, KeyError), not {given!r}")
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidInput(f"{option}: {kind!r} is no type of exception")
        if not issubclass(kind, Exception):
            raise InvalidInput(f"{option}: {kind.__name__} is no error of a step (it is not below Exception)")
    return tuple(kinds)
