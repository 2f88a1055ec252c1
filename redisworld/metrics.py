"""Which Prometheus metrics does a process have, and what feeds them?

One observer listens at the ``observe`` seam. Labels are bounded: names outside the registry become ``other``, and
no id or error text is ever a label. Enumerations exist from the start, at 0.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from redisworld import observe as o

Metric = TypeVar("Metric", Counter, Gauge, Histogram)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_LOOP_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROUND_TRIPS = (0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

CLAIM_OUTCOMES = (
    "started",
    "skipped",
    "gone",
    "missing",
    "too_early",
    "exhausted",
    "stale",
    "full",
    "not_found",
    "broken",
)
MOVE_REASONS = (
    "too_early", "missing", "not_found", "unknown_name", "newer_spec", "reroute", "drain", "divergence"
)  # fmt: skip
BURY_REASONS = (
    "undecodable", "unknown_name", "newer_spec", "not_found", "missing", "max_deliveries", "deployment_mismatch",
    "broken",
)  # fmt: skip


class _Series(dict[str | tuple[str, ...], Metric], Generic[Metric]):
    """The series of a labelled metric by its label values, made at first use: ``labels()`` costs more than to count."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric: Metric = metric

    def __missing__(self, values: str | tuple[str, ...]) -> Metric:
        names = (values,) if isinstance(values, str) else values
        series: Metric = self._metric.labels(*names) if names else self._metric
        self[values] = series
        return series


class Metrics:
    """The metrics of one process; ``observe`` is the observer, ``exposition`` what /metrics answers."""

    def __init__(self, *, workflows: Iterable[str] = (), steps: Iterable[str] = ()) -> None:
        self.registry = process_registry()
        self._workflows, self._steps = frozenset(workflows), frozenset(steps)

        def counter(name: str, text: str, *labels: str) -> _Series[Counter]:
            return _Series(Counter(f"redisworld_{name}", text, labels, registry=self.registry))

        def histogram(
            name: str, text: str, *labels: str, buckets: tuple[float, ...] = _DURATIONS
        ) -> _Series[Histogram]:
            return _Series(Histogram(f"redisworld_{name}", text, labels, buckets=buckets, registry=self.registry))

        def gauge(name: str, text: str, *labels: str) -> _Series[Gauge]:
            return _Series(Gauge(f"redisworld_{name}", text, labels, registry=self.registry))

        self.prologue = counter("step_prologue_total", "Step deliveries by how they learned about their run", "path")
        self.lazy_fetches = counter(
            "lazy_run_fetches_total", "Run fetches made after the prologue, by reason", "reason"
        )
        self.claims = counter("step_claims_total", "Answers of the step_started claim", "outcome")
        self.steps_finished = counter("steps_finished_total", "Attempts by outcome", "workflow", "step", "outcome")
        self.step_seconds = histogram(
            "step_duration_seconds", "Body of one attempt, until its outcome is recorded", "workflow", "step"
        )
        self.retries = counter("step_retries_total", "Attempts scheduled again, by cause", "workflow", "step", "cause")
        self.wait = histogram(
            "message_wait_seconds", "Publication of a step message to the start of its step", "workflow"
        )
        self.runs_finished = counter(
            "runs_finished_total", "Runs that this process saw to their end", "workflow", "status"
        )
        self.run_seconds = histogram("run_duration_seconds", "Creation of a run to its end", "workflow", "status")
        self.passes = counter(
            "replays_total",
            "Replay passes by what caused them and what the commit answered",
            "workflow",
            "trigger",
            "outcome",
        )
        self.bodies = counter(
            "workflow_bodies_total", "Messages that continued a run, by where its body came from", "workflow", "source"
        )
        self.read = counter("messages_received_total", "Messages handed to this process", "kind", "delivery")
        self.moved = counter("messages_moved_total", "Messages handed back, by reason", "kind", "reason")
        self.buried = counter("dead_lettered_total", "Messages moved to the dead letters, by reason", "kind", "reason")
        self.late = histogram("timer_lateness_seconds", "Promotion minus due time")[()]
        self.delayed_lost = counter("delayed_lost_total", "Delayed messages that were due without a body", "kind")
        self.groups = counter("groups_recreated_total", "Consumer groups that were gone and made again")[()]
        self.unavailable = gauge("redis_unavailable", "1 while this loop of the process cannot read from Redis", "loop")
        self.recovered = counter("recovered_total", "Lost messages and timers brought back", "kind")
        self.leases_lost = counter("leases_lost_total", "Deliveries that another worker took over")[()]
        self.round_trips = histogram(
            "redis_round_trip_seconds", "One call to Redis, by operation", "op", buckets=_ROUND_TRIPS
        )
        self.redis_errors = counter("redis_errors_total", "Calls to Redis that failed", "op", "error")
        self.in_flight = gauge("worker_in_flight", "Messages being worked on now", "kind")
        self.limit = gauge("worker_concurrency_limit", "Messages worked on at once at most", "kind")
        self.loop_lag = histogram(
            "worker_event_loop_lag_seconds", "How late the event loop came to what was due", buckets=_LOOP_LAGS
        )[()]

        for loop in ("steps", "workflows", "timers", "pending"):
            self.unavailable[loop]
        for kind in ("wake", "step", "wait"):
            self.recovered[kind]
        for kind in ("step", "workflow"):
            self.delayed_lost[kind]
        for path in ("run_context", "runs_get"):
            self.prologue[path]
        for reason in ("last_completer", "redelivery"):
            self.lazy_fetches[reason]
        for outcome in CLAIM_OUTCOMES:
            self.claims[outcome]
        for kind in ("step", "workflow"):
            for delivery in ("first", "reclaimed"):
                self.read[kind, delivery]
            for reason in MOVE_REASONS:
                self.moved[kind, reason]
            for reason in BURY_REASONS:
                self.buried[kind, reason]
        for workflow in self._workflows:
            for source in ("first", "warm", "cold"):
                self.bodies[workflow, source]
            for status in ("completed", "failed", "cancelled"):
                self.runs_finished[workflow, status]

        self._count: dict[type, Callable[[Any], None]] = {
            o.RedisCalled: self._redis_called,
            o.PrologueTaken: lambda seen: self.prologue[seen.path].inc(),
            o.RunFetched: lambda seen: self.lazy_fetches[seen.reason].inc(),
            o.StepClaimed: lambda seen: self.claims[seen.outcome].inc(),
            o.StepStarted: self._step_started,
            o.StepEnded: self._step_ended,
            o.BodyTaken: lambda seen: self.bodies[self._workflow(seen.workflow), seen.source].inc(),
            o.PassCommitted: lambda seen: self.passes[self._workflow(seen.workflow), seen.trigger, seen.outcome].inc(),
            o.RunFinished: self._run_finished,
            o.MessageRead: lambda seen: self.read[_kind(seen.kind), seen.delivery].inc(seen.count),
            o.MessageMoved: lambda seen: self.moved[seen.kind, seen.reason].inc(),
            o.MessageBuried: lambda seen: self.buried[seen.kind, seen.reason].inc(),
            o.TimersPromoted: self._timers_promoted,
            o.DelayedLost: lambda seen: self.delayed_lost[seen.kind].inc(),
            o.GroupRecreated: lambda _: self.groups.inc(),
            o.RunRecovered: lambda seen: self.recovered[seen.kind].inc(),
            o.LeaseLost: lambda _: self.leases_lost.inc(),
            o.Saturation: self._saturation,
            o.Reading: lambda seen: self.unavailable[seen.loop].set(not seen.ok),
            o.LoopMoved: lambda seen: self.loop_lag.observe(seen.late_s),
        }

    def _workflow(self, name: str) -> str:
        return name if name in self._workflows else "other"

    def _step(self, name: str) -> str:
        return name if name in self._steps else "other"

    def observe(self, seen: o.Observation) -> None:
        """Count one observation."""
        count = self._count.get(type(seen))
        if count is not None:
            count(seen)

    def _redis_called(self, seen: o.RedisCalled) -> None:
        self.round_trips[seen.op].observe(seen.seconds)
        if seen.error:
            self.redis_errors[seen.op, seen.error].inc()

    def _step_started(self, seen: o.StepStarted) -> None:
        if not seen.inline:
            self.wait[self._workflow(seen.workflow)].observe(seen.waited_ms / 1000)

    def _step_ended(self, seen: o.StepEnded) -> None:
        workflow, step = self._workflow(seen.workflow), self._step(seen.step)
        self.steps_finished[workflow, step, seen.outcome].inc()
        self.step_seconds[workflow, step].observe(seen.seconds)
        if seen.outcome == "retrying":
            self.retries[workflow, step, seen.cause].inc()

    def _run_finished(self, seen: o.RunFinished) -> None:
        workflow = self._workflow(seen.workflow)
        self.runs_finished[workflow, seen.status].inc()
        self.run_seconds[workflow, seen.status].observe(seen.seconds)

    def _timers_promoted(self, seen: o.TimersPromoted) -> None:
        for late_ms in seen.late_ms:
            self.late.observe(late_ms / 1000)

    def _saturation(self, seen: o.Saturation) -> None:
        self.in_flight[seen.kind].set(seen.in_flight)
        self.limit[seen.kind].set(seen.limit)

    def watch(self, *, ready: Callable[[], bool], silences: Callable[[], Mapping[str, float]]) -> None:
        """Show readiness and each loop's silence as they are at the scrape: a stuck process would not say it."""
        self.registry.register(_Watched(ready, silences))

    def exposition(self) -> bytes:
        """The text of /metrics."""
        return exposition(self.registry)


class _Watched(Collector):
    def __init__(self, ready: Callable[[], bool], silences: Callable[[], Mapping[str, float]]) -> None:
        self._ready, self._silences = ready, silences

    def collect(self) -> Iterable[GaugeMetricFamily]:
        text = "1 while this worker takes messages, as /readyz says"
        yield GaugeMetricFamily("redisworld_worker_ready", text, value=self._ready())
        text = "Since a loop has read its streams or found its slots taken"
        silent = GaugeMetricFamily("redisworld_worker_last_poll_age_seconds", text, labels=["loop"])
        for loop, seconds in self._silences().items():
            silent.add_metric([loop], seconds)
        yield silent


def process_registry() -> CollectorRegistry:
    """What every process tells: of itself, of its interpreter, and its versions."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a third of all series, which nobody queries
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    labels = ("version", "python_version", "redis_client")
    build = Gauge("redisworld_build_info", "Constant 1, labelled with versions", labels, registry=registry)
    build.labels(version("redisworld"), platform.python_version(), version("redis")).set(1)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """The text of /metrics."""
    return generate_latest(registry)


def _kind(kind: str) -> str:
    return kind if kind in ("step", "workflow") else "other"
