"""Which Prometheus metrics does a process have, and what feeds them?

One observer listens at the ``observe`` seam. Labels are bounded: names outside the registry become ``other``, and
no id or error text is ever a label. Enumerations exist from the start, at 0.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from redisworld import observe as o

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
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


class Metrics:
    """The metrics of one process; ``observe`` is the observer, ``exposition`` what /metrics answers."""

    def __init__(self, *, workflows: Iterable[str] = (), steps: Iterable[str] = ()) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a third of all series, which nobody queries
        self.registry = CollectorRegistry()
        self._workflows, self._steps = frozenset(workflows), frozenset(steps)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"redisworld_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _DURATIONS) -> Histogram:
            return Histogram(f"redisworld_{name}", text, labels, buckets=buckets, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"redisworld_{name}", text, labels, registry=self.registry)

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
        self.late = histogram("timer_lateness_seconds", "Promotion minus due time")
        self.groups = counter("groups_recreated_total", "Consumer groups that were gone and made again")
        self.leases_lost = counter("leases_lost_total", "Deliveries that another worker took over")
        self.round_trips = histogram(
            "redis_round_trip_seconds", "One call to Redis, by operation", "op", buckets=_ROUND_TRIPS
        )
        self.redis_errors = counter("redis_errors_total", "Calls to Redis that failed", "op", "error")
        self.in_flight = gauge("worker_in_flight", "Messages being worked on now", "kind")
        self.limit = gauge("worker_concurrency_limit", "Messages worked on at once at most", "kind")
        build = gauge("build_info", "Constant 1, labelled with versions", "version", "python_version", "redis_client")
        build.labels(version("redisworld"), platform.python_version(), version("redis")).set(1)

        for path in ("run_context", "runs_get"):
            self.prologue.labels(path)
        for reason in ("last_completer", "redelivery"):
            self.lazy_fetches.labels(reason)
        for outcome in CLAIM_OUTCOMES:
            self.claims.labels(outcome)
        for kind in ("step", "workflow"):
            for delivery in ("first", "reclaimed"):
                self.read.labels(kind, delivery)
        for workflow in self._workflows:
            for source in ("first", "warm", "cold"):
                self.bodies.labels(workflow, source)
            for status in ("completed", "failed", "cancelled"):
                self.runs_finished.labels(workflow, status)

    def _workflow(self, name: str) -> str:
        return name if name in self._workflows else "other"

    def _step(self, name: str) -> str:
        return name if name in self._steps else "other"

    def observe(self, seen: o.Observation) -> None:
        """Count one observation."""
        match seen:
            case o.RedisCalled():
                self.round_trips.labels(seen.op).observe(seen.seconds)
                if seen.error:
                    self.redis_errors.labels(seen.op, seen.error).inc()
            case o.PrologueTaken():
                self.prologue.labels(seen.path).inc()
            case o.RunFetched():
                self.lazy_fetches.labels(seen.reason).inc()
            case o.StepClaimed():
                self.claims.labels(seen.outcome).inc()
            case o.StepStarted():
                if not seen.inline:
                    self.wait.labels(self._workflow(seen.workflow)).observe(seen.waited_ms / 1000)
            case o.StepEnded():
                labels = self._workflow(seen.workflow), self._step(seen.step)
                self.steps_finished.labels(*labels, seen.outcome).inc()
                self.step_seconds.labels(*labels).observe(seen.seconds)
                if seen.outcome == "retrying":
                    self.retries.labels(*labels, seen.cause).inc()
            case o.BodyTaken():
                self.bodies.labels(self._workflow(seen.workflow), seen.source).inc()
            case o.PassCommitted():
                self.passes.labels(self._workflow(seen.workflow), seen.trigger, seen.outcome).inc()
            case o.RunFinished():
                self.runs_finished.labels(self._workflow(seen.workflow), seen.status).inc()
                self.run_seconds.labels(self._workflow(seen.workflow), seen.status).observe(seen.seconds)
            case o.MessageRead():
                self.read.labels(seen.kind if seen.kind in ("step", "workflow") else "other", seen.delivery).inc(
                    seen.count
                )
            case o.MessageMoved():
                self.moved.labels(seen.kind, seen.reason).inc()
            case o.MessageBuried():
                self.buried.labels(seen.kind, seen.reason).inc()
            case o.TimersPromoted():
                for late_ms in seen.late_ms:
                    self.late.observe(late_ms / 1000)
            case o.GroupRecreated():
                self.groups.inc()
            case o.LeaseLost():
                self.leases_lost.inc()
            case o.Saturation():
                self.in_flight.labels(seen.kind).set(seen.in_flight)
                self.limit.labels(seen.kind).set(seen.limit)

    def exposition(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self.registry)
