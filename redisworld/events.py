"""What is in a run's log? (design sections 5 and 7)

An element of the log is one clear header line, ``kind id attempt ts [detail]``, then the payload as msgpack:

    step_created s2_7k0h3vq1m5fa - 1764628800123 thumbnail
    <msgpack of the arguments>

``id`` and ``attempt`` are ``-`` where the kind has none. ``detail`` is a word people want to see without a
decoder: the workflow's or step's name, a wait's due time, a failure code.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from redisworld.errors import MalformedMessage
from redisworld.messages import UNREADABLE


class EventKind(StrEnum):
    """The kinds of events; each is written by a script that checks, changes the row and appends, or does none."""

    __hash__ = str.__hash__
    """That of Enum is Python, and a replay looks each event up."""

    RUN_CREATED = "run_created"
    RUN_STARTED = "run_started"
    RUN_COMPLETED = "run_completed"
    RUN_FAILED = "run_failed"
    CANCEL_REQUESTED = "cancel_requested"
    RUN_CANCELLED = "run_cancelled"
    ATTR_SET = "attr_set"
    PATCHED = "patched"
    STEP_CREATED = "step_created"
    STEP_STARTED = "step_started"
    STEP_RETRYING = "step_retrying"
    STEP_COMPLETED = "step_completed"
    STEP_FAILED = "step_failed"
    HOOK_CREATED = "hook_created"
    HOOK_CONFLICT = "hook_conflict"
    HOOK_RECEIVED = "hook_received"
    HOOK_DISPOSED = "hook_disposed"
    WAIT_CREATED = "wait_created"
    WAIT_COMPLETED = "wait_completed"
    WAIT_CANCELLED = "wait_cancelled"


_KINDS = {kind.value: kind for kind in EventKind}
"""Found ten times faster than by calling the enumeration."""


class Event(msgspec.Struct, frozen=True):
    """One element of the log.

    ``id`` is the correlation id, or ``""``; ``attempt`` is 0 where the kind has none; ``at`` is Redis time in
    epoch milliseconds, never below the event before; ``payload`` is msgpack, opaque here, or empty.
    """

    kind: EventKind
    id: str
    attempt: int
    at: int
    detail: str
    payload: bytes


_NO_CARRIER = msgspec.Raw(b"\xc0")
_carrier = msgspec.msgpack.Decoder(dict[str, str] | None)


class RunCreated(msgspec.Struct, frozen=True, omit_defaults=True):
    """Payload of ``run_created``: what start() was given."""

    input: bytes
    deployment_id: str = ""
    spec_version: int = 1
    root_run_id: str | None = None
    trace_carrier: msgspec.Raw = _NO_CARRIER
    """As in the first message, for the passes after it; read by ``carrier`` only, so that a bad one costs nothing."""

    @property
    def carrier(self) -> dict[str, str] | None:
        """The trace carrier; None where there is none that can be read."""
        try:
            return _carrier.decode(self.trace_carrier)
        except UNREADABLE:
            return None


_created = msgspec.msgpack.Decoder(RunCreated)


def run_created(event: Event) -> RunCreated:
    """What start() was given, from the first event of a log. Raises MalformedMessage where it does not say that."""
    if event.kind is not EventKind.RUN_CREATED:
        raise MalformedMessage(f"the log begins with {event.kind}, not with run_created")
    try:
        return _created.decode(event.payload)
    except UNREADABLE as error:
        raise MalformedMessage(f"run_created cannot be read: {error}") from error


def carried(carrier: dict[str, str] | None) -> msgspec.Raw:
    """A trace carrier as RunCreated holds it."""
    return msgspec.Raw(msgspec.msgpack.encode(carrier)) if carrier else _NO_CARRIER


def parse(element: bytes) -> Event:
    """The event in a log element. Raises MalformedMessage for bytes that are none."""
    header, _, payload = element.partition(b"\n")
    parts = header.decode("utf-8", "replace").split(" ")
    try:
        kind, identifier, attempt, at = parts[:4]
        return Event(
            _KINDS[kind],
            "" if identifier == "-" else identifier,
            0 if attempt == "-" else int(attempt),
            int(at),
            parts[4] if len(parts) > 4 else "",
            payload,
        )
    except (ValueError, KeyError) as error:
        raise MalformedMessage(f"not a log element: header {header[:120]!r}") from error
