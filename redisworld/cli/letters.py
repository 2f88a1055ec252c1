"""How is a dead letter shown: as a line, as text for people, as one object for programs?"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from redisworld import values
from redisworld.cli.plain import as_json, one_line
from redisworld.cli.times import iso
from redisworld.errors import InvalidValue, MalformedMessage
from redisworld.messages import StepMessage, WorkflowMessage
from redisworld.world.dead import REASONS, Letter

_BYTES_SHOWN = 200


def headline(letter: Letter) -> tuple[str, ...]:
    """Its line in a list; whatever a stranger wrote is shown on one line."""
    cells = (letter.reason, letter.kind, letter.run_id, letter.text("name"))
    shown = [one_line(cell, 60) or "-" for cell in cells]
    return (letter.name, iso(letter.at), *shown, str(letter.deliveries))


def as_object(letter: Letter) -> dict[str, Any]:
    """All that is known; ``message`` is None for bytes that are none, ``original`` the fields as base64."""
    return {
        "letter": letter.name,
        "kind": letter.kind,
        "reason": letter.reason,
        "detail": letter.detail,
        "deliveries": letter.deliveries,
        "stream": letter.partition.tag + letter.stream,
        "entry": letter.entry,
        "at": letter.at,
        "run_id": letter.run_id,
        "message": _message(letter),
        "original": {name: base64.b64encode(data).decode() for name, data in letter.original.items()},
        **({"rest": base64.b64encode(letter.rest).decode()} if letter.rest else {}),
    }


def as_text(letter: Letter) -> str:
    """Why it is one, where it was, and what it says."""
    facts = [
        ("letter", letter.name),
        ("reason", f"{letter.reason}: {REASONS.get(letter.reason, 'no reason of ours')}"),
        ("detail", letter.detail or "-"),
        ("buried", iso(letter.at)),
        ("deliveries", str(letter.deliveries)),
        ("stream", letter.partition.tag + letter.stream),
        ("entry", letter.entry),
        ("run", letter.run_id or "-"),
    ]
    message = _message(letter)
    if message is None:
        facts.append(("bytes", f"{len(letter.body)}, no message: {letter.body[:_BYTES_SHOWN]!r}"))
    else:
        facts += [(f"  {name}", value if isinstance(value, str) else as_json(value)) for name, value in message.items()]
    lines = [f"{name:<15} {one_line(value, 2_000)}" for name, value in facts]
    if message is not None:
        lines.insert(8, "message")
    return "\n".join(line.rstrip() for line in lines)


def _message(letter: Letter) -> dict[str, Any] | None:
    """The message by its fields, arguments decoded."""
    message = letter.message
    if message is None or isinstance(message, dict):
        return message
    fields: dict[str, Any] = msgspec.structs.asdict(message)
    told = {
        name: value
        for name, value in fields.items()
        if value is not None and (name, value) != ("deployment_mismatch_retry_count", 0)
    }
    told = {"kind": "step" if isinstance(message, StepMessage) else "workflow", **told}
    if isinstance(message, StepMessage):
        if message.run_context is not None:
            told["run_context"] = msgspec.to_builtins(message.run_context)
        if message.step_input is not None:
            told["step_input"] = _decoded(message.step_input)
    elif isinstance(message, WorkflowMessage) and message.run_input is not None:
        told["run_input"] = msgspec.structs.asdict(message.run_input) | {"input": _decoded(message.run_input.input)}
    return told


def _decoded(data: bytes) -> Any:
    try:
        return values.decode(data)
    except (InvalidValue, MalformedMessage, msgspec.DecodeError):
        return repr(data[:_BYTES_SHOWN])
