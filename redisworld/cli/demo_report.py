"""What does the demo tell, as a table and as JSON?"""

from __future__ import annotations

from typing import Any

import msgspec

from redisworld.cli.plain import as_json, one_line
from redisworld.cli.tables import table
from redisworld.durations import length


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One demo. Times are ms since the start() call, by a monotonic clock; counts are of this process and run."""

    redis: str
    server: str
    namespace: str
    run_id: str
    status: str
    branches: int
    ttfs_ms: float | None
    """To the start of the first step."""
    ttls_ms: float | None
    """To the start of the branch that started last; later attempts of the flaky one do not count."""
    total_ms: float | None
    """To the result."""
    prologue: dict[str, int]
    lazy_run_fetches: int
    inline_steps: int
    queued_steps_started: int
    step_bodies: int
    retries: int
    redis_commands: int
    commands_per_step: float
    recorded: dict[str, int]
    """Outcomes of steps as the run's log has them."""
    result: Any
    error: str | None


def as_text(report: Report, hints: list[str]) -> str:
    """A table, and the commands to look inside."""
    r = report
    rows = [
        ("redis", f"{r.redis}: {r.server}"),
        ("run", f"{r.run_id}  {r.status}"),
        ("time to first step", _length(r.ttfs_ms)),
        ("time to last step", _length(r.ttls_ms)),
        ("total", f"{_length(r.total_ms)}, of which 500 ms are a durable sleep"),
        ("prologue run_context", f"{r.prologue['run_context']}  (steps started without reading the run)"),
        ("prologue runs_get", f"{r.prologue['runs_get']}  (steps that had to read the run first)"),
        ("lazy run fetches", f"{r.lazy_run_fetches}  (by the last completer of the fan-out)"),
        ("inline steps", str(r.inline_steps)),
        ("step bodies", f"{r.step_bodies}  ({r.branches} branches, {r.retries} retries, the contact sheet)"),
        ("recorded", f"{r.recorded['completed']} completed, {r.recorded['failed']} failed"),
        ("redis commands per step", f"{r.commands_per_step:g}  ({r.redis_commands} in all)"),
        ("result", one_line(as_json(r.result), 100)),
    ]
    parts = [table(("", f"demo with {r.branches} branches"), rows)]
    if hints:
        parts.append("\n".join(("look inside:", *(f"  {hint}" for hint in hints))))
    return "\n\n".join(parts)


def _length(ms: float | None) -> str:
    return "-" if ms is None else length(ms)
