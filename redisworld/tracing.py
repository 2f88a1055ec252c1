"""How does a run become a trace? OpenTelemetry spans, joined over processes by what messages carry.

Needs the extra: pip install 'redisworld[otel]'. Spans go to the tracer provider of the process, or to a given one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from redisworld import observe as o
from redisworld.durations import parse_ms
from redisworld.errors import InvalidInput
from redisworld.facts import fact, named
from redisworld.version import VERSION

Attributes = Mapping[str, str | int]

TOGETHER = "5m"
"""How long after its start a run adds to the trace of its starter. Collectors that decide about whole traces wait for
seconds, and a trace that grows for days cannot be looked at: what comes later is a trace of its own, with a link."""

_FLUSH_MS = 2_000
"""A drain has to end in time, also when the collector is away."""

_NOWHERE = Context()


class Tracing:
    """The spans of this process; a ``Tracer``. ``observe`` listens at the seam while one is told."""

    def __init__(self, provider: trace.TracerProvider | None = None, *, together: str = TOGETHER) -> None:
        self._tracer = trace.get_tracer("redisworld", VERSION, provider)
        self._together_ms = parse_ms(together)
        self._began: ContextVar[int] = ContextVar("began")
        self._source: ContextVar[str] = ContextVar("source")
        self._listens: dict[type, Callable[..., Attributes]] = {
            o.PassCommitted: lambda seen: {"workflow.pass.outcome": seen.outcome, "workflow.pass.events": seen.events},
            o.RunFinished: lambda seen: {"workflow.status": str(seen.status)},
            o.MessageMoved: lambda seen: {"workflow.message.moved": seen.reason},
            o.MessageBuried: lambda seen: {"workflow.message.buried": seen.reason},
        }

    def observe(self, seen: o.Observation) -> None:
        """Add to the span that is current what is seen while it is."""
        if isinstance(seen, o.BodyTaken):
            self._source.set(seen.source)
        elif (attributes := self._listens.get(type(seen))) is not None:
            trace.get_current_span().set_attributes(attributes(seen))

    # -- where spans begin and end

    @contextmanager
    def start(self, run_id: str, workflow: str) -> Iterator[o.Carrier]:
        """A run is being started, as part of what is current."""
        with self._span(f"workflow.start {workflow}", SpanKind.PRODUCER, None, _run(run_id, workflow)):
            yield _carrier()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A message that continues a run is taken up."""
        self._began.set(time.time_ns())
        self._source.set("")
        token = attach(_NOWHERE)
        try:
            yield
        finally:
            detach(token)

    @contextmanager
    def replay(
        self, run_id: str, workflow: str, *, trigger: str, origin: o.Carrier | None, age_ms: int, deliveries: int
    ) -> Iterator[None]:
        """A replay, since its turn or the replay before it, within the trace of the run's start while that is young."""
        attributes = _run(run_id, workflow) | {
            "workflow.trigger": trigger,
            "workflow.message.deliveries": deliveries,
            "workflow.body": self._source.get(""),
        }
        context, links = self._from(origin, age_ms)
        began = self._began.get(None)
        try:
            with self._span(f"workflow.replay {workflow}", SpanKind.CONSUMER, context, attributes, links, began):
                yield
        finally:
            self._began.set(time.time_ns())

    @contextmanager
    def dispatch(self, run_id: str, workflow: str, *, steps: int, waits: int, hooks: int) -> Iterator[o.Carrier]:
        """The commit of a pass, part of the replay."""
        asked = {"workflow.pass.steps": steps, "workflow.pass.waits": waits, "workflow.pass.hooks": hooks}
        with self._span(f"workflow.dispatch {workflow}", SpanKind.PRODUCER, None, _run(run_id, workflow) | asked):
            yield _carrier()

    def step(
        self,
        name: str,
        *,
        run_id: str,
        workflow: str,
        step_id: str,
        attempt: int,
        prologue: str,
        carrier: o.Carrier | None,
        age_ms: int,
    ) -> o.StepSpan:
        """One attempt, part of the dispatch of its step while that is young; an inline one is part of the replay."""
        attributes = _run(run_id, workflow) | {"step.id": step_id, "step.name": name, "step.attempt": attempt}
        if not prologue:
            return _StepSpan(self._tracer.start_span(f"step.execute {name}", attributes=attributes), None)
        context, links = self._from(carrier, age_ms)
        attributes["workflow.step.dispatch_prologue"] = prologue
        span = self._tracer.start_span(f"step.execute {name}", context, SpanKind.CONSUMER, attributes, links)
        return _StepSpan(span, context)

    # -- what is current

    def raised(self, error: BaseException) -> None:
        """The current span has met this error."""
        _fail(trace.get_current_span(), error)

    def carrier(self) -> o.Carrier | None:
        """The current span as a message carries it."""
        return _carrier() or None

    def ids(self) -> dict[str, str]:
        """The current trace and span as logs show them."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return {}
        return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}

    def _from(self, carrier: o.Carrier | None, age_ms: int) -> tuple[Context, Sequence[Link]]:
        """Where a span belongs that a message leads to: below what the message carries, or linked to it."""
        context = _extracted(carrier)
        if age_ms < self._together_ms:
            return context, ()
        far = trace.get_current_span(context).get_span_context()
        # without its span, with its baggage
        return trace.set_span_in_context(trace.INVALID_SPAN, context), [Link(far)] if far.is_valid else ()

    @contextmanager
    def _span(
        self,
        name: str,
        kind: SpanKind,
        context: Context | None,
        attributes: Attributes,
        links: Sequence[Link] = (),
        began_ns: int | None = None,
    ) -> Iterator[None]:
        span = self._tracer.start_span(name, context, kind, attributes, links, began_ns)
        token = attach(trace.set_span_in_context(span, context))
        try:
            yield
        except Exception as error:
            _fail(span, error)
            raise
        finally:
            detach(token)
            span.end()


class _StepSpan:
    """It ends when its outcome is known, with the time at which its body has ended."""

    def __init__(self, span: Span, context: Context | None) -> None:
        self._span: Span | None = span
        self._here = trace.set_span_in_context(span, context)
        self._ended_ns: int | None = None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Attempt and task belong together while it lasts."""
        token = attach(self._here)
        try:
            yield
        finally:
            detach(token)
            self._ended_ns = self._ended_ns or time.time_ns()

    def end(self, outcome: str, cause: str = "") -> None:
        """What has become of the attempt."""
        if (span := self._span) is None:
            return
        self._span = None
        span.set_attribute("step.outcome", outcome)
        if cause:
            span.set_attribute("step.cause", cause)
        span.end(self._ended_ns)


@contextmanager
def tracing(provider: trace.TracerProvider | None = None, *, together: str = TOGETHER) -> Iterator[Tracing]:
    """Trace what this process starts, and the workers that it makes, while the context is open.

    ``together``: how long after its start a run adds to its starter's trace; later replays are traces of their own,
    with a link to it. At the end what is left goes to the exporter, for at most 2 s. Raises InvalidInput for a
    duration that is none, and where the process traces already.
    """
    if o.tracer() is not None:
        raise InvalidInput("tracing is on already: once for each process is enough")
    made = Tracing(provider, together=together)
    try:
        with o.traced(made), o.observing(made.observe):
            yield made
    finally:  # the process may end in a way that leaves the provider no time
        flush = getattr(provider or trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(_FLUSH_MS)


def is_configured() -> bool:
    """Whether this process has a tracer provider that does something with spans."""
    return not isinstance(trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider))


def _run(run_id: str, workflow: str) -> dict[str, str | int]:
    return {"workflow.name": workflow, "workflow.run.id": run_id}


def _carrier() -> o.Carrier:
    carrier: o.Carrier = {}
    propagate.inject(carrier)
    return carrier


def _extracted(carrier: o.Carrier | None) -> Context:
    """What a message carries; nothing where that is malformed."""
    try:
        return propagate.extract(carrier, _NOWHERE) if carrier else _NOWHERE
    except Exception as error:  # a propagator's, which the user chose: it never costs the message
        fact(logging.DEBUG, "trace carrier not read", error=named(error))
        return _NOWHERE


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"[:500]))
