"""What becomes of a job whose run cannot be replayed as it is?"""

from __future__ import annotations

import logging

from consumers.handback import as_recovery, ended_at_ceiling, refuse
from consumers.job import Job
from consumers.passes import failure
from redisworld.errors import ErrorInfo, MalformedMessage, ReplayDivergence
from redisworld.facts import fact
from redisworld.messages import WorkflowMessage
from redisworld.observe import MessageMoved, RunFinished, observe
from redisworld.runs import RunRow
from redisworld.world import Loaded, Outgoing, World

MAX_RECOVERIES = 3
"""Replays of a run that diverged, before it fails: a deployment may still be rolling."""
_RECOVERY_DELAY_MS = 1_000


async def nothing_to_load(world: World, job: Job, loaded: Loaded) -> None:
    """Deal with a load that gave no log: the run is over, over its ceiling, or not there (yet)."""
    if loaded.outcome == "not_found":
        if isinstance(job.message, WorkflowMessage) and job.message.run_input is not None:
            await create_again(world, job)
            return
        detail = f"there is no run {job.run_id!r}"
        await refuse(world, job.delivery, job.message, reason="not_found", detail=detail)
        return
    if loaded.outcome == "full":
        ended_at_ceiling(job.run_id, job.workflow.name, loaded.detail)
        return
    # the lazy fetch is gated on terminal only: pending is a stale read and was started by the load
    fact(logging.DEBUG, "run needs no replay", job.where, answer=loaded.outcome, detail=loaded.detail or None)


async def create_again(world: World, job: Job) -> None:
    """The start message outlived its run: it carries all that is needed to create it.

    One that is too old does not: its run may have been cancelled before any worker came.
    """
    message = job.message
    if isinstance(message, WorkflowMessage) and message.run_input is not None:
        given = message.run_input
        if world.outlived(message.first_refused_at or job.delivery.published_at):
            detail = f"there is no run {job.run_id!r}, and a start that long ago may have been cancelled since"
            await refuse(world, job.delivery, message, reason="not_found", detail=detail)
            return
        await world.create_run(
            job.run_id,
            message.workflow_name,
            given.input,
            root_run_id=given.root_run_id or "",
            trace_carrier=message.trace_carrier,
        )
    await world.deliveries.settle(job.delivery)


async def diverged(world: World, job: Job, error: ReplayDivergence | MalformedMessage) -> None:
    """Try again later, three times, then fail the run and say what differs, or cannot be read."""
    message = job.message
    differs = isinstance(error, ReplayDivergence)
    done = max(0, message.recoveries) if isinstance(message, WorkflowMessage) else 0  # a stranger's number, perhaps
    if done < MAX_RECOVERIES:
        if differs:
            fact(logging.WARNING, "replay diverged, trying again", job.where, recovery=done + 1, error=error)
        else:
            fact(logging.WARNING, "log or row cannot be read, trying again", job.where, recovery=done + 1, error=error)
        fresh_id = message.message_id if isinstance(message, WorkflowMessage) else f"r-{world.next_token()}"
        wake = as_recovery(message, message_id=fresh_id, recoveries=done + 1)
        deployment = world.settings.deployment if world.settings.affinity else ""
        target = job.delivery.partition.short(job.delivery.partition.workflows(deployment))
        await world.deliveries.move(
            job.delivery, Outgoing.of(wake), old_id=message.message_id, target=target, delay_ms=_RECOVERY_DELAY_MS
        )
        observe(MessageMoved("workflow", "divergence"))
        return
    code = "REPLAY_DIVERGENCE" if differs else "CORRUPTED_EVENT_LOG"
    await fail(world, job, await world.row(job.run_id), code, str(error))


async def fail(world: World, job: Job, seen: Loaded | RunRow, code: str, message: str) -> None:
    """End the run as failed, as far as nobody has committed since ``seen``."""
    answer = await world.deliveries.commit(
        job.delivery,
        job.run_id,
        job.message.message_id,
        failure(ErrorInfo(type="RedisworldError", message=message, code=code)),
        replayed_to=seen.replayed_to,
        consumed=seen.replayed_to,
        pass_token=world.next_token(),
    )
    if answer.outcome == "ended":
        observe(RunFinished(job.run_id, job.workflow.name, "failed", (answer.at - seen.created_at) / 1000))
        fact(logging.ERROR, "run failed", job.where, code=code, error=message)
