"""How does one started attempt of a step become a recorded outcome?"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from consumers.attempt import Attempt, Scope
from consumers.bodies import Bodies, Drained, Stopped
from consumers.handback import bury_broken
from consumers.leases import LeaseKeeper
from consumers.slots import Slots
from redisworld import clock, failures, messages
from redisworld.durations import parse_ms
from redisworld.errors import InvalidInput, RedisUnavailable, RetryableError, RunCancelled, StepTimeout
from redisworld.facts import fact
from redisworld.observe import StepEnded, StepStarted, observe
from redisworld.retries import leaves
from redisworld.world import Completion, Recorded, World
from redisworld.world.dispatch import step_message, step_stream

Answer = TypeVar("Answer")

LOGGED = 500
"""Characters of an error in the log; the whole of it is in the run's event log."""


class Executed(msgspec.Struct, frozen=True):
    """An attempt whose body has ended, with the outcome to record."""

    attempt: Attempt
    completion: Completion
    seconds: float


class Attempts:
    """Runs attempts; shared by the queued-step consumer and the orchestrator's inline steps."""

    def __init__(self, world: World, bodies: Bodies, leases: LeaseKeeper, slots: Slots) -> None:
        self._world = world
        self._bodies = bodies
        self._leases = leases
        self._slots = slots

    async def execute(self, attempt: Attempt) -> Executed:
        """Run the body; its outcome is not recorded yet."""
        a, started = attempt, clock.monotonic()
        observe(StepStarted(a.workflow, a.step.name, a.run_id, a.step_id, a.attempt, a.inline, a.waited_ms))
        if a.step.timeout_ms is not None:
            self._leases.limit(a.delivery, a.step.timeout_ms)
        try:
            result = await self._bodies.run(a.step, Scope(self._world, a), a.input, a.delivery, self._slots.keep)
        except Drained as drained:
            told = _caused(Drained("handed back at a drain"), drained.__cause__)
            payload, delay_ms = failures.encode(failures.describe(told)), _asked_ms(a, drained.__cause__) or 0
            completion = self._retry(a, "drain", payload, delay_ms)
        except Stopped as stopped:
            completion = self._stopped(a, stopped.__cause__)
        except Exception as error:  # the edge of user code
            completion = self._unsuccessful(a, error)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            asyncio.get_running_loop()  # raises where this coroutine itself is being closed
            told = _caused(RuntimeError(f"the step's body raised {failures.describe(error)}"), error)
            completion = self._unsuccessful(a, told)
        else:
            completion = self._completion(a, "completed", result)
        if a.step.timeout_ms is not None:
            self._leases.unlimit(a.delivery)
        return Executed(a, completion, clock.monotonic() - started)

    async def record(self, executed: Executed) -> Recorded:
        """Record an outcome on its own; a delivery whose outcome cannot be recorded is buried."""
        recorded = await self.insist(executed, partial(self._world.deliveries.complete, executed.completion))
        self.ended(executed, recorded.outcome)
        if recorded.outcome == "broken":
            await self.bury(executed, recorded)
        return recorded

    async def bury(self, executed: Executed, recorded: Recorded) -> None:
        """Park the run whose data in Redis takes no outcome: to run the body again would end no better."""
        a = executed.attempt
        await bury_broken(self._world, a.delivery, run_id=a.run_id, call="completion", answer=recorded)

    async def insist(self, executed: Executed, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a call that records an outcome: a lost reply is asked again, and costs no retry of the body."""
        while True:
            try:
                return await call()
            except RedisUnavailable:
                if self._bodies.draining:
                    raise
                a = executed.attempt
                self._world.connection.faults.warn("redis", "outcome not recorded yet", run=a.run_id, step=a.step_id)

    def ended(self, executed: Executed, answer: str) -> str:
        """Tell observers what has become of an attempt; ``answer`` is the word with which Redis took its outcome."""
        a = executed.attempt
        outcome = answer if answer in ("completed", "failed", "retrying") else "lost"
        if outcome == "lost":
            fact(logging.DEBUG, "outcome refused", _where(a), answer=answer)
        cause, seconds = executed.completion.cause, executed.seconds
        observe(StepEnded(a.workflow, a.step.name, a.run_id, a.step_id, a.attempt, outcome, cause, seconds))
        return outcome

    def _stopped(self, a: Attempt, cause: BaseException | None) -> Completion:
        """The run was cancelled: no retry, whatever the step's policy is."""
        fact(logging.INFO, "run cancelled, its step was stopped", _where(a))
        payload = failures.encode(failures.describe(_caused(RunCancelled(a.run_id), cause)))
        return self._completion(a, "failed", payload, cause="cancelled")

    def _unsuccessful(self, a: Attempt, error: Exception) -> Completion:
        info = failures.describe(error, modules=self._bodies.modules)
        payload, text = failures.encode(info), str(info)[:LOGGED]
        cause = "timeout" if isinstance(error, StepTimeout) else "error"
        if a.charged > a.step.max_retries or not a.step.retries.allow(error):
            fact(logging.WARNING, "step failed", _where(a), cause=cause, error=text)
            return self._completion(a, "failed", payload, cause=cause)
        delay_ms = _delay_ms(a, error)
        fact(logging.INFO, "step retrying", _where(a), cause=cause, in_ms=delay_ms, error=text)
        return self._retry(a, cause, payload, delay_ms)

    def _completion(self, a: Attempt, outcome: str, payload: bytes, *, cause: str = "") -> Completion:
        return Completion(
            run_id=a.run_id,
            step_id=a.step_id,
            token=a.token,
            outcome=outcome,
            cause=cause,
            message_id=a.message_id,
            delivery=a.delivery,
            payload=payload,
            may_replay=a.may_replay,
            step_name=a.step.name,
        )

    def _retry(self, a: Attempt, cause: str, payload: bytes, delay_ms: int) -> Completion:
        message = step_message(
            self._world,
            run_id=a.run_id,
            workflow=a.workflow,
            step_id=a.step_id,
            name=a.step.name,
            context=a.context,
            data=a.input,
            trace_carrier=a.trace_carrier,
            message_id=a.step_id if a.inline else a.message_id,
        )
        return Completion(
            run_id=a.run_id,
            step_id=a.step_id,
            token=a.token,
            outcome="retrying",
            cause=cause,
            message_id=a.message_id,
            delivery=a.delivery,
            payload=payload,
            may_replay=False,
            delay_ms=delay_ms,
            step_name=a.step.name,
            target=step_stream(self._world, a.delivery.partition, a.step.queue, a.context.deployment_id),
            message=messages.encode(message),
        )


def _caused(error: Exception, cause: BaseException | None) -> Exception:
    """The error to record, with what led to it and its traceback."""
    error.__cause__ = cause
    return error


def _where(a: Attempt) -> dict[str, object]:
    """The fields of every line about an attempt."""
    return {"run": a.run_id, "workflow": a.workflow, "step": a.step_id, "name": a.step.name, "attempt": a.attempt}


def _delay_ms(a: Attempt, error: Exception) -> int:
    return _asked_ms(a, error) or a.step.backoff.delay_ms(a.charged, random.Random())


def _asked_ms(a: Attempt, error: BaseException | None) -> int | None:
    """How long the body itself wants to wait, at least 1 ms; None where it does not say."""
    asked = [leaf for leaf in leaves(error) if isinstance(leaf, RetryableError)] if error is not None else []
    if not asked:
        return None
    try:
        return max(_until_ms(leaf.retry_after) for leaf in asked)
    except Exception as unread:  # InvalidInput, and what a property of the class or a tzinfo raises
        fact(logging.WARNING, "retry_after not understood, the step's backoff counts", _where(a), error=unread)
        return None


def _until_ms(after: timedelta | float | str | datetime) -> int:
    """How long to wait, at least 1 ms. Raises InvalidInput."""
    if not isinstance(after, datetime):
        return max(1, parse_ms(after))
    if after.utcoffset() is None:
        raise InvalidInput(f"{after!r} has no zone")
    return max(1, math.ceil((after - datetime.now(UTC)) / timedelta(milliseconds=1)))
