"""Which types come back only where an annotation names them, and what is a value of one made of?"""

from __future__ import annotations

import dataclasses
import enum
import sys
from typing import Any

import msgspec


class Contents(msgspec.Struct, frozen=True):
    """What an object of a named type is made of: ``plain`` is stored, ``parts`` names each value for comparison."""

    plain: Any
    parts: dict[str, Any]


def is_named(kind: object) -> bool:
    """Whether only an annotation brings this type back: a dataclass, attrs class, Struct, enum, NamedTuple or model."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, (msgspec.Struct, enum.Enum))
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or hasattr(kind, "__attrs_attrs__")
        or is_pydantic(kind)
    )


def contents_of(value: Any) -> Contents:
    """The contents of a value whose type ``is_named``. Raises what the type's own code raises."""
    if isinstance(value, enum.Enum):
        return Contents(value.value, {"value": value.value})
    if isinstance(value, msgspec.Struct):
        return _struct_contents(value)
    if isinstance(value, tuple):
        return Contents(list(value), dict(zip(value._fields, value, strict=True)))  # type: ignore[attr-defined]
    if is_pydantic(type(value)):
        return Contents(value.model_dump(round_trip=True, by_alias=True), dict(value))
    names = dataclasses.fields(value) if dataclasses.is_dataclass(value) else value.__attrs_attrs__
    fields = {field.name: getattr(value, field.name) for field in names}
    return Contents(fields, fields)


def is_pydantic(kind: object) -> bool:
    """Whether this class is a pydantic model. Never imports pydantic: without it there can be no model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _struct_contents(value: msgspec.Struct) -> Contents:
    config = value.__struct_config__
    given = {name: getattr(value, name) for name in value.__struct_fields__}
    parts = {name: part for name, part in given.items() if part is not msgspec.UNSET or config.array_like}
    tagged = config.tag is not None and config.tag_field is not None
    if config.array_like:
        return Contents([config.tag, *parts.values()] if tagged else list(parts.values()), parts)
    stored = zip(value.__struct_encode_fields__, given, strict=True)
    plain = {encoded: parts[name] for encoded, name in stored if name in parts}  # as msgspec does: UNSET is no value
    return Contents({config.tag_field: config.tag, **plain} if tagged else plain, parts)
