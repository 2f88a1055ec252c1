"""Which Python values travel in msgpack as themselves, and under which Ext code?

msgspec alone would silently turn a tuple into a list, a Decimal into text, an aware datetime into UTC, and it never
asks ``enc_hook`` about types it knows. So values are walked first, and what msgpack has no type for is wrapped.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias, cast
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext

from redisworld.contents import Contents, contents_of, is_named
from redisworld.errors import InvalidValue, MalformedMessage

MAX_DEPTH: Final = 100
"""Deeper nesting is refused: msgspec and the Python stack would give up at some depth that depends on the caller."""

_SHOWN: Final = 120
"""Characters of a place that an error shows: a list that contains itself has a long one."""

# Stored data: a code is never given a second meaning.
_INT, _TUPLE, _SET, _FROZENSET, _MAP, _BYTEARRAY, _DATETIME, _DATE, _TIME, _TIMEDELTA, _DECIMAL, _UUID, _PATH = range(
    13
)

_encoder = msgspec.msgpack.Encoder()
_encode = _encoder.encode

Place: TypeAlias = "str | tuple[Place, str, object]"
"""Where a value stands: a name, or the place around it, a pattern and what to fill in. Made text for an error only."""

ITEM, KEY, FIELD = "[{}]", " key {}", ".{}"


def pack(value: Any, where: Place, *, named: bool = False, depth: int = 0) -> Any:
    """The value as what msgpack can hold. Raises InvalidValue naming the place of what cannot survive.

    ``where`` is how to name the place to a person. ``named`` lets the types of ``is_named`` through as their
    contents, because an annotation will make them themselves again.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is str:
        return _checked_text(value, where)
    if kind is int:
        return value if -(2**63) <= value < 2**64 else Ext(_INT, _int_bytes(value))
    if depth >= MAX_DEPTH:
        raise InvalidValue(f"{shown(where)}: nested deeper than {MAX_DEPTH} levels, or contains itself")
    if kind is dict:
        return _pack_dict(value, where, named=named, depth=depth)
    if kind is list or kind in _COLLECTIONS:
        items = [pack(item, (where, ITEM, i), named=named, depth=depth + 1) for i, item in enumerate(value)]
        if kind is list:
            return items
        # A set has an order of its own in each process; a replay must write the same bytes.
        return Ext(_COLLECTIONS[kind], _encode(items if kind is tuple else [*map(Raw, sorted(map(_encode, items)))]))
    if (scalar := _SCALARS.get(kind)) is not None:
        return scalar(value, where)
    if named and is_named(kind):
        return pack(_taken_apart(value, where).plain, where, named=True, depth=depth + 1)
    raise InvalidValue(f"{shown(where)}: a {_type_name(kind)} would not come back as itself{_advice(kind)}")


def shown(where: Place) -> str:
    """The place as text, its middle left out where it is long."""
    parts: list[str] = []
    while not isinstance(where, str):
        where, pattern, item = where
        parts.append(pattern.format(item if pattern is FIELD else in_short(item)))
    path = "".join(reversed(parts))
    return where + (path if len(path) <= _SHOWN else f"{path[: _SHOWN // 2]}…{path[-_SHOWN // 2 :]}")


def in_short(value: object, longest: int = 60) -> str:
    """The value as Python writes it, cut to ``longest``; Python itself does not write a number of 5,000 digits."""
    try:
        return f"{value!r:.{longest}}"
    except Exception as error:
        return f"<{_type_name(type(value))} that cannot be shown: {error!r:.{longest}}>"


def unpack(data: bytes | memoryview) -> Any:
    """The value in these bytes. Raises MalformedMessage for bytes that hold none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise MalformedMessage(f"not an encoded value: {error}") from error


def _taken_apart(value: Any, where: Place) -> Contents:
    try:
        return contents_of(value)
    except Exception as error:  # user code: a property, a serializer; or a field that was never set
        raise InvalidValue(
            f"{shown(where)}: a {_type_name(type(value))} cannot be taken apart: {type(error).__name__}: {error}"
        ) from error


def _pack_dict(value: dict[Any, Any], where: Place, *, named: bool, depth: int) -> Any:
    packed = {}
    for key, item in value.items():
        if type(key) is not str and not (type(key) is int and -(2**63) <= key < 2**64):
            break
        packed[_checked_text(key, where) if type(key) is str else key] = pack(
            item, (where, ITEM, key), named=named, depth=depth + 1
        )
    else:
        return packed
    pairs = []
    for key, item in value.items():
        pairs.append(pack(key, (where, KEY, key), named=named, depth=depth + 1))
        pairs.append(pack(item, (where, ITEM, key), named=named, depth=depth + 1))
    return Ext(_MAP, _encode(pairs))


def _checked_text(value: str, where: Place) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue(
                f"{shown(where)}: the text has a lone surrogate at {error.start} and is no valid UTF-8"
            ) from error
    return value


def _int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _datetime_ext(value: datetime, where: Place) -> Ext:
    zone = value.tzinfo
    if isinstance(zone, ZoneInfo) and zone.key:
        return Ext(_DATETIME, _encode([value.isoformat(), value.fold, zone.key]))
    if zone is not None and zone.utcoffset(None) is None:
        raise InvalidValue(
            f"{shown(where)}: the zone {zone!r:.80} would come back as a fixed offset, without its rules; "
            "use zoneinfo.ZoneInfo with a key"
        )
    return Ext(_DATETIME, _encode([value.isoformat(), value.fold, None, *_name_of_offset(value)]))


def _time_ext(value: time, where: Place) -> Ext:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise InvalidValue(
            f"{shown(where)}: a time in zone {value.tzinfo} has no offset without a date; use a datetime"
        )
    return Ext(_TIME, _encode([value.isoformat(), value.fold, *_name_of_offset(value)]))


def _path_ext(value: Path, where: Place) -> Ext:
    try:
        return Ext(_PATH, os.fsencode(value))
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{shown(where)}: the path {str(value)!r:.80} is no valid file name: {error}") from error


def _name_of_offset(value: datetime | time) -> list[str]:
    """The name that somebody gave a fixed offset, like ``timezone(timedelta(hours=1), "CET")``."""
    offset, name = value.utcoffset(), value.tzname()
    return [name] if offset is not None and name is not None and name != timezone(offset).tzname(None) else []


def _restore_datetime(data: memoryview) -> datetime:
    text, fold, key, *name = _decoder.decode(data)
    value = datetime.fromisoformat(text).replace(fold=fold)
    if key is None:
        return value.replace(tzinfo=timezone(cast("timedelta", value.utcoffset()), *name)) if name else value
    try:
        zoned = value.replace(tzinfo=ZoneInfo(key))
    except (ZoneInfoNotFoundError, ValueError):
        return value
    # Rules of a zone change between tzdata versions; the instant must not.
    return zoned if zoned.utcoffset() == value.utcoffset() else value


def _restore_time(data: memoryview) -> time:
    text, fold, *name = _decoder.decode(data)
    value = time.fromisoformat(text).replace(fold=fold)
    return value.replace(tzinfo=timezone(cast("timedelta", value.utcoffset()), *name)) if name else value


class _Fields(dict[str, Any]):
    """The contents of a frozen dataclass, standing in a set or as a key until the annotation makes it itself."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class _Items(list[Any]):
    """The contents of a NamedTuple, likewise."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def _hashable(item: Any) -> Any:
    if isinstance(item, dict):
        return _Fields(item)
    if isinstance(item, list):
        return _Items(item)
    return tuple(map(_hashable, item)) if isinstance(item, tuple) else item


def _restore_map(data: memoryview) -> dict[Any, Any]:
    pairs = _decoder.decode(data)
    return dict(zip(map(_hashable, pairs[::2]), pairs[1::2], strict=True))


def _ext_hook(code: int, data: memoryview) -> Any:
    restore = _RESTORE.get(code)
    if restore is None:
        raise MalformedMessage(f"unknown value type {code}: written by a newer version?")
    return restore(data)


def _type_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _advice(kind: type) -> str:
    if is_named(kind):
        return f"; annotate the parameter or result with {kind.__name__}"
    for base in (str, int, float, bytes, list, dict, tuple, set, frozenset):
        if issubclass(kind, base):
            return f"; convert it to a plain {base.__name__}"
    if issubclass(kind, Awaitable):  # a step's call, a coroutine
        return "; await it, and pass its result"
    return "; pass what it is made of instead"


_PLAIN: Final = frozenset({type(None), bool, float, bytes})
_COLLECTIONS: Final[dict[type, int]] = {tuple: _TUPLE, set: _SET, frozenset: _FROZENSET}
_SCALARS: Final[dict[type, Callable[[Any, Place], Ext]]] = {
    bytearray: lambda value, where: Ext(_BYTEARRAY, bytes(value)),
    datetime: _datetime_ext,
    date: lambda value, where: Ext(_DATE, value.isoformat().encode()),
    time: _time_ext,
    timedelta: lambda value, where: Ext(_TIMEDELTA, _encode([value.days, value.seconds, value.microseconds])),
    Decimal: lambda value, where: Ext(_DECIMAL, str(value).encode()),
    UUID: lambda value, where: Ext(_UUID, value.bytes),
    type(Path()): _path_ext,
}
_RESTORE: Final[dict[int, Callable[[memoryview], Any]]] = {
    _INT: lambda data: int.from_bytes(data, "big", signed=True),
    _TUPLE: lambda data: tuple(_decoder.decode(data)),
    _SET: lambda data: set(map(_hashable, _decoder.decode(data))),
    _FROZENSET: lambda data: frozenset(map(_hashable, _decoder.decode(data))),
    _MAP: _restore_map,
    _BYTEARRAY: bytearray,
    _DATETIME: _restore_datetime,
    _DATE: lambda data: date.fromisoformat(str(data, "ascii")),
    _TIME: _restore_time,
    _TIMEDELTA: lambda data: timedelta(*_decoder.decode(data)),
    _DECIMAL: lambda data: Decimal(str(data, "ascii")),
    _UUID: lambda data: UUID(bytes=bytes(data)),
    _PATH: lambda data: Path(os.fsdecode(bytes(data))),
}
_decoder: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(ext_hook=_ext_hook)
