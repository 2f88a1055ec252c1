"""Where in a worker do spans begin and end? Its parts, as they are when the process traces.

A worker chooses them when it is made, so that one that does not trace pays for nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from consumers.attempt import Attempt
from consumers.attempts import Attempts, Executed
from consumers.job import Job
from consumers.live import Live
from consumers.passes import Ended, Inline
from consumers.workflows import Next, Orchestrator
from redisworld import events
from redisworld.errors import MalformedMessage, ReplayDivergence
from redisworld.messages import RunContext, StepMessage, WorkflowMessage
from redisworld.observe import Carrier, StepSpan, Tracer
from redisworld.replay import Pass
from redisworld.world import Committed, Completion, Delivery, Loaded, World

Answer = TypeVar("Answer")


def parts(tracer: Tracer | None) -> tuple[Callable[..., Attempts], Callable[..., Orchestrator]]:
    """What makes the attempts and the orchestrator of a worker: the plain ones where nothing traces."""
    if tracer is None:
        return Attempts, Orchestrator
    return partial(TracedAttempts, tracer=tracer), partial(TracedOrchestrator, tracer=tracer)


class _Executed(Executed, frozen=True):
    span: StepSpan


class TracedAttempts(Attempts):
    """Attempts, each with its span, in which its body runs."""

    def __init__(self, world: World, *parts: Any, tracer: Tracer) -> None:
        super().__init__(world, *parts)
        self._tracer = tracer

    async def execute(self, attempt: Attempt) -> Executed:
        """Run the body within its span, which ends when the outcome is known."""
        a = attempt
        span = self._tracer.step(
            a.step.name,
            run_id=a.run_id,
            workflow=a.workflow,
            step_id=a.step_id,
            attempt=a.attempt,
            prologue=a.prologue,
            carrier=a.trace_carrier,
            age_ms=max(a.waited_ms, self._world.now_ms() - a.first_started_at),
        )
        try:
            with span.current():
                done = await super().execute(attempt)
        except BaseException:
            span.end("lost")
            raise
        return _Executed(done.attempt, done.completion, done.seconds, span)

    async def insist(self, executed: Executed, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Record an outcome; the span ends also where that cannot be done."""
        try:
            return await super().insist(executed, call)
        except BaseException:
            _span_of(executed).end("lost")
            raise

    def ended(self, executed: Executed, answer: str) -> str:
        """The outcome is known."""
        span = _span_of(executed)
        with span.current():
            outcome = super().ended(executed, answer)
        span.end(outcome, executed.completion.cause)
        return outcome

    def _unsuccessful(self, a: Attempt, error: Exception) -> Completion:
        self._tracer.raised(error)
        return super()._unsuccessful(a, error)


class TracedOrchestrator(Orchestrator):
    """The orchestrator, with spans of replays and commits; step messages carry the commit that dispatched them."""

    def __init__(self, world: World, *parts: Any, tracer: Tracer, **more: Any) -> None:
        super().__init__(world, *parts, **more)
        self._tracer = tracer

    async def process(self, delivery: Delivery, message: WorkflowMessage) -> None:
        """Process a wake to its end."""
        with self._tracer.turn():
            await super().process(delivery, message)

    async def continue_run(self, delivery: Delivery, message: StepMessage, *, fetched_for: str) -> None:
        """Continue the run of a step message."""
        with self._tracer.turn():
            await super().continue_run(delivery, message, fetched_for=fetched_for)

    async def _commit(self, job: Job, live: Live) -> Next:
        # the body of a first pass says when its message was published, which for a delayed start is long after its call
        since = job.message.requested_at if live.started_at is not None else live.created_at
        with self._replay(job, live.identity.trace_carrier, since):
            return await super()._commit(job, live)

    async def _send(
        self, job: Job, live: Live, asked: Pass, inline: Inline | None, ended: Ended | None = None, token: str = ""
    ) -> Committed:
        identity, counts = live.identity, (len(asked.steps), len(asked.waits), len(asked.hooks))
        steps, waits, hooks = counts
        with self._tracer.dispatch(job.run_id, job.workflow.name, steps=steps, waits=waits, hooks=hooks) as carrier:
            live.identity = msgspec.structs.replace(identity, trace_carrier=carrier or None)
            try:
                return await super()._send(job, live, asked, inline, ended, token)
            finally:
                live.identity = identity

    async def _run_owned(self, job: Job, loaded: Loaded) -> Next:
        with self._replay(job, _origin(loaded) or job.message.trace_carrier, loaded.created_at):
            return await super()._run_owned(job, loaded)

    def _attempt(self, job: Job, context: RunContext, step_id: str, name: str, token: str, data: bytes) -> Attempt:
        attempt = super()._attempt(job, context, step_id, name, token, data)
        return msgspec.structs.replace(attempt, trace_carrier=self._tracer.carrier())

    async def _diverged(self, job: Job, error: ReplayDivergence | MalformedMessage) -> None:
        with self._replay(job, job.message.trace_carrier, self._world.now_ms()):
            self._tracer.raised(error)
            await super()._diverged(job, error)

    def _replay(self, job: Job, origin: Carrier | None, since_ms: int) -> Any:
        return self._tracer.replay(
            job.run_id,
            job.workflow.name,
            trigger=job.trigger,
            origin=origin,
            age_ms=self._world.now_ms() - since_ms,
            deliveries=max(job.delivery.deliveries, job.message.deliveries),
        )


def _span_of(executed: Executed) -> StepSpan:
    if not isinstance(executed, _Executed):
        raise TypeError("this attempt was not executed by TracedAttempts")
    return executed.span


def _origin(loaded: Loaded) -> Carrier | None:
    """What the start of the run carried, where its log was loaded from the start."""
    try:
        return events.run_created(events.parse(loaded.elements[0])).carrier if loaded.elements else None
    except MalformedMessage:  # loaded from further on, or damaged: that never costs a step its attempt
        return None
