"""Why is this run not moving? ``redisworld run why`` says what it waits for, who holds it and what would wake it."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from redisworld.cli.commands import add_verb
from redisworld.cli.options import add_setting, duration_ms
from redisworld.cli.plain import as_json, facts, one_line
from redisworld.cli.times import ago, iso
from redisworld.world import World
from redisworld.world.waiting import Standing, Waiting, read_standing

_LONGEST = 200


def add_to(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "why", _why, of=("run_id", "ID", "the run's id"),
        does="Say what a run waits for: since when, who holds it, and what would wake it.",
        example="redisworld run why publish-cat",
    )  # fmt: skip
    add_setting(
        parser,
        "--lease",
        "lease_ms",
        "lease of the workers, if none lives to tell it (default: 30s)",
        type=duration_ms,
    )


async def _why(world: World, arguments: argparse.Namespace) -> None:
    standing = await read_standing(world, arguments.run_id)
    print(as_json(as_object(standing)) if arguments.json else as_text(standing))


def as_object(standing: Standing) -> dict[str, Any]:
    """``{run, at_ms, steps, waits_for, more, workers}``."""
    told: dict[str, Any] = msgspec.to_builtins(standing)
    return {"run": told.pop("row"), **told}


def as_text(standing: Standing) -> str:
    """The run, then each thing with the facts about it."""
    row, now = standing.row, standing.at_ms
    if row.status.terminal:
        code = f" ({row.code})" if row.code else ""
        return f"run {row.run_id} waits for nothing: it is {row.status}{code} since {_since(row.finished_at, now)}"
    steps = ", ".join(f"{count} {status}" for status, count in standing.steps.items() if count)
    parts = [
        facts(
            ("run", row.run_id),
            ("status", f"{row.status}, created {_since(row.created_at, now)}"),
            ("workflow", row.workflow + (f", deployment {row.deployment}" if row.deployment else "")),
            ("steps", steps or "none"),
            ("workers", f"{standing.workers} live" if standing.workers else "nobody: no live worker in this namespace"),
        )
    ]
    parts += [f"{_headline(what, now)}\n{facts(*_facts(what, now), width=13)}" for what in standing.waits_for]
    if standing.more:
        parts.append(f"… and {standing.more} more that are open (redisworld steps {row.run_id}, run show {row.run_id})")
    return "\n\n".join(parts)


def headline(what: Waiting) -> str:
    """What it waits for, in a few words."""
    name = f"{what.id} {what.name}" if what.name else what.id
    match what.what:
        case "step":
            return f"step {name}"
        case "retry":
            return f"retry of step {name}"
        case "timer":
            return f"timer {what.id}"
        case "start":
            return "its start, which is delayed"
        case "hook":
            return f"hook {what.token}"
        case "wake":
            return f"wake {what.id}"
        case "handed_back":
            return f"{name} (handed back)"
        case "letter":
            return f"dead letter {what.id} ({what.name})"
        case "lost":
            return f"{name} (its message was not found)"
        case _:
            return "nothing that is known"


def _headline(what: Waiting, now: int) -> str:
    return f"waits for {headline(what)}" + (f", since {_since(what.since, now)}" if what.since else "")


def _facts(what: Waiting, now: int) -> list[tuple[str, str]]:
    """The lines below the headline; each begins with a word."""
    lines = [("  state", _state(what, now))]
    if what.stream:
        entry = f", entry {what.entry}" if what.entry else ""
        lines.append(("  stream", f"{what.stream}{entry}{_delivered(what)}"))
    if what.consumer:
        life = "a live worker" if what.consumer_lives else "gone: no heartbeat"
        lines.append(("  held by", f"{what.consumer} ({life}), {_lease(what)}"))
    elif what.stream:
        lines.append(("  read by", _readers(what)))
    if what.error:
        lines.append(("  error", one_line(what.error, _LONGEST)))
    lines.append(("  goes on", _remedy(what)))
    return lines


def _state(what: Waiting, now: int) -> str:
    match what.what:
        case "step" if what.running:
            gone = what.consumer and not what.consumer_lives
            return f"its body {'ran on a worker that is gone' if gone else 'runs'}, attempt {what.attempt}"
        case "wake" if what.consumer and not what.consumer_lives:
            return "a worker that is gone has it"
        case "wake" if what.consumer:
            return "a worker has it: the run is being replayed, or will be"
        case "step" if what.consumer:
            return "a worker has its message and has not begun"
        case "step" | "wake":
            return "its message is queued and unread"
        case "retry" | "timer" | "start" | "handed_back":
            left = what.due_at - now
            attempts = f", after attempt {what.attempt}" if what.what == "retry" else ""
            return f"due at {iso(what.due_at)}, " + (f"in {ago(left)}" if left > 0 else f"{ago(-left)} ago") + attempts
        case "hook":
            return f"open, token {what.token}"
        case "letter":
            return "the run is parked: it rests until somebody decides"
        case "lost":
            return "not delayed, and not among the 1,000 entries of any stream from its time on"
        case _:
            return "no step, timer, hook or message of it is open"


def _lease(what: Waiting) -> str:
    if what.lease_left_ms >= 0:
        return f"its lease ends in {ago(what.lease_left_ms)} unless it is renewed"
    return f"its lease ended {ago(-what.lease_left_ms)} ago"


def _readers(what: Waiting) -> str:
    if not what.readers:
        return "nobody: no live worker reads this stream"
    return f"{what.readers} live worker" + ("" if what.readers == 1 else "s")


def _remedy(what: Waiting) -> str:
    """What would wake the run."""
    match what.what:
        case "step" | "wake" if what.consumer and not what.consumer_lives:
            return "when the lease is over and a live worker takes the message over; start one if there is none"
        case "step" if what.running:
            return "when the body ends; if its worker dies, another one takes it over at the end of the lease"
        case "step" | "wake" | "handed_back" if not what.consumer and not what.readers:
            return f"when a worker reads {what.stream}: {_start_one(what.stream)}"
        case "step" | "wake":
            return "by itself, unless a body blocks that worker" if what.consumer else "when a worker has a free slot"
        case "handed_back":
            return "when a worker takes it that knows its name, version and deployment; the workers' log says more"
        case "retry" | "timer" | "start":
            return "by itself, when it is due and a worker runs"
        case "hook":
            return f"when somebody resumes it: redisworld hook resume {what.token} JSON"
        case "letter":
            return f"redisworld dead show {what.id}, then: dead redrive {what.id} (or dead drop)"
        case _:
            return "by recovery, within minutes, if a worker runs; redisworld doctor looks through everything"


def _start_one(stream: str) -> str:
    queue, _, deployment = stream.partition("@")
    options = f" --queue {queue.removeprefix('steps:')}" if queue.startswith("steps:") else ""
    return f"redisworld worker MODULE{options}" + (f" --deployment {deployment} --affinity" if deployment else "")


def _delivered(what: Waiting) -> str:
    if not what.deliveries:
        return ""
    times = "once" if what.deliveries == 1 else f"{what.deliveries} times"
    return f", handed back {times}" if what.what == "handed_back" else f", delivered {times}"


def _since(at: int, now: int) -> str:
    return f"{iso(at)} ({ago(now - at)})"
