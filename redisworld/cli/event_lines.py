"""How is an event of a log shown: its payload decoded, as the cells of a line, as an object?"""

from __future__ import annotations

from typing import Any

import msgspec

from redisworld import events, failures, values
from redisworld.cli.plain import as_json, one_line
from redisworld.cli.times import iso
from redisworld.errors import ErrorInfo, InvalidValue, MalformedMessage
from redisworld.events import Event, EventKind
from redisworld.world.deliveries import number_in

_FAILURES = (EventKind.STEP_FAILED, EventKind.STEP_RETRYING, EventKind.RUN_FAILED)
_RAW_SHOWN = 60


class Entry(msgspec.Struct, frozen=True):
    """An event, its number from 1, and its decoded payload. ``event`` is None for an element that is none."""

    number: int
    event: Event | None
    payload: Any


def entry_of(number: int, element: bytes) -> Entry:
    """The entry of a log element; bytes that cannot be decoded are shown by their beginning."""
    event = parsed(element)
    return Entry(number, event, _decoded(event) if event is not None else repr(element[:_RAW_SHOWN]))


def parsed(element: bytes) -> Event | None:
    """The event in an element, or None for bytes that are none."""
    try:
        return events.parse(element)
    except MalformedMessage:
        return None


def event_object(entry: Entry) -> dict[str, Any]:
    """``{number, kind, id, attempt, at, detail, payload}``; of bytes that are no event ``{number, kind, payload}``."""
    event = entry.event
    payload = msgspec.to_builtins(entry.payload) if isinstance(entry.payload, ErrorInfo) else entry.payload
    if event is None:
        return {"number": entry.number, "kind": "unreadable", "payload": payload}
    return {
        "number": entry.number,
        "kind": event.kind,
        "id": event.id,
        "attempt": event.attempt,
        "at": event.at,
        "detail": event.detail,
        "payload": payload,
    }


def event_row(entry: Entry, created: int, longest: int | None) -> tuple[str, ...]:
    """Number, time since ``created``, kind, id, attempt, and detail with the payload, cut to ``longest``."""
    event = entry.event
    if event is None:
        return (str(entry.number), "-", "unreadable", "-", "-", str(entry.payload))
    due = due_of(event)
    detail = iso(due) if due else event.detail
    payload = one_line(_payload_text(entry.payload), longest) if event.payload else ""
    return (
        str(entry.number),
        since(event.at, created),
        event.kind,
        event.id or "-",
        str(event.attempt or "-"),
        "  ".join(text for text in (detail, payload) if text),
    )


def due_of(event: Event) -> int:
    """When a wait that is created is over, in epoch ms; 0 for other events, and where its detail is no time."""
    return number_in(event.detail.encode()) if event.kind is EventKind.WAIT_CREATED else 0


def since(at: int, created: int) -> str:
    """A moment as the time since a run was created."""
    return f"+{(at - created) / 1000:.3f}s" if at else "-"


def _payload_text(payload: Any) -> str:
    return str(payload) if isinstance(payload, ErrorInfo) else as_json(payload)


def _decoded(event: Event) -> Any:
    if not event.payload:
        return None
    try:
        if event.kind in _FAILURES:
            return failures.decode(event.payload)
        if event.kind is EventKind.RUN_CREATED:
            return values.decode(events.run_created(event).input)
        return values.decode(event.payload)
    except (MalformedMessage, InvalidValue):
        return repr(event.payload[:_RAW_SHOWN])
