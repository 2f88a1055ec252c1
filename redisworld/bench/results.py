"""What does a workload tell?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec


class Quantiles(msgspec.Struct, frozen=True):
    """Of times in ms."""

    p50: float
    p90: float
    p99: float


class PerStep(msgspec.Struct, frozen=True):
    """What one step (or start) costs Redis.

    ``commands`` are those that clients sent, ``script_calls`` the scripts among them, ``redis_us`` the time its thread
    spent in them by the clock on the wall, so a busy machine adds to it; ``redis_cpu_us`` is the CPU time of that
    thread, reading and writing included. ``bytes`` is ``bytes_in`` and ``bytes_out`` together.
    """

    commands: float
    script_calls: float
    redis_us: float
    redis_cpu_us: float
    bytes: float
    bytes_in: float
    bytes_out: float


class Floor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The same with bare XADD, XREADGROUP, XACK and XDEL through the same client, measured in the same run."""

    per_step: PerStep | None = None
    steps_per_s: float | None = None
    ttfs_ms: Quantiles | None = None
    ttls_ms: Quantiles | None = None
    latency_ms: Quantiles | None = None


class Bucket(msgspec.Struct, frozen=True):
    """Time per step around a place of a sequence: steps ``first`` to ``last``, the median."""

    at: int
    first: int
    last: int
    step_ms: float


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a bench. What a workload does not measure is absent."""

    workload: str
    parameters: dict[str, int | float]
    ttfs_ms: Quantiles | None = None
    """Start call to the start of the first branch's body."""
    ttls_ms: Quantiles | None = None
    """Start call to the start of the last branch's body."""
    total_ms: Quantiles | None = None
    latency_ms: Quantiles | None = None
    warm_ms: Quantiles | None = None
    lateness_ms: Quantiles | None = None
    steps_per_s: float | None = None
    starts_per_s: float | None = None
    per_step: PerStep | None = None
    per_start: PerStep | None = None
    buckets: list[Bucket] | None = None
    growth: float | None = None
    us_per_event: float | None = None
    bytes_per_run: int | None = None
    payload_bytes_per_run: int | None = None
    overhead_bytes_per_run: int | None = None
    commands_per_s: float | None = None
    script_calls_per_s: float | None = None
    redis_us_per_s: float | None = None
    bytes_per_s: float | None = None
    cpu_ms_per_s: float | None = None
    rss_mib: float | None = None
    floor: Floor | None = None
    ratio: dict[str, float] | None = None
    """How many times the floor; of ``steps_per_s`` the share of it."""


def quantiles(values: Sequence[float]) -> Quantiles:
    """p50, p90 and p99 of at least one value."""
    return Quantiles(*(round(quantile(values, q), 3) for q in (0.5, 0.9, 0.99)))


def quantile(values: Sequence[float], q: float) -> float:
    """With linear interpolation."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * q
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def beside(result: Result, floor: Floor) -> Result:
    """The result with its floor, and how many times the floor it is."""
    return msgspec.structs.replace(result, floor=floor, ratio=_ratio(result, floor))


def _ratio(result: Result, floor: Floor) -> dict[str, float]:
    pairs: dict[str, tuple[float, float]] = {}
    per = result.per_step or result.per_start
    if per is not None and floor.per_step is not None:
        for name in ("commands", "redis_us", "redis_cpu_us", "bytes"):
            pairs[name] = getattr(per, name), getattr(floor.per_step, name)
    rate = result.steps_per_s or result.starts_per_s
    if rate is not None and floor.steps_per_s is not None:
        pairs["steps_per_s" if result.steps_per_s else "starts_per_s"] = rate, floor.steps_per_s
    for name in ("ttfs_ms", "ttls_ms", "latency_ms"):
        ours, bare = getattr(result, name), getattr(floor, name)
        if ours is not None and bare is not None:
            pairs[name] = ours.p50, bare.p50
    return {name: round(ours / bare, 3) for name, (ours, bare) in pairs.items() if bare}


def as_object(result: Result) -> dict[str, object]:
    """For JSON: the parameters stand beside the figures."""
    plain: dict[str, object] = msgspec.to_builtins(result)
    parameters = plain.pop("parameters")
    assert isinstance(parameters, dict)
    workload = plain.pop("workload")
    return {"workload": workload, **parameters, **plain}
