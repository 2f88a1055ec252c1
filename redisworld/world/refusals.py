"""Does an error of Redis mean "not now" or "never", and what does a person read of it?

One policy repeats calls (``connection.py``), so one place tells what is worth repeating.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterError,
    InvalidResponse,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import MasterNotFoundError as BlockingMasterNotFoundError

from redisworld.errors import MalformedMessage, RedisworldError

RAISED = (RedisError, OSError, AttributeError, RuntimeError)
"""What redis-py raises. Of the last two only some come of Redis: ``is_of_redis`` tells which."""

_REFUSED = (
    OutOfMemoryError,
    ReadOnlyError,
    BusyLoadingError,
    MasterDownError,
    ClusterError,
    TryAgainError,
    NoPermissionError,
    AuthenticationError,
    InvalidResponse,  # not Redis at all, or a reply cut short
)
_REFUSED_PREFIXES = (
    "MISCONF",
    "NOREPLICAS",
    "UNBLOCKED",
    "BUSY ",
    "NOAUTH",
    "WRONGPASS",
    "CLUSTERDOWN",
    "OOM ",
    "LOADING",
    "READONLY",
    "The user executing the script can't run",  # NOPERM inside a script
    "ACL failure in script",
)
"""Error replies by which a connection says "not now"; redis-py has classes, without the prefix, for most of them."""

_QUOTES = "\"'(),"
"""What redis-py puts around the error of one command in a pipeline."""


def error_word(error: BaseException) -> str:
    """A bounded word for metrics: timeout, connection, noscript, oom, readonly, loading, refused or reply."""
    if isinstance(error, (TimeoutError, RedisTimeoutError)):
        return "timeout"
    if isinstance(error, NoScriptError):
        return "noscript"
    if isinstance(error, BusyLoadingError):
        return "loading"
    if isinstance(error, ReadOnlyError):
        return "readonly"
    if isinstance(error, (RedisConnectionError, OSError)) or _wrote_to_nobody(error):
        return "connection"
    if isinstance(error, OutOfMemoryError) or _reply_of(error).startswith("OOM"):
        return "oom"
    return "refused" if is_transient(error) else "reply"


def unwrapped(error: BaseException) -> BaseException:
    """What Redis said while a connection was being made, or that a body makes one: redis-py has a ConnectionError."""
    cause = error.__cause__
    return cause if type(error) is RedisConnectionError and isinstance(cause, (RedisError, RedisworldError)) else error


def is_of_redis(error: BaseException) -> bool:
    """Whether Redis or the way to it is at fault, and not our code."""
    return isinstance(error, (RedisError, OSError)) or _wrote_to_nobody(error)


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later: a lost connection, a timeout, or a refusal for now."""
    if isinstance(error, (RedisConnectionError, RedisTimeoutError, OSError, *_REFUSED)):  # OSError: TimeoutError too
        return True
    if _wrote_to_nobody(error):
        return True
    return isinstance(error, ResponseError) and _reply_of(error).startswith(_REFUSED_PREFIXES)


def checked(answers: list[Any]) -> list[Any]:
    """The answers of a pipeline, among which may be errors about single keys; what the connection says is raised."""
    for answer in answers:
        if isinstance(answer, Exception) and is_transient(answer):
            raise answer
    return answers


def told(error: BaseException) -> str | None:
    """What a person reads of an error reply that no repeat will change; None for any other error."""
    if not isinstance(error, ResponseError):
        return None
    if "WRONGTYPE" in str(error):
        return f"a key is not ours, or is damaged; redisworld doctor may name it: {error}"
    return f"Redis answers: {error}"


@contextmanager
def readable(what: str) -> Iterator[None]:
    """A key of another type, in the place of ``what`` is read in the block, raises MalformedMessage."""
    try:
        yield
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        raise MalformedMessage(f"{what} cannot be read: {told(error)}") from error


def why(error: BaseException) -> str:
    """What is told to people, after "Redis at ..."."""
    if isinstance(error, (TimeoutError, RedisTimeoutError)):
        return "did not answer in time"
    reply = _reply_of(error)
    if isinstance(error, (MasterNotFoundError, BlockingMasterNotFoundError)):
        said, unasked, _ = reply.partition(" : ")  # behind it redis-py writes out the whole client of each Sentinel
        hint = " (Sentinels cannot be reached, or refuse REDISWORLD_SENTINEL_PASSWORD)" if unasked else ""
        return f"cannot be used now: {said}{hint}"
    if isinstance(error, NoPermissionError):
        return f"does not let its user do what redisworld needs: {reply.strip(_QUOTES)}"
    if isinstance(error, AuthenticationError):
        if "HELLO must be called" in reply or "Authentication required" in reply:
            return "asks for a password, and the URL has none: redis://[user]:password@host, or REDISWORLD_PASSWORD"
        return f"refuses the user or password of the URL: {reply}"
    if isinstance(error, TryAgainError):
        return (
            "moves the slot of this partition to another node; until it has, nothing can change there: "
            "redis-cli --cluster check"
        )
    return f"cannot be used now: {reply}"


def _wrote_to_nobody(error: BaseException) -> bool:
    """What redis-py 8 lets through when a connection dies while it writes: from asyncio, and from uvloop."""
    if isinstance(error, AttributeError):
        return "writelines" in str(error) or "NoneType" in str(error)
    return isinstance(error, RuntimeError) and "the handler is closed" in str(error)


def _reply_of(error: BaseException) -> str:
    """The error reply itself: Redis 6.2 wraps one that came up in a script, redis-py one of a pipeline."""
    text = str(error)
    if text.startswith("Error running script"):
        return text.rpartition(": -")[2]
    return text.partition("caused error: ")[2].lstrip("('\"") if text.startswith("Command #") else text
