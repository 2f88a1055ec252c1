"""Which Python values travel in msgpack as themselves, and under which Ext code?

msgspec alone would silently turn a tuple into a list, a Decimal into text, an aware datetime into UTC, and it never
asks ``enc_hook`` about types it knows. So values are walked first, and what msgpack has no type for is wrapped.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec.msgpack import Ext

from redisworld.errors import InvalidValue, MalformedMessage

MAX_DEPTH: Final = 100
"""Deeper nesting is refused: msgspec and the Python stack would give up at some depth that depends on the caller."""

# Stored data: a code is never given a second meaning.
_INT, _TUPLE, _SET, _FROZENSET, _MAP, _BYTEARRAY, _DATETIME, _DATE, _TIME, _TIMEDELTA, _DECIMAL, _UUID, _PATH = range(
    13
)

_encoder = msgspec.msgpack.Encoder()
_encode = _encoder.encode


def pack(value: Any, where: str, *, named: bool = False, depth: int = 0) -> Any:
    """The value as what msgpack can hold. Raises InvalidValue naming the place of what cannot survive.

    ``where`` is how to name the place to a person. ``named`` lets dataclasses, Structs, enums, NamedTuples and
    pydantic models through as their contents, because an annotation will make them themselves again.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is str:
        return _checked_text(value, where)
    if kind is int:
        return value if -(2**63) <= value < 2**64 else Ext(_INT, _int_bytes(value))
    if depth >= MAX_DEPTH:
        raise InvalidValue(f"{where}: nested deeper than {MAX_DEPTH} levels, or contains itself")
    if kind is list:
        return [pack(item, f"{where}[{i}]", named=named, depth=depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        return _pack_dict(value, where, named=named, depth=depth)
    if (code := _COLLECTIONS.get(kind)) is not None:
        items = [pack(item, f"{where}[{i}]", named=named, depth=depth + 1) for i, item in enumerate(value)]
        return Ext(code, _encode(items))
    if (scalar := _SCALARS.get(kind)) is not None:
        return scalar(value, where)
    if named and (contents := contents_of(value)) is not None:
        return pack(contents.plain, where, named=True, depth=depth + 1)
    raise InvalidValue(f"{where}: a {_type_name(kind)} would not come back as itself{_advice(value, kind)}")


def unpack(data: bytes | memoryview) -> Any:
    """The value in these bytes. Raises MalformedMessage for bytes that hold none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise MalformedMessage(f"not an encoded value: {error}") from error


class Contents(msgspec.Struct, frozen=True):
    """What an object of a named type is made of: ``plain`` is stored, ``parts`` names each value for comparison."""

    plain: Any
    parts: dict[str, Any]


def contents_of(value: Any) -> Contents | None:
    """The contents of a dataclass, Struct, enum, NamedTuple or pydantic model; None for anything else."""
    if isinstance(value, enum.Enum):
        return Contents(value.value, {"value": value.value})
    if isinstance(value, msgspec.Struct):
        return _struct_contents(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return Contents(fields, fields)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return Contents(list(value), value._asdict())
    if is_pydantic(type(value)):
        dumped = value.model_dump(round_trip=True, by_alias=True)
        return Contents(dumped, dict(value))
    return None


def is_pydantic(kind: object) -> bool:
    """Whether this class is a pydantic model. Never imports pydantic: without it there can be no model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _struct_contents(value: msgspec.Struct) -> Contents:
    config = value.__struct_config__
    parts = {name: getattr(value, name) for name in value.__struct_fields__}
    tagged = config.tag is not None and config.tag_field is not None
    if config.array_like:
        return Contents([config.tag, *parts.values()] if tagged else list(parts.values()), parts)
    plain = dict(zip(value.__struct_encode_fields__, parts.values(), strict=True))
    return Contents({config.tag_field: config.tag, **plain} if tagged else plain, parts)


def _pack_dict(value: dict[Any, Any], where: str, *, named: bool, depth: int) -> Any:
    packed = {}
    for key, item in value.items():
        if type(key) is not str and not (type(key) is int and -(2**63) <= key < 2**64):
            break
        packed[_checked_text(key, where) if type(key) is str else key] = pack(
            item, f"{where}[{key!r}]", named=named, depth=depth + 1
        )
    else:
        return packed
    pairs = []
    for key, item in value.items():
        pairs.append(pack(key, f"{where} key {key!r:.60}", named=named, depth=depth + 1))
        pairs.append(pack(item, f"{where}[{key!r:.60}]", named=named, depth=depth + 1))
    return Ext(_MAP, _encode(pairs))


def _checked_text(value: str, where: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue(
                f"{where}: the text has a lone surrogate at {error.start} and is no valid UTF-8"
            ) from error
    return value


def _int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _datetime_ext(value: datetime, where: str) -> Ext:
    zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    return Ext(_DATETIME, _encode([value.isoformat(), value.fold, zone]))


def _time_ext(value: time, where: str) -> Ext:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise InvalidValue(f"{where}: a time in zone {value.tzinfo} has no offset without a date; use a datetime")
    return Ext(_TIME, _encode([value.isoformat(), value.fold]))


def _restore_datetime(data: memoryview) -> datetime:
    text, fold, key = _decoder.decode(data)
    value = datetime.fromisoformat(text).replace(fold=fold)
    if key is None:
        return value
    try:
        zoned = value.replace(tzinfo=ZoneInfo(key))
    except (ZoneInfoNotFoundError, ValueError):
        return value
    # Rules of a zone change between tzdata versions; the instant must not.
    return zoned if zoned.utcoffset() == value.utcoffset() else value


def _restore_time(data: memoryview) -> time:
    text, fold = _decoder.decode(data)
    return time.fromisoformat(text).replace(fold=fold)


def _restore_set(data: memoryview) -> Any:
    items = _decoder.decode(data)
    try:
        return set(items)
    except TypeError:
        # Frozen dataclasses travel as dicts; the annotation makes them hashable again.
        return items


def _restore_map(data: memoryview) -> dict[Any, Any]:
    pairs = _decoder.decode(data)
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _ext_hook(code: int, data: memoryview) -> Any:
    restore = _RESTORE.get(code)
    if restore is None:
        raise MalformedMessage(f"unknown value type {code}: written by a newer version?")
    return restore(data)


def _type_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _advice(value: Any, kind: type) -> str:
    if contents_of(value) is not None:
        return f"; annotate the parameter or result with {kind.__name__}"
    for base in (str, int, float, bytes, list, dict, tuple, set, frozenset):
        if issubclass(kind, base):
            return f"; convert it to a plain {base.__name__}"
    return "; pass what it is made of instead"


_PLAIN: Final = frozenset({type(None), bool, float, bytes})
_COLLECTIONS: Final[dict[type, int]] = {tuple: _TUPLE, set: _SET, frozenset: _FROZENSET}
_SCALARS: Final[dict[type, Callable[[Any, str], Ext]]] = {
    bytearray: lambda value, where: Ext(_BYTEARRAY, bytes(value)),
    datetime: _datetime_ext,
    date: lambda value, where: Ext(_DATE, value.isoformat().encode()),
    time: _time_ext,
    timedelta: lambda value, where: Ext(_TIMEDELTA, _encode([value.days, value.seconds, value.microseconds])),
    Decimal: lambda value, where: Ext(_DECIMAL, str(value).encode()),
    UUID: lambda value, where: Ext(_UUID, value.bytes),
    type(Path()): lambda value, where: Ext(_PATH, os.fsencode(value)),
}
_RESTORE: Final[dict[int, Callable[[memoryview], Any]]] = {
    _INT: lambda data: int.from_bytes(data, "big", signed=True),
    _TUPLE: lambda data: tuple(_decoder.decode(data)),
    _SET: _restore_set,
    _FROZENSET: lambda data: frozenset(_decoder.decode(data)),
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
