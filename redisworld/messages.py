"""What travels on the streams? (design section 6)"""

from __future__ import annotations

import re

import msgspec

from redisworld.errors import MalformedMessage
from redisworld.settings import SPEC_VERSION


class RunContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """The immutable identity of a run, so that a step starts without reading its row.

    The status is left out on purpose: whether the run still lives is the claim's business.
    """

    deployment_id: str
    spec_version: int
    started_at: float | int | None = None
    """Epoch milliseconds."""
    root_run_id: str | None = None


class RunInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is needed to create a run again, and to make its first pass without a read."""

    input: bytes
    deployment_id: str = ""
    spec_version: int = SPEC_VERSION
    root_run_id: str | None = None


class StepMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind", tag="step"):
    """One step, ready to run. ``message_id`` stays the same over redelivery, delay and re-route."""

    message_id: str
    run_id: str
    workflow_name: str
    step_id: str
    step_name: str
    run_context: RunContext | None = None
    step_input: bytes | None = None
    """The arguments; without it the claim returns them from the log."""
    deliveries: int = 1
    """Counts moves between streams and the delayed set, from 1; not the step's attempt."""
    first_refused_at: int | None = None
    """Epoch milliseconds of the first time a worker could not process it."""
    requested_at: int = 0
    trace_carrier: dict[str, str] | None = None
    deployment_mismatch_retry_count: int = 0


class WorkflowMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind", tag="workflow"):
    """Look at this run. ``reason`` is one of start, step, timer, hook, recovery, divergence, admin."""

    message_id: str
    run_id: str
    workflow_name: str
    reason: str = "admin"
    run_input: RunInput | None = None
    """On the first message of a run only."""
    deliveries: int = 1
    first_refused_at: int | None = None
    requested_at: int = 0
    trace_carrier: dict[str, str] | None = None
    deployment_mismatch_retry_count: int = 0
    recoveries: int = 0
    """Replays of a run that diverged; not its deliveries, of which a drain or an unknown name makes more."""


Message = StepMessage | WorkflowMessage

_encoder = msgspec.msgpack.Encoder()
_strict = msgspec.msgpack.Decoder(Message)
_fields = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_trace_carrier = msgspec.msgpack.Decoder(dict[str, str])
_untyped = msgspec.msgpack.Decoder()
_number = msgspec.msgpack.Decoder(int | float)
_WORD = re.compile(r"[^\s\x00-\x1f|]+")
_THREE_WORDS, _FIVE_WORDS = (re.compile(" ".join([_WORD.pattern] * n)) for n in (3, 5))
"""Ids and names stand in log headers, step states and the delayed set, between spaces and bars."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that are not what it reads."""


def encode(message: Message) -> bytes:
    """The bytes of the stream field ``msg``."""
    return _encoder.encode(message)


def decode(data: bytes) -> Message:
    """The message in the stream field ``msg``. Raises MalformedMessage saying what is wrong with it."""
    try:
        message = _strict.decode(data)
    except UNREADABLE as first:
        try:
            message = _strict.decode(_without_bad_diagnostics(data))
        except UNREADABLE:
            raise MalformedMessage(f"not a message: {first}") from first
    words = f"{message.message_id} {message.run_id} {message.workflow_name}"
    if isinstance(message, StepMessage):
        words += f" {message.step_id} {message.step_name}"
    if not (_FIVE_WORDS if isinstance(message, StepMessage) else _THREE_WORDS).fullmatch(words):
        raise MalformedMessage(f"not a message: its ids and names must be one word each, not {words!r:.200}")
    return message


def _without_bad_diagnostics(data: bytes) -> bytes:
    """The same message without malformed diagnostic fields: those never cost the message (design section 6).

    All other fields stay the bytes they are, and are judged as strictly as before.
    """
    fields = _fields.decode(data)
    for name, read in (("trace_carrier", _trace_carrier.decode), ("requested_at", _whole_number)):
        if name in fields:
            try:
                fields[name] = msgspec.Raw(_encoder.encode(read(fields[name])))
            except (*UNREADABLE, ValueError, OverflowError):
                del fields[name]
    return _encoder.encode(fields)


def _whole_number(data: msgspec.Raw) -> int:
    # Producers whose only number is a double write epoch milliseconds as one; infinity and NaN have no integer.
    return int(_number.decode(data))


def touched(data: bytes, *, refused_at: int) -> tuple[bytes, str, int]:
    """A message of a newer version for its next delivery, with the fields that we do not know.

    Returns its bytes with one more in ``deliveries``, its id, and ``first_refused_at``. Raises MalformedMessage.
    """
    try:
        fields = _untyped.decode(data)
    except UNREADABLE as error:
        raise MalformedMessage(f"not a message: {error}") from error
    message_id = fields.get("message_id") if isinstance(fields, dict) else None
    if not isinstance(message_id, str) or not _WORD.fullmatch(message_id):
        raise MalformedMessage("not a message: no message_id")
    deliveries, first = fields.get("deliveries"), fields.get("first_refused_at")
    fields["deliveries"] = (deliveries if isinstance(deliveries, int) else 1) + 1
    fields["first_refused_at"] = first if isinstance(first, int) and first <= refused_at else refused_at
    return _encoder.encode(fields), message_id, fields["first_refused_at"]


def moved(message: StepMessage | WorkflowMessage, *, refused_at: int | None = None) -> Message:
    """The same message for its next delivery: one more in ``deliveries``, ``first_refused_at`` set once.

    A first time that is still to come is a stranger's: it would be handed back for ever.
    """
    first = message.first_refused_at
    if refused_at is not None and (first is None or first > refused_at):
        first = refused_at
    return msgspec.structs.replace(message, deliveries=message.deliveries + 1, first_refused_at=first)


def renewed(data: bytes) -> dict[str, object]:
    """A message of whatever version as new: what counts its deliveries and refusals is taken away.

    Its fields, also those we do not know; ``kind``, ``message_id`` and ``run_id`` are words. Raises MalformedMessage.
    """
    try:
        fields = _untyped.decode(data)
    except UNREADABLE as error:
        raise MalformedMessage(f"not a message: {error}") from error
    if not isinstance(fields, dict):
        raise MalformedMessage("not a message: no map of fields")
    for name in ("kind", "message_id", "run_id"):
        if not isinstance(fields.get(name), str) or not _WORD.fullmatch(fields[name]):
            raise MalformedMessage(f"not a message: no {name}")
    for name in ("deliveries", "first_refused_at", "deployment_mismatch_retry_count", "recoveries"):
        fields.pop(name, None)
    return fields


def readdressed(data: bytes, deployment: str) -> bytes:
    """A message of whatever version, of a run that belongs to this deployment now. Raises MalformedMessage.

    As new, but not as one that nobody has seen: a run's first message may own a step by now, which only a load tells.
    """
    fields = renewed(data) | {"deliveries": 2}
    for name in ("run_context", "run_input"):
        if isinstance(identity := fields.get(name), dict):
            identity["deployment_id"] = deployment
    return packed(fields)


def is_word(text: str) -> bool:
    """Whether an id or name can stand where words stand."""
    return _WORD.fullmatch(text) is not None


def packed(fields: dict[str, object]) -> bytes:
    """The bytes of a message given by its fields."""
    return _encoder.encode(fields)
