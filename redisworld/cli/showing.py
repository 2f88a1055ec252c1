"""How is the story of a run shown: as text for people, as one object for programs?"""

from __future__ import annotations

from typing import Any

import msgspec

from redisworld.cli.event_lines import Entry, event_object, event_row, since
from redisworld.cli.plain import facts, one_line, visible
from redisworld.cli.story import HookStory, StepStory, Story
from redisworld.cli.tables import table
from redisworld.cli.times import iso
from redisworld.durations import length
from redisworld.errors import ErrorInfo
from redisworld.runs import RunRow

_PAYLOAD_SHOWN = 80


def as_object(story: Story) -> dict[str, Any]:
    """``{run, key, attributes, outputs, steps, waits, hooks, events}``; payloads decoded, times in epoch ms."""
    return {
        "run": msgspec.to_builtins(story.row),
        "key": story.key,
        "attributes": story.attributes,
        "outputs": [msgspec.to_builtins(output) for output in story.outputs],
        "steps": [msgspec.to_builtins(step) for step in story.steps],
        "steps_before": story.steps_before,
        "waits": [{"id": id, "due_at": due} for id, due in story.waits.items()],
        "hooks": [msgspec.to_builtins(hook) for hook in story.hooks],
        "hooks_before": story.hooks_before,
        "events": [event_object(entry) for entry in story.entries],
        "events_before": story.entries_before,
    }


def as_text(story: Story, *, whole_payloads: bool) -> str:
    """Header, attributes, output streams, steps, open waits, hooks, log."""
    created = story.row.created_at
    parts = [_header(story.row, story.key)]
    if story.attributes:
        parts.append(table(("ATTRIBUTE", "VALUE"), [(one_line(k), one_line(v)) for k, v in story.attributes.items()]))
    if story.outputs:
        outputs = [(output.name, str(output.chunks), "yes" if output.closed else "no") for output in story.outputs]
        parts.append(table(("OUTPUT", "CHUNKS", "CLOSED"), outputs))
    if story.steps:
        head = ("STEP", "NAME", "STATUS", "ATTEMPT", "STARTED", "TOOK", "RETRY AT")
        parts.append(_before(story.steps_before, "steps") + table(head, [_step_row(s, created) for s in story.steps]))
    if story.waits:
        parts.append(table(("WAIT", "DUE"), [(id, iso(due)) for id, due in story.waits.items()]))
    if story.hooks:
        hooks = table(("HOOK", "TOKEN", "STATE", "RECEIVED"), [_hook_row(hook) for hook in story.hooks])
        parts.append(_before(story.hooks_before, "hooks") + hooks)
    longest = None if whole_payloads else _PAYLOAD_SHOWN
    log_head = ("NR", "AT", "EVENT", "ID", "ATTEMPT", "DETAIL")
    rows = [event_row(entry, created, longest) for entry in story.entries]
    parts.append(_before(story.entries_before, "events") + table(log_head, rows))
    if whole_payloads:
        parts += [_traceback(entry) for entry in story.entries if isinstance(entry.payload, ErrorInfo)]
    return "\n\n".join(parts)


def _traceback(entry: Entry) -> str:
    """What the log says of an error, whole."""
    error: ErrorInfo | None = entry.payload
    lines = [f"event {entry.number}: {error}"]
    while error is not None:
        lines.append((error.traceback or "").rstrip())
        error = error.cause
        if error is not None:
            lines.append(f"caused by {error}")
    return "\n".join(visible(line.expandtabs()) for text in lines for line in text.splitlines())


def _header(row: RunRow, key: str) -> str:
    took = f"  (took {length(row.finished_at - row.created_at)})" if row.finished_at else ""
    return facts(
        ("run", row.run_id),
        ("status", row.status + (f"  ({row.code})" if row.code else "")),
        ("workflow", row.workflow),
        ("deployment", row.deployment or "-"),
        *([("root", row.root_run_id)] if row.root_run_id else []),
        ("created", iso(row.created_at)),
        *([("starts", iso(row.start_at))] if row.start_at and not row.started_at else []),
        ("started", iso(row.started_at)),
        ("finished", iso(row.finished_at) + took),
        ("wake", row.wake or "-"),
        ("log", f"{row.log_length} events" + ("" if row.status.terminal else f", {row.replayed_to} replayed")),
        *([("patches", " ".join(row.patches))] if row.patches else []),
        *([("parked", f"dead letter {' '.join(row.parked)}")] if row.parked and not row.status.terminal else []),
        ("key", key),
    )


def _before(count: int, what: str) -> str:
    return f"({count} earlier {what} not shown; --all shows them)\n" if count else ""


def _step_row(step: StepStory, created: int) -> tuple[str, ...]:
    return (
        step.id,
        step.name,
        step.status,
        str(step.attempt),
        since(step.started_at, created),
        length(step.ended_at - step.started_at) if step.ended_at and step.started_at else "-",
        iso(step.retry_at),
    )


def _hook_row(hook: HookStory) -> tuple[str, ...]:
    state = f"{hook.state}: run {hook.holder} holds it" if hook.holder else hook.state
    return (hook.id, hook.token or "-", state, str(hook.received))
