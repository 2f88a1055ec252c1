"""What does a step message carry, and into which stream does it go? The one place that stamps ``run_context``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redisworld.keys import Partition
from redisworld.messages import RunContext, StepMessage
from redisworld.runs import RunRow
from redisworld.world.deliveries import Loaded

if TYPE_CHECKING:
    from redisworld.world.world import World


def context_of(run_id: str, facts: RunRow | Loaded) -> RunContext:
    """The identity of a run as its messages carry it."""
    return RunContext(facts.deployment, facts.spec_version, facts.started_at or None, facts.root_run_id or run_id)


def step_message(
    world: World,
    *,
    run_id: str,
    workflow: str,
    step_id: str,
    name: str,
    context: RunContext,
    data: bytes,
    trace_carrier: dict[str, str] | None = None,
    message_id: str | None = None,
    now_ms: int = 0,
) -> StepMessage:
    """A step ready to run. An input above ``step_input_limit`` stays in the log, where the claim finds it."""
    return StepMessage(
        message_id=message_id or step_id,
        run_id=run_id,
        workflow_name=workflow,
        step_id=step_id,
        step_name=name,
        run_context=context,
        requested_at=now_ms or world.now_ms(),
        trace_carrier=trace_carrier,
        step_input=data if len(data) <= world.settings.step_input_limit else None,
    )


def step_stream(world: World, partition: Partition, queue: str, deployment: str) -> str:
    """The stream of a queue, pinned to the run's deployment under affinity; its name within the partition."""
    return partition.short(partition.steps(queue)) + world.pin(deployment)
