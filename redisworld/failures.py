"""How does an exception become an ErrorInfo in the log, and an exception again?

Nothing is ever imported or evaluated by name: only builtin exceptions and two of our own come back as themselves.
"""

from __future__ import annotations

import builtins
import traceback

import msgspec

from redisworld.errors import ErrorInfo, FatalError, InvalidInput, MalformedMessage, RemoteError, StepTimeout

MAX_TEXT = 16 * 1024
"""Characters kept of a message or traceback: enough for people, small beside the payload limit."""

MAX_CAUSES = 5

_OURS: dict[str, type[Exception]] = {
    f"{kind.__module__}.{kind.__qualname__}": kind for kind in (FatalError, StepTimeout)
}
_CONTROL_FLOW = (StopIteration, StopAsyncIteration)
"""Raised inside a coroutine these mean something to Python itself."""

_decoder = msgspec.msgpack.Decoder(ErrorInfo)


def describe(exc: BaseException, *, code: str | None = None) -> ErrorInfo:
    """The exception as it is recorded, with its traceback as text and up to 5 causes."""
    text = "".join(traceback.format_exception(exc))
    return _describe(exc, code=code, traceback_text=_tail(text), causes=MAX_CAUSES)


def encode(info: ErrorInfo) -> bytes:
    """The payload of an event."""
    return msgspec.msgpack.encode(info)


def decode(data: bytes) -> ErrorInfo:
    """The ErrorInfo in an event's payload. Raises MalformedMessage."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"not a recorded error: {error}") from error


def rebuild(info: ErrorInfo) -> Exception:
    """An exception to raise for a recorded one: a builtin, FatalError or StepTimeout as itself, else RemoteError.

    It carries the record as ``info`` and the recorded cause as ``__cause__``.
    """
    error = _construct(info)
    error.info = info  # type: ignore[attr-defined]
    if info.cause is not None:
        error.__cause__ = rebuild(info.cause)
    return error


def is_fatal(exc: BaseException) -> bool:
    """Whether a step that raised this is not retried: FatalError, or input that would be refused again."""
    return isinstance(exc, (FatalError, InvalidInput))


def _describe(exc: BaseException, *, code: str | None, traceback_text: str | None, causes: int) -> ErrorInfo:
    cause = None
    if exc.__cause__ is not None and causes:
        # The text of the outermost traceback shows the whole chain already.
        cause = _describe(exc.__cause__, code=None, traceback_text=None, causes=causes - 1)
    return ErrorInfo(
        type=_type_name(type(exc)), message=_message(exc), traceback=traceback_text, code=code, cause=cause
    )


def _type_name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _message(exc: BaseException) -> str:
    if type(exc) is KeyError and len(exc.args) == 1 and isinstance(exc.args[0], str):
        # str() of a KeyError is the repr of its key, which would be quoted once more when rebuilt.
        return _storable(exc.args[0])[:MAX_TEXT]
    try:
        return _storable(str(exc))[:MAX_TEXT]
    except Exception as error:  # user code: __str__
        return f"<no text: str() raised {type(error).__name__}>"


def _tail(text: str) -> str:
    """The end of a traceback: where it happened stands there."""
    text = _storable(text)
    return text if len(text) <= MAX_TEXT else f"[{len(text) - MAX_TEXT} characters cut]\n{text[-MAX_TEXT:]}"


def _storable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _construct(info: ErrorInfo) -> Exception:
    kind = _OURS.get(info.type) or getattr(builtins, info.type, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, _CONTROL_FLOW):
        try:
            return kind(info.message)
        except TypeError:
            pass  # UnicodeError's children and groups need more than a message
    return RemoteError(str(info))
