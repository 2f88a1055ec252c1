"""How does a value of an annotated type become itself again, and is it sure to?"""

from __future__ import annotations

import enum
import typing
from collections.abc import Iterable
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import msgspec

from redisworld.contents import contents_of, is_named, is_pydantic
from redisworld.errors import InvalidValue
from redisworld.packing import FIELD, ITEM, KEY, Place, in_short, pack, shown


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


def difference(sent: Any, received: Any, where: Place) -> str | None:
    """Where two values that should be the same are not, or None. An int may arrive as an equal float."""
    if type(sent) is not type(received):
        if type(sent) is int and type(received) is float and sent == received:
            return None
        return f"{shown(where)}: a {type(sent).__qualname__} would come back as {type(received).__qualname__}"
    if isinstance(sent, enum.Enum):
        return None if sent is received else _changed(sent, received, where)
    if is_named(type(sent)):
        given, parts = contents_of(sent).parts, contents_of(received).parts
        if parts.keys() - given.keys():  # what was UNSET has its default
            return _changed(sent, received, where)
        return _first_difference((value, parts.get(name), (where, FIELD, name)) for name, value in given.items())
    if not isinstance(sent, (dict, list, tuple, set, frozenset)):
        # As they are stored, NaN is NaN and 0.0 is not -0.0; a signaling NaN cannot even be compared.
        same = msgspec.msgpack.encode(pack(sent, where)) == msgspec.msgpack.encode(pack(received, where))
        return None if same else _changed(sent, received, where)
    if len(sent) != len(received):
        return _changed(sent, received, where)
    if isinstance(sent, dict):
        pairs = zip(sent.items(), received.items(), strict=True)
        return _first_difference(
            pair
            for (key, value), (other, held) in pairs
            for pair in ((key, other, (where, KEY, key)), (value, held, (where, ITEM, key)))
        )
    if isinstance(sent, (set, frozenset)):
        others = {item: item for item in received}
        received = [others.get(item) for item in sent]
    return _first_difference(
        (item, other, (where, ITEM, i)) for i, (item, other) in enumerate(zip(sent, received, strict=True))
    )


def _first_difference(pairs: Iterable[tuple[Any, Any, Place]]) -> str | None:
    return next((text for pair in pairs if (text := difference(*pair)) is not None), None)


def _changed(sent: Any, received: Any, where: Place) -> str:
    return f"{shown(where)}: {in_short(sent)} would come back as {in_short(received)}"


def _restore_custom(wanted: Any, value: Any) -> Any:
    if not isinstance(wanted, type):
        raise InvalidValue("this kind of annotation is not supported (for an iterable, write list or Sequence)")
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
    return is_named(annotation) or any(_names_a_type(inner, seen) for inner in _inside(annotation))


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
