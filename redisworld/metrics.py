"""Which Prometheus metrics does a process have, and what feeds them?

What is seen at the ``observe`` seam is noted, and counted twenty times a second and at each scrape: between two steps
it would take several times as long, since all that counting touches has left the processor's cache meanwhile. Labels
are bounded: names outside the registry become ``other``, and no id or error text is ever a label. Enumerations exist
from the start, at 0.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from itertools import accumulate, islice
from math import inf

from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from redisworld import observe as o
from redisworld.tallies import Labels, Numbers, Spreads, as_they_are, words_of
from redisworld.version import VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_LOOP_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_EVENTS = (1, 3, 10, 30, 100, 300, 1_000, 10_000, 100_000, 1_000_000)
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
MOST_WORKFLOWS, MOST_STEPS = 100, 300
"""Names that are labels, in the order in which they were registered: each step has twenty series in every process."""
BURY_REASONS = (
    "undecodable", "unknown_name", "newer_spec", "not_found", "missing", "max_deliveries", "deployment_mismatch",
    "broken",
)  # fmt: skip


_Family = CounterMetricFamily | GaugeMetricFamily


class _Tallies(Collector):
    """What is counted, as Prometheus reads it. To count in metrics of its client takes several times as long."""

    def __init__(self, settle: Callable[[], None]) -> None:
        self._settle = settle
        self._numbers: list[tuple[type[_Family], str, str, tuple[str, ...], Callable[[], dict[Labels, float]]]] = []
        self._spreads: list[tuple[str, str, tuple[str, ...], Spreads]] = []

    def counter(self, name: str, text: str, *labels: str) -> Numbers:
        numbers = Numbers()
        self._numbers.append((CounterMetricFamily, name, text, labels, numbers.copy))
        return numbers

    def gauge(self, name: str, text: str, *labels: str) -> Numbers:
        numbers = Numbers()
        self._numbers.append((GaugeMetricFamily, name, text, labels, numbers.copy))
        return numbers

    def count_of(self, spreads: Spreads, name: str, text: str, *labels: str) -> None:
        """A counter of the values of a histogram, by all the labels that these have."""
        self._numbers.append((CounterMetricFamily, name, text, labels, spreads.counts))

    def histogram(
        self,
        name: str,
        text: str,
        *labels: str,
        buckets: tuple[float, ...] = _DURATIONS,
        named: Callable[[Labels], Labels] = as_they_are,
    ) -> Spreads:
        """It shows as many labels as it names here, the first ones of those that values are added with."""
        spreads = Spreads(buckets, named)
        self._spreads.append((name, text, labels, spreads))
        return spreads

    def collect(self) -> Iterable[Metric]:
        """All of them, from copies that are each made in one go: what is counted meanwhile is in the next scrape."""
        self._settle()
        for kind, name, text, labels, read in self._numbers:
            family = kind(f"redisworld_{name}", text, labels=labels)
            for values, number in read().items():
                family.add_metric(words_of(values), number)
            yield family
        for name, text, labels, spreads in self._spreads:
            histogram = HistogramMetricFamily(f"redisworld_{name}", text, labels=labels)
            bounds = [str(floatToGoString(bound)) for bound in (*spreads.bounds, inf)]  # type: ignore[no-untyped-call]
            for words, cells in spreads.by(len(labels)).items():
                histogram.add_metric(words, list(zip(bounds, accumulate(cells[:-1]), strict=True)), cells[-1])
            yield histogram


class Metrics:
    """The metrics of one process and its worker; ``observers`` listen, ``exposition`` is what /metrics answers."""

    def __init__(self, *, workflows: Iterable[str] = (), steps: Iterable[str] = ()) -> None:
        self.registry = process_registry()
        self._workflows = {name: name for name in islice(workflows, MOST_WORKFLOWS)}
        self._steps = {name: name for name in islice(steps, MOST_STEPS)}
        tallies = _Tallies(self.settle)
        self._noted: list[o.Observation] = []
        """Any thread appends to it."""
        self._counting = threading.Lock()
        counter, gauge, histogram = tallies.counter, tallies.gauge, tallies.histogram

        self.prologue = counter("step_prologue_total", "Step deliveries by how they learned about their run", "path")
        self.lazy_fetches = counter(
            "lazy_run_fetches_total", "Run fetches made after the prologue, by reason", "reason"
        )
        self.claims = counter("step_claims_total", "Answers of the step_started claim", "outcome")
        self.step_seconds = histogram(
            "step_duration_seconds",
            "Body of one attempt, until its outcome is recorded",
            "workflow",
            "step",
            named=self._of_step,
        )
        tallies.count_of(
            self.step_seconds, "steps_finished_total", "Attempts by outcome", "workflow", "step", "outcome"
        )
        self.retries = counter("step_retries_total", "Attempts scheduled again, by cause", "workflow", "step", "cause")
        self.wait = histogram(
            "message_wait_seconds",
            "Publication of a step message to the start of its step",
            "workflow",
            named=self._of_workflow,
        )
        self.runs_finished = counter(
            "runs_finished_total", "Runs that this process saw to their end", "workflow", "status"
        )
        self.run_seconds = histogram("run_duration_seconds", "Creation of a run to its end", "workflow", "status")
        self.first_step = histogram(
            "run_time_to_first_step_seconds", "Creation of a run to the start of its first step, run inline", "workflow"
        )
        self.last_step = histogram(
            "run_time_to_last_step_seconds", "Creation of a run to the end of its last step, if it ended so", "workflow"
        )
        self.replay_seconds = histogram(
            "replay_duration_seconds",
            "One pass, from its first event to the answer of its commit",
            "workflow",
            named=self._of_workflow,
        )
        self.replay_events = histogram(
            "replay_events",
            "Events that one pass gave to the body",
            "workflow",
            buckets=_EVENTS,
            named=self._of_workflow,
        )
        tallies.count_of(
            self.replay_seconds,
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
        self.delayed_lost = counter("delayed_lost_total", "Delayed messages that were due without a body", "kind")
        self.groups = counter("groups_recreated_total", "Consumer groups that were gone and made again")
        self.unavailable = gauge("redis_unavailable", "1 while this loop of the process cannot read from Redis", "loop")
        self.recovered = counter("recovered_total", "Lost messages and timers brought back", "kind")
        self.leases_lost = counter("leases_lost_total", "Deliveries that another worker took over")
        self.round_trips = histogram(
            "redis_round_trip_seconds", "One call to Redis, by operation", "op", buckets=_ROUND_TRIPS
        )
        self.redis_errors = counter("redis_errors_total", "Calls to Redis that failed", "op", "error")
        self.in_flight = gauge("worker_in_flight", "Messages being worked on now", "kind")
        self.limit = gauge("worker_concurrency_limit", "Messages worked on at once at most", "kind")
        self.loop_lag = histogram(
            "worker_event_loop_lag_seconds", "How late the event loop came to what was due", buckets=_LOOP_LAGS
        )

        for spreads in (self.late, self.loop_lag):
            spreads[()]
        for numbers in (self.groups, self.leases_lost):
            numbers[()]
        for loop in ("steps", "workflows", "timers", "pending"):
            self.unavailable[loop]
        for kind in ("wake", "step", "wait"):
            self.recovered[kind]
        for kind in ("step", "workflow"):
            self.delayed_lost[kind]
        for path in ("run_context", "runs_get"):
            self.prologue[path]
        for reason in ("last_completer", "redelivery", "moved"):
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

        self._count: o.Observers = {
            o.RedisCalled: self._redis_called,
            o.PrologueTaken: self._prologue_taken,
            o.RunFetched: self._run_fetched,
            o.StepClaimed: self._step_claimed,
            o.StepStarted: self._step_started,
            o.StepEnded: self._step_ended,
            o.BodyTaken: self._body_taken,
            o.PassCommitted: self._pass_committed,
            o.FirstStepStarted: lambda seen: self.first_step.add(self._workflow(seen.workflow), seen.seconds),
            o.RunFinished: self._run_finished,
            o.MessageRead: self._message_read,
            o.MessageMoved: self._message_moved,
            o.MessageBuried: self._message_buried,
            o.TimersPromoted: self._timers_promoted,
            o.DelayedLost: self._delayed_lost,
            o.GroupRecreated: self._group_recreated,
            o.RunRecovered: self._run_recovered,
            o.LeaseLost: self._lease_lost,
            o.Saturation: self._saturation,
            o.Reading: self._reading,
            o.LoopMoved: lambda seen: self.loop_lag.add((), seen.late_s),
        }
        self.observers: o.Observers = dict.fromkeys(self._count, self._noted.append) | {o.LoopMoved: self._tick}
        self.registry.register(tallies)

    def _workflow(self, name: str) -> str:
        return self._workflows.get(name, "other")

    def _of_workflow(self, labels: Labels) -> Labels:
        if isinstance(labels, str):
            return self._workflow(labels)
        return self._workflow(labels[0]), *labels[1:]

    def _of_step(self, labels: Labels) -> Labels:
        workflow, step, *more = words_of(labels)
        return self._workflow(workflow), self._steps.get(step, "other"), *more

    def settle(self) -> None:
        """Count what has been noted. From any thread."""
        with self._counting:
            noted = self._noted[:]
            del self._noted[: len(noted)]
            for seen in noted:
                self._count[type(seen)](seen)

    def _tick(self, seen: o.LoopMoved) -> None:
        self._noted.append(seen)
        self.settle()

    def _redis_called(self, seen: o.RedisCalled) -> None:
        self.round_trips.add(seen.op, seen.seconds)
        if seen.error:
            self.redis_errors[seen.op, seen.error] += 1

    def _prologue_taken(self, seen: o.PrologueTaken) -> None:
        self.prologue[seen.path] += len(seen.steps)

    def _run_fetched(self, seen: o.RunFetched) -> None:
        self.lazy_fetches[seen.reason] += 1

    def _step_claimed(self, seen: o.StepClaimed) -> None:
        self.claims[seen.outcome] += len(seen.steps)

    def _step_started(self, seen: o.StepStarted) -> None:
        if not seen.inline:
            self.wait.add(seen.workflow, seen.waited_ms / 1000)

    def _step_ended(self, seen: o.StepEnded) -> None:
        self.step_seconds.add((seen.workflow, seen.step, seen.outcome), seen.seconds)
        if seen.outcome == "retrying":
            self.retries[self._of_step((seen.workflow, seen.step, seen.cause))] += 1

    def _body_taken(self, seen: o.BodyTaken) -> None:
        self.bodies[self._workflow(seen.workflow), seen.source] += 1

    def _pass_committed(self, seen: o.PassCommitted) -> None:
        self.replay_seconds.add((seen.workflow, seen.trigger, seen.outcome), seen.seconds)
        self.replay_events.add(seen.workflow, seen.events)

    def _run_finished(self, seen: o.RunFinished) -> None:
        workflow = self._workflow(seen.workflow)
        self.runs_finished[workflow, seen.status] += 1
        self.run_seconds.add((workflow, seen.status), seen.seconds)
        if seen.last_step_s is not None:
            self.last_step.add(workflow, seen.last_step_s)

    def _message_read(self, seen: o.MessageRead) -> None:
        self.read[seen.kind, seen.delivery] += seen.count

    def _message_moved(self, seen: o.MessageMoved) -> None:
        self.moved[seen.kind, seen.reason] += 1

    def _message_buried(self, seen: o.MessageBuried) -> None:
        self.buried[seen.kind, seen.reason] += 1

    def _timers_promoted(self, seen: o.TimersPromoted) -> None:
        for late_ms in seen.late_ms:
            self.late.add((), late_ms / 1000)

    def _delayed_lost(self, seen: o.DelayedLost) -> None:
        self.delayed_lost[seen.kind] += 1

    def _group_recreated(self, seen: o.GroupRecreated) -> None:
        self.groups[()] += 1

    def _run_recovered(self, seen: o.RunRecovered) -> None:
        self.recovered[seen.kind] += 1

    def _lease_lost(self, seen: o.LeaseLost) -> None:
        self.leases_lost[()] += 1

    def _saturation(self, seen: o.Saturation) -> None:
        self.in_flight[seen.kind] = seen.in_flight
        self.limit[seen.kind] = seen.limit

    def _reading(self, seen: o.Reading) -> None:
        self.unavailable[seen.loop] = not seen.ok

    def watch(
        self,
        *,
        ready: Callable[[], bool],
        silences: Callable[[], Mapping[str, float]],
        connections: Callable[[], Mapping[str, int]],
    ) -> None:
        """Show readiness, silences and connections as they are at the scrape: a stuck process would not say it."""
        self.registry.register(_Watched(ready, silences, connections))

    def exposition(self) -> bytes:
        """The text of /metrics."""
        return exposition(self.registry)


class _Watched(Collector):
    def __init__(
        self,
        ready: Callable[[], bool],
        silences: Callable[[], Mapping[str, float]],
        connections: Callable[[], Mapping[str, int]],
    ) -> None:
        self._ready, self._silences, self._connections = ready, silences, connections

    def collect(self) -> Iterable[GaugeMetricFamily]:
        text = "1 while this worker takes messages, as /readyz says"
        yield GaugeMetricFamily("redisworld_worker_ready", text, value=self._ready())
        text = "Since a loop has read its streams or found its slots taken"
        silent = GaugeMetricFamily("redisworld_worker_last_poll_age_seconds", text, labels=["loop"])
        for loop, seconds in self._silences().items():
            silent.add_metric([loop], seconds)
        yield silent
        text = "Connections to Redis, by what they do now"
        connections = GaugeMetricFamily("redisworld_redis_connections", text, labels=["state"])
        for state, count in self._connections().items():
            connections.add_metric([state], count)
        yield connections


def process_registry() -> CollectorRegistry:
    """What every process tells: of itself, of its interpreter, and its versions."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a third of all series, which nobody queries
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    labels = ("version", "python_version", "redis_client")
    build = Gauge("redisworld_build_info", "Constant 1, labelled with versions", labels, registry=registry)
    build.labels(VERSION, platform.python_version(), version("redis")).set(1)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """The text of /metrics."""
    return generate_latest(registry)
