"""What is one started attempt of a step, and what may the code in it learn?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec

from redisworld.messages import RunContext
from redisworld.metadata import StepInfo, WorkflowInfo
from redisworld.workflows import Step
from redisworld.world import Delivery, OwnRun, World


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that has been started: fenced, logged, and ours until its token is taken from it."""

    step: Step[..., Any]
    run_id: str
    workflow: str
    step_id: str
    token: str
    attempt: int
    charged: int
    first_started_at: int
    input: bytes
    delivery: Delivery
    message_id: str
    context: RunContext
    may_replay: bool
    inline: bool = False
    waited_ms: int = 0
    trace_carrier: dict[str, str] | None = None
    prologue: str = ""
    """How its delivery learned about its run; of an inline one there was none."""


class Scope:
    """What the code of a running step may learn and write; made when it is asked for."""

    def __init__(self, world: World, attempt: Attempt) -> None:
        self._world = world
        self._attempt = attempt
        timeout_ms = attempt.step.timeout_ms
        self._deadline = None if timeout_ms is None else datetime.now(UTC) + timedelta(milliseconds=timeout_ms)

    @cached_property
    def info(self) -> StepInfo:
        """The step."""
        a = self._attempt
        return StepInfo(
            run_id=a.run_id,
            step_id=a.step_id,
            step_name=a.step.name,
            attempt=a.attempt,
            step_started_at=datetime.fromtimestamp(a.first_started_at / 1000, tz=UTC),
            max_attempts=a.step.max_attempts,
            retries_left=max(a.step.max_retries + 1 - a.charged, 0),
            deadline=self._deadline,
        )

    @cached_property
    def workflow(self) -> WorkflowInfo:
        """The run it belongs to."""
        return WorkflowInfo(self._attempt.run_id, self._attempt.workflow)

    @cached_property
    def own_run(self) -> OwnRun:
        """The run, to write to."""
        a = self._attempt
        return OwnRun(
            self._world,
            run_id=a.run_id,
            step_id=a.step_id,
            attempt=a.attempt,
            token=a.token,
            root_run_id=a.context.root_run_id or "",
        )
