"""What does a step message carry, and into which stream does it go? The one place that stamps ``run_context``."""

from __future__ import annotations

from redisworld import clock
from redisworld.keys import Partition
from redisworld.messages import RunContext, StepMessage
from redisworld.world import World


def step_message(
    world: World,
    *,
    run_id: str,
    workflow: str,
    step_id: str,
    name: str,
    context: RunContext,
    data: bytes,
    trace_carrier: dict[str, str] | None,
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
        requested_at=now_ms or clock.time_ns() // 1_000_000,
        trace_carrier=trace_carrier,
        step_input=data if len(data) <= world.settings.step_input_limit else None,
    )


def step_stream(world: World, partition: Partition, queue: str, context: RunContext) -> str:
    """The stream of a queue, pinned to the run's deployment under affinity; its name within the partition."""
    deployment = world.pin(context.deployment_id).removeprefix("@")
    return partition.short(partition.steps(queue, deployment))
