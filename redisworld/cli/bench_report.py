"""How are the figures of a bench shown to people, as text and as Markdown?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from redisworld.bench.results import Floor, PerStep, Quantiles, Result
from redisworld.cli.tables import table

_HEADER = ("", "redisworld", "floor", "ratio")
_BAR = 40

_FIGURES = {
    "steps_per_s": "steps/s",
    "starts_per_s": "starts/s",
    "growth": "growth, last bucket to step 10",
    "us_per_event": "µs per event",
    "bytes_per_run": "bytes per run",
    "payload_bytes_per_run": "of these payload",
    "overhead_bytes_per_run": "the rest",
    "commands_per_s": "commands/s",
    "script_calls_per_s": "of these script calls/s",
    "redis_us_per_s": "µs of Redis per second",
    "bytes_per_s": "bytes/s",
    "cpu_ms_per_s": "worker CPU, ms per second",
    "rss_mib": "worker memory, MiB",
}
_TIMES = {
    "ttfs_ms": "time to first step, ms",
    "ttls_ms": "time to last step, ms",
    "total_ms": "total, ms",
    "latency_ms": "latency, ms",
    "lateness_ms": "lateness, ms",
    "warm_ms": "the same warm, ms",
}
_COSTS = {
    "commands": "commands",
    "script_calls": "script calls",
    "redis_us": "Redis µs",
    "redis_cpu_us": "Redis CPU µs",
    "bytes_in": "bytes to Redis",
    "bytes_out": "bytes from Redis",
}


def as_text(results: list[Result]) -> str:
    """A table for each result, and a chart where there are several places of one curve."""
    parts = []
    for result in results:
        parts.append(table((title(result), *_HEADER[1:]), list(_rows(result))))
        if result.buckets:
            bars = [(f"step {bucket.at}", bucket.step_ms) for bucket in result.buckets]
            parts.append(_chart("ms per step", bars))
    for _, group in groupby(results, lambda result: result.workload):
        bars = [(f"{r.parameters['branches']} branches", r.ttls_ms.p50) for r in group if r.ttls_ms is not None]
        if len(bars) > 1:
            parts.append(_chart("ms to the last step, p50", bars))
    return "\n\n".join(parts)


def as_markdown(results: list[Result]) -> str:
    """A heading and a table for each result."""
    return "\n\n".join(_markdown(result) for result in results)


def title(result: Result) -> str:
    """Like ``fanout: branches 64, rounds 15``."""
    parameters = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in result.parameters.items())
    return f"{result.workload}: {parameters}"


def _markdown(result: Result) -> str:
    rows = list(_rows(result)) + [
        (f"ms per step at step {bucket.at}", _number(bucket.step_ms), "", "") for bucket in result.buckets or ()
    ]
    lines = [f"### {title(result)}", "", f"| {' | '.join(_HEADER)} |", "|---|---:|---:|---:|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _rows(result: Result) -> Iterator[tuple[str, str, str, str]]:
    """Figure, ours, the floor's, ratio."""
    floor = result.floor or Floor()
    ratio = result.ratio or {}
    for field, text in _TIMES.items():
        if getattr(result, field) is not None:
            ours, bare = getattr(result, field), getattr(floor, field, None)
            for name in Quantiles.__struct_fields__:
                times = ratio.get(field) if name == "p50" else None
                yield (
                    f"{text}, {name}",
                    _number(getattr(ours, name)),
                    _number(getattr(bare, name, None)),
                    _number(times),
                )
    for field, text in _FIGURES.items():
        if getattr(result, field) is not None:
            bare = floor.steps_per_s if field in ("steps_per_s", "starts_per_s") else None
            yield text, _number(getattr(result, field)), _number(bare), _number(ratio.get(field))
    yield from _costs(result, floor, ratio)


def _costs(result: Result, floor: Floor, ratio: dict[str, float]) -> Iterator[tuple[str, str, str, str]]:
    per, each = (result.per_step, "step") if result.per_step else (result.per_start, "start")
    if per is None:
        return
    bare: PerStep | None = floor.per_step
    for field, text in _COSTS.items():
        number = None if bare is None else getattr(bare, field)
        yield f"{text} per {each}", _number(getattr(per, field)), _number(number), _number(ratio.get(field))


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _chart(label: str, bars: list[tuple[str, float]]) -> str:
    most = max(value for _, value in bars) or 1.0
    width = max(len(name) for name, _ in bars)
    drawn = (
        f"{name.rjust(width)}  {'█' * max(1, round(value / most * _BAR))} {_number(value)}" for name, value in bars
    )
    return "\n".join((label, *drawn))


def curves(results: list[Result]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Curves by title and label, for a plot: fan-outs over their branches, sequences along their steps."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for result in results:
        if result.workload == "fanout":
            lines = found.setdefault("fan-out, ms by branches (p50)", {})
            for name in ("ttfs_ms", "ttls_ms", "total_ms"):
                point: Quantiles = getattr(result, name)
                lines.setdefault(name.removesuffix("_ms"), []).append((result.parameters["branches"], point.p50))
            if result.floor is not None and result.floor.ttls_ms is not None:
                at = result.parameters["branches"]
                lines.setdefault("ttls of the floor", []).append((at, result.floor.ttls_ms.p50))
        elif result.buckets:
            points = [(float(bucket.at), bucket.step_ms) for bucket in result.buckets]
            found.setdefault("sequence, ms per step by step", {})["step"] = points
    return found
