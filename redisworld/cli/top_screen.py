"""What stands on the screen of ``redisworld top``? Lines that fit a terminal of 80 by 24, or any other."""

from __future__ import annotations

from typing import Any

import msgspec

from redisworld.cli.queues import footer, lines_of
from redisworld.cli.tables import BOLD, painted, table
from redisworld.cli.times import ago, iso
from redisworld.state import State

_RATES = (
    ("runs", (("started", "runs_created"), ("completed", "runs_completed"), ("failed", "runs_failed"),
              ("cancelled", "runs_cancelled"))),
    ("steps", (("started", "steps_started"), ("completed", "steps_completed"), ("retried", "steps_retried"),
               ("failed", "steps_failed"))),
    ("other", (("wakes", "wakes"), ("reclaimed", "messages_reclaimed"), ("moved", "messages_moved"),
               ("buried", "buried"))),
)  # fmt: skip
_LEAST_ROWS = 2
_AROUND = 11
"""Lines that are no rows of a table."""


def rates_of(now: State, before: State | None) -> dict[str, float]:
    """What the scripts have counted between two looks, per second, by its name in ``{ns:p}:stats``."""
    if before is None or now.at_ms <= before.at_ms:
        return {}
    seconds = (now.at_ms - before.at_ms) / 1000
    names = [name for _, parts in _RATES for _, name in parts]
    return {
        name: round(max(0, now.recorded.get(name, 0) - before.recorded.get(name, 0)) / seconds, 2) for name in names
    }


def as_object(now: State, before: State | None) -> dict[str, Any]:
    """``{at_ms, namespace, runs, rates, queues, workers, delayed, overdue, dead_letters}``."""
    return {
        "at_ms": now.at_ms,
        "namespace": now.namespace,
        "runs": now.runs,
        "rates": rates_of(now, before),
        "queues": [msgspec.to_builtins(line) for line in lines_of(now)],
        "workers": [msgspec.to_builtins(worker) for worker in now.workers],
        "delayed": now.timers_pending,
        "overdue": now.timers_overdue,
        "dead_letters": now.dead_letters,
    }


def as_text(now: State, before: State | None, *, url: str, size: tuple[int, int]) -> list[str]:
    """The lines of a screen of ``size`` columns and lines."""
    width, height = size
    rates = rates_of(now, before)
    queues, workers = _queue_rows(now), _worker_rows(now)
    for_tables = max(2 * _LEAST_ROWS, height - _AROUND)
    for_queues = min(len(queues), max(_LEAST_ROWS, for_tables - len(workers), for_tables // 2))
    lines = [
        painted(f"redisworld top  {iso(now.at_ms)}  {now.namespace} at {url}"[:width], BOLD),
        "runs    " + "  ".join(f"{count} {status}" for status, count in now.runs.items()),
        *(f"{what + '/s':<7} " + _rates(rates, parts) for what, parts in _RATES),
        footer(now),
        "",
        *_table(("STREAM", "UNREAD", "PENDING", "OLDEST UNREAD", "WORKERS"), queues, for_queues, width),
        "",
        *_table(("WORKER", "STATE", "STEPS", "REPLAYS", "UP", "DEPLOYMENT"), workers, for_tables - for_queues, width),
    ]
    return [line if "\x1b" in line else line[:width] for line in lines]


def _rates(rates: dict[str, float], parts: tuple[tuple[str, str], ...]) -> str:
    return "  ".join(f"{word} {rates[name]:g}" if name in rates else f"{word} -" for word, name in parts)


def _queue_rows(now: State) -> list[tuple[str, ...]]:
    lines = sorted(lines_of(now), key=lambda line: -line.unread - line.pending)
    return [
        (
            line.stream,
            str(line.unread),
            str(line.pending),
            ago(line.oldest_unread_ms) if line.unread else "-",
            str(line.workers) if line.workers else "nobody",
        )
        for line in lines
    ]


def _worker_rows(now: State) -> list[tuple[str, ...]]:
    return [
        (
            worker.consumer,
            worker.state,
            f"{worker.steps}/{worker.steps_limit}",
            f"{worker.replays}/{worker.replays_limit}",
            ago(now.at_ms - worker.started_at),
            worker.deployment or "-",
        )
        for worker in now.workers
    ]


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]], most: int, width: int) -> list[str]:
    """The table with ``most`` rows; the last line then counts the others."""
    if not rows:
        return [f"no live {header[0].lower()}"]
    shown = rows if len(rows) <= most else rows[: max(0, most - 1)]
    lines = table(header, shown, widest=width).split("\n")
    return lines if len(shown) == len(rows) else [*lines, f"… and {len(rows) - len(shown)} more"]
