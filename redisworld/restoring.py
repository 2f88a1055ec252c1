"""How does a value of an annotated type become itself again, and is it sure to?"""

from __future__ import annotations

import dataclasses
import enum
import typing
from decimal import Decimal
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import msgspec

from redisworld.errors import InvalidValue
from redisworld.packing import contents_of, is_pydantic


def names_a_type(annotation: Any) -> bool:
    """Whether the annotation mentions a type that only an annotation can bring back (see ``packing.pack``).

    Where it does not, a value needs no annotation, and none is applied: it arrives exactly as it was given.
    """
    try:
        return _names_a_type_cached(annotation)
    except TypeError:  # an unhashable annotation, like Annotated[int, []]
        return _names_a_type(annotation, set())


def restore(raw: Any, annotation: Any, where: str) -> Any:
    """The unpacked value ``raw`` as the annotated type. Raises InvalidValue when it does not fit."""
    if not names_a_type(annotation):
        return raw
    return restore_strictly(raw, annotation, where)


def restore_strictly(raw: Any, annotation: Any, where: str) -> Any:
    """The same, also for an annotation that no value needs, like ``int``: for what strangers send."""
    try:
        return msgspec.convert(raw, annotation, dec_hook=_restore_custom)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"{where}: does not fit {_shown(annotation)}: {error}") from error
    except (
        Exception
    ) as error:  # user code: a dataclass's __post_init__, a pydantic validator, an unsupported annotation
        raise InvalidValue(f"{where}: cannot be made a {_shown(annotation)}: {error}") from error


def difference(sent: Any, received: Any, where: str) -> str | None:
    """Where two values that should be the same are not, or None. An int may arrive as an equal float."""
    if type(sent) is not type(received):
        if type(sent) is int and type(received) is float and sent == received:
            return None
        return f"{where}: a {type(sent).__qualname__} would come back as {type(received).__qualname__}"
    if isinstance(sent, enum.Enum):
        return None if sent is received else f"{where}: {sent} would come back as {received}"
    if (contents := contents_of(sent)) is not None:
        return _first_difference(contents.parts, contents_of(received).parts, where, "{}.{}")  # type: ignore[union-attr]
    if isinstance(sent, dict) and sent.keys() == received.keys():
        return _first_difference(sent, received, where, "{}[{!r}]")
    if isinstance(sent, (list, tuple)) and len(sent) == len(received):
        return _first_difference(dict(enumerate(sent)), dict(enumerate(received)), where, "{}[{}]")
    # The text of a number tells NaN from NaN, which == does not; a signaling one even raises.
    equal = repr(sent) == repr(received) if isinstance(sent, (float, Decimal)) else sent == received
    return None if equal else f"{where}: {sent!r:.80} would come back as {received!r:.80}"


def _first_difference(sent: dict[Any, Any], received: dict[Any, Any], where: str, path: str) -> str | None:
    found = (difference(value, received[key], path.format(where, key)) for key, value in sent.items())
    return next((text for text in found if text is not None), None)


def _restore_custom(wanted: type, value: Any) -> Any:
    if isinstance(value, wanted):
        return value
    if is_pydantic(wanted):
        return wanted.model_validate(value)  # type: ignore[attr-defined]
    if issubclass(wanted, PurePath) and isinstance(value, str):
        return wanted(value)
    raise InvalidValue(f"a {type(value).__qualname__} is no {wanted.__qualname__}")


@lru_cache(maxsize=4096)
def _names_a_type_cached(annotation: Any) -> bool:
    return _names_a_type(annotation, set())


def _names_a_type(annotation: Any, seen: set[int]) -> bool:
    if id(annotation) in seen:
        return False
    seen.add(id(annotation))
    if isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation)
        or issubclass(annotation, (msgspec.Struct, enum.Enum))
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
        or is_pydantic(annotation)
    ):
        return True
    return any(_names_a_type(inner, seen) for inner in _inside(annotation))


def _inside(annotation: Any) -> tuple[Any, ...]:
    if typing.is_typeddict(annotation):
        return tuple(typing.get_type_hints(annotation).values())
    if isinstance(annotation, typing.TypeVar):
        return (annotation.__bound__, *annotation.__constraints__)
    if isinstance(annotation, typing.NewType):
        return (annotation.__supertype__,)
    alias = getattr(annotation, "__value__", None) if type(annotation).__name__ == "TypeAliasType" else None
    origin = typing.get_origin(annotation)
    return tuple(part for part in (alias, origin, *typing.get_args(annotation)) if part is not None)


def _shown(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
