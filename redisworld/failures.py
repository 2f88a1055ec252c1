"""How does an exception become an ErrorInfo in the log, and an exception again?

Nothing is imported by name and no code of an exception's class is run: a class comes back when its module is loaded
here anyway, as an object of that class with the recorded arguments and attributes.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Container, Iterable, Iterator
from typing import Any

import msgspec

from redisworld.errors import (
    ErrorInfo,
    ForbiddenInWorkflow,
    InvalidInput,
    InvalidValue,
    MalformedMessage,
    RemoteError,
    ReplayDivergence,
    builtin_class,
    made_without_init,
)
from redisworld.messages import UNREADABLE
from redisworld.packing import pack, unpack

MAX_TEXT = 16 * 1024
"""Characters kept of a message, note or traceback: enough for people, small beside the payload limit."""

MAX_CAUSES = 5
"""Errors kept of a chain, and levels of groups within groups."""

MAX_ERRORS = 64
"""Errors recorded in all: an exception, its chain and the members of groups."""

MAX_NOTES = 16

MAX_BYTES = 256 * 1024
"""A record that would be bigger is made without its chain, members, notes and contents."""

_MAINS = ("__main__", "__mp_main__")
"""Modules that are another one in every process."""

_NEVER_GIVEN = (StopIteration, StopAsyncIteration, InvalidInput, ForbiddenInWorkflow, ReplayDivergence)
"""Raised in a body these mean something to Python, or that the body itself did what it must not."""

_NONE = msgspec.msgpack.encode(None)
"""In the place of arguments that cannot be stored: the message is taken for them."""

_KNOWN_EVERYWHERE = ("builtins", "redisworld.errors")

_decoder = msgspec.msgpack.Decoder(ErrorInfo)

_CAUSE: Any = BaseException.__dict__["__cause__"]
_CONTEXT: Any = BaseException.__dict__["__context__"]


def describe(exc: BaseException, *, code: str | None = None, modules: Container[str] | None = None) -> ErrorInfo:
    """The exception as it is recorded, with its traceback as text and up to 5 causes.

    ``modules``: those whose classes may come back as themselves, because every process of the application has them
    loaded. A step may import more for itself; what a replay is given must not depend on that. Default: all loaded.
    """
    try:
        return _described(exc, code, modules)
    except Exception as error:  # user code: what its class makes of being looked at
        message = f"<cannot be told: {type(error).__name__} while it was read>"
        return ErrorInfo(type=_type_name(type(exc)), message=message, code=code, base=_base(type(exc)))


def _described(exc: BaseException, code: str | None, modules: Container[str] | None) -> ErrorInfo:
    text = _formatted(exc)
    if (remote := _remote_traceback(exc)) is not None:
        text = f"{remote}\nThe exception above was recorded by a step and raised again here:\n\n{text}"
    known = sys.modules if modules is None else modules
    described = _describe(exc, known, MAX_CAUSES, iter(range(1, MAX_ERRORS)))
    info = msgspec.structs.replace(described, code=code, traceback=_end_of(text))
    if len(encode(info)) <= MAX_BYTES:
        return info
    return msgspec.structs.replace(info, cause=None, context=None, notes=(), exceptions=(), contents=b"")


def _formatted(exc: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(exc))
    except Exception:  # user code; before 3.12 also a __getattr__ that raises, as of an HTTPError without its response
        return "".join(traceback.format_tb(exc.__traceback__))


def encode(info: ErrorInfo) -> bytes:
    """The payload of an event."""
    return msgspec.msgpack.encode(info)


def decode(data: bytes) -> ErrorInfo:
    """The ErrorInfo in an event's payload. Raises MalformedMessage."""
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise MalformedMessage(f"not a recorded error: {error}") from error


def rebuild(info: ErrorInfo) -> Exception:
    """An exception to raise for a recorded one: of its own class where that is known here, else of the nearest
    builtin class above it, RemoteError where that is only Exception.

    It carries the record as ``info``, and its notes, cause and context.
    """
    error = _construct(info)
    # Past the class, which may be frozen, or have a property of that name.
    vars(error)["info"] = info
    if info.notes:
        vars(error)["__notes__"] = list(info.notes)
    if info.cause:  # one of None would hide the context
        _CAUSE.__set__(error, rebuild(info.cause))
    if info.context:
        _CONTEXT.__set__(error, rebuild(info.context))
    return error


def _describe(exc: BaseException, modules: Container[str], levels: int, left: Iterator[object]) -> ErrorInfo:
    def others(*found: BaseException | None) -> list[ErrorInfo]:
        """Those that there is room for: ``left`` has one item for each error that may still be recorded."""
        real = [other for other in found if other is not None and levels]
        return [_describe(other, modules, levels - 1, left) for other, _ in zip(real, left, strict=False)]

    kind, message = type(exc), _message(exc)
    cause = others(exc.__cause__)
    context = others(None if exc.__suppress_context__ else exc.__context__)
    members = exc.exceptions if isinstance(exc, BaseExceptionGroup) else ()
    recorded = others(*members)
    notes = _notes(exc)
    if len(recorded) < len(members):
        notes.append(f"{len(members) - len(recorded)} more exceptions of this group were not recorded")
    return ErrorInfo(
        type=_type_name(kind),
        message=message,
        # The text of the outermost traceback shows the chain already, but not what other processes did.
        traceback=_remote_traceback(exc),
        cause=cause[0] if cause else None,
        context=context[0] if context else None,
        notes=tuple(notes),
        exceptions=tuple(recorded),
        base=_base(kind),
        contents=_contents(exc) if _may_come_back(kind, modules) else b"",
    )


def _type_name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _base(kind: type[BaseException]) -> str:
    nearest = next(base for base in kind.__mro__ if base.__module__ in _KNOWN_EVERYWHERE)
    return "" if nearest in (kind, Exception, BaseException) else _type_name(nearest)


def _may_come_back(kind: type[BaseException], modules: Container[str]) -> bool:
    return kind.__module__ in modules and _class_named(_type_name(kind)) is kind


def _contents(exc: BaseException) -> bytes:
    """Arguments and attributes, as pickle would take them, without what cannot be stored."""
    reduced: Any = builtin_class(type(exc)).__reduce__(exc)
    _, args, *more = reduced
    attributes = more[0] if more and more[0] else {}
    if isinstance(exc, BaseExceptionGroup):
        args = ()  # its message and members are recorded as such
    kept = [msgspec.Raw(data) for pair in attributes.items() if pair[0] != "__notes__" and (data := _stored(pair))]
    return msgspec.msgpack.encode([msgspec.Raw(_stored(args) or _NONE), kept])


def _stored(value: Any) -> bytes:
    """The bytes of a value; none for one that cannot be stored, or is big."""
    try:
        data = msgspec.msgpack.encode(pack(value, ""))
    except InvalidValue:
        return b""
    return data if len(data) <= MAX_TEXT else b""


def _notes(exc: BaseException) -> list[str]:
    notes = vars(exc).get("__notes__")
    return [_start_of(_text_of(note)) for note in notes[:MAX_NOTES]] if isinstance(notes, (list, tuple)) else []


def _message(exc: BaseException) -> str:
    # What str() adds, quotes to a key and a count to a group, it would add once more to the rebuilt one.
    if type(exc) is KeyError and len(exc.args) == 1 and isinstance(exc.args[0], str):
        return _start_of(exc.args[0])
    if isinstance(exc, BaseExceptionGroup):
        return _start_of(exc.message)
    return _start_of(_text_of(exc))


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # user code: __str__
        return f"<no text: str() raised {type(error).__name__}>"


def _remote_traceback(exc: BaseException) -> str | None:
    info = vars(exc).get("info")
    return info.traceback if isinstance(info, ErrorInfo) else None


def _start_of(text: str) -> str:
    text = _storable(text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} [{len(text) - MAX_TEXT} characters cut]"


def _end_of(text: str) -> str:
    """The end of a traceback: where it happened stands there."""
    text = _storable(text)
    return text if len(text) <= MAX_TEXT else f"[{len(text) - MAX_TEXT} characters cut]\n{text[-MAX_TEXT:]}"


def _storable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _construct(info: ErrorInfo) -> Exception:
    kind = _class_named(info.type)
    if kind is not None and (info.contents or kind.__module__ in _KNOWN_EVERYWHERE):
        try:
            args, attributes = unpack(info.contents) if info.contents else (None, ())
            return _made(kind, info, args, attributes)
        except Exception:  # bytes that are no arguments, or a class that cannot be made of these any more
            pass
    base = _class_named(info.base)
    if base is not None and base.__module__ in _KNOWN_EVERYWHERE:
        try:
            return _made(base, info)
        except Exception:  # UnicodeError's children need more than a message
            pass
    return RemoteError(str(info))


def _made(
    kind: type[Exception], info: ErrorInfo, args: Any = None, attributes: Iterable[tuple[str, Any]] = ()
) -> Exception:
    """An exception of this class, with its message or these arguments."""
    args = (info.message,) if args is None else args
    if issubclass(kind, ExceptionGroup):
        args = (info.message, [rebuild(member) for member in info.exceptions])
    error = made_without_init(kind, args)
    for name, value in attributes:
        object.__setattr__(error, name, value)
    return error


def _class_named(name: str) -> type[Exception] | None:
    """The exception class of this name in the modules loaded here, if there is one that a body can be given."""
    path = name.split(".") if "." in name else ["builtins", name]
    for cut in range(len(path) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(path[:cut]))
        if found is None or path[0] in _MAINS:
            continue
        for part in path[cut:]:
            found = vars(found).get(part) if hasattr(found, "__dict__") else None
        usable = isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, _NEVER_GIVEN)
        return found if usable else None
    return None
