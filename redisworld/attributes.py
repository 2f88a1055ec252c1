"""What can the attributes of a run be? Small texts under names, for people and searches."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from redisworld.errors import InvalidInput, MalformedMessage
from redisworld.messages import UNREADABLE

MOST = 64
"""Attributes of a run: they are shown whole, and stand in one field of its row."""
LONGEST_KEY = 256
LONGEST_VALUE = 256
"""Bytes in UTF-8: more is a value for a step's result or an output stream."""

Changes = dict[str, str | None]
"""Values by key; None takes the attribute away."""


class AttributesSet(msgspec.Struct, frozen=True):
    """Payload of ``attr_set``. ``writer`` is the id of the step that wrote it, or ``""``."""

    changes: Changes
    writer: str = ""


_decoder = msgspec.msgpack.Decoder(AttributesSet)


def checked(
    changes: Mapping[str, str | None] | None, more: Mapping[str, str | None], *, reserved: bool = False
) -> Changes:
    """Both together, if they can be attributes. Raises InvalidInput naming the one that cannot.

    ``reserved``: keys that begin with ``$`` are a runtime's own, which may set them.
    """
    if changes is not None and not isinstance(changes, Mapping):
        raise InvalidInput(f"attributes are a dict of texts, not {changes!r}")
    if both := [key for key in more if key in (changes or {})]:
        raise InvalidInput(f"attribute {both[0]!r} is given twice")
    found = {**(changes or {}), **more}
    if not found:
        raise InvalidInput("no attribute was given: set_attributes(stage='paid') or set_attributes({'stage': 'paid'})")
    for key, value in found.items():
        _check_key(key, reserved)
        if value is not None:
            _check_value(key, value)
    return found


def _check_key(key: object, reserved: bool) -> None:
    if not isinstance(key, str):
        raise InvalidInput(f"attribute {key!r}: a key is a text")
    if not 0 < len(key) <= LONGEST_KEY:
        raise InvalidInput(f"attribute {key!r}: a key has 1 to {LONGEST_KEY} characters")
    if key.startswith("$") and not reserved:
        raise InvalidInput(f"attribute {key!r}: keys that begin with $ are reserved")
    _size(key, key)


def encode(changes: Mapping[str, str | None], writer: str = "") -> bytes:
    """The payload of the event."""
    return msgspec.msgpack.encode(AttributesSet(dict(changes), writer))


def decode(payload: bytes) -> AttributesSet:
    """The payload again. Raises MalformedMessage."""
    try:
        return _decoder.decode(payload)
    except UNREADABLE as error:
        raise MalformedMessage(f"not the payload of attr_set: {error}") from error


def merge(attributes: dict[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The attributes after these changes."""
    merged = {**attributes, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _check_value(key: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(
            f"attribute {key!r}: values are texts, not {type(value).__name__}; write str({value!r:.50}), or None to "
            "take it away"
        )
    if (size := _size(key, value)) > LONGEST_VALUE:
        raise InvalidInput(f"attribute {key!r}: a value has at most {LONGEST_VALUE} bytes, this one has {size:,}")


def _size(key: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(f"attribute {key!r}: {text!r:.50} is no text that can be stored ({error.reason})") from error
