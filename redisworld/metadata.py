"""Which run, step and attempt is this code running in?"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime
from typing import Protocol

import msgspec

from redisworld.errors import InvalidInput


class StepInfo(msgspec.Struct, frozen=True):
    """The step being executed. ``step_id`` is the same in every attempt: use it as an idempotency key."""

    run_id: str
    step_id: str
    step_name: str
    attempt: int
    """From 1."""
    step_started_at: datetime
    """Start of the first attempt."""
    max_attempts: int = 1
    """Attempts that the step's ``max_retries`` allow. One that was handed back at a drain is not counted by it."""
    retries_left: int = 0
    """Retries that are left when this attempt fails; 0: its failure is the step's."""
    deadline: datetime | None = None
    """When the step's timeout ends this attempt, by the clock of this worker; None without a timeout."""


class WorkflowInfo(msgspec.Struct, frozen=True):
    """The run this code belongs to."""

    run_id: str
    workflow_name: str
    started_at: datetime | None = None
    """None in a step, which starts without reading the run."""


class StepScope(Protocol):
    """What the code of a running step may learn of it. Each is made when it is asked for: few steps ask."""

    @property
    def info(self) -> StepInfo: ...
    @property
    def workflow(self) -> WorkflowInfo: ...


current_step: ContextVar[StepScope | None] = ContextVar("redisworld_current_step", default=None)
"""Set by the consumer around a step's body. A step called by another one as a function is part of that one."""

current_workflow: ContextVar[WorkflowInfo | None] = ContextVar("redisworld_current_workflow", default=None)
"""Set by the replay engine for a workflow's body."""


def get_step_metadata() -> StepInfo:
    """The step this code runs in. Raises InvalidInput outside a step."""
    scope = current_step.get()
    if scope is None:
        raise InvalidInput("get_step_metadata() was called outside a step: only a running step has metadata")
    return scope.info


def get_workflow_metadata() -> WorkflowInfo:
    """The run this workflow body or step belongs to. Raises InvalidInput outside both."""
    scope = current_step.get()
    info = current_workflow.get() if scope is None else scope.workflow
    if info is None:
        raise InvalidInput("get_workflow_metadata() was called outside a workflow and outside a step")
    return info
