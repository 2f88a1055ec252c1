"""What becomes of a message that this worker cannot process now? (design sections 6 and 11)

It goes back with growing delays for a worker that can, and to the dead letters after a limit. Never acknowledged as
done, never redelivered for ever.
"""

from __future__ import annotations

import logging

import msgspec

from redisworld import failures
from redisworld.errors import ErrorInfo, MalformedMessage
from redisworld.facts import fact
from redisworld.messages import StepMessage, WorkflowMessage, decode, is_word, moved, touched
from redisworld.observe import MessageBuried, MessageMoved, RunFinished, observe
from redisworld.world import Claim, Delivery, Outgoing, Recorded, World

_NAME_DELAYS_MS = (1_000, 2_000, 4_000, 8_000, 16_000, 30_000)
"""For what only another worker can process: unknown names, newer spec versions."""
_REROUTE_DELAYS_MS = (1_000, 2_000, 4_000)
_DATA_DELAYS_MS = (250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000)
"""For what another write will soon make possible: a step or run that is not there yet."""


async def refuse(
    world: World, delivery: Delivery, message: StepMessage | WorkflowMessage, *, reason: str, detail: str
) -> None:
    """Hand the message back with a growing delay; to the dead letters when its limit is over.

    A name or spec version this worker does not know has ``refused_limit_ms``: somebody may deploy. A run or step
    that does not exist has ``max_deliveries`` too.
    """
    settings = world.settings
    now = delivery.published_at
    after = moved(message, refused_at=now)
    refusals = max(1, message.deliveries)  # a stranger's number, perhaps
    data_missing = reason in ("not_found", "missing")
    over = now - (after.first_refused_at or now) >= settings.refused_limit_ms
    if over or (data_missing and refusals >= settings.max_deliveries):
        await bury(world, delivery, run_id=message.run_id, reason=reason, detail=detail)
        return
    delays = _DATA_DELAYS_MS if data_missing else _NAME_DELAYS_MS
    delay_ms = delays[min(refusals, len(delays)) - 1]
    await world.deliveries.move(
        delivery, Outgoing.of(after), old_id=message.message_id, target=delivery.stream, delay_ms=delay_ms
    )
    observe(MessageMoved(delivery.kind, reason))
    fact(logging.INFO, "handed back", where(delivery, message), reason=reason, delay_ms=delay_ms, error=detail)


async def reroute(
    world: World,
    delivery: Delivery,
    message: StepMessage | WorkflowMessage,
    rerouted: StepMessage | WorkflowMessage,
    *,
    deployment: str,
    target: str,
    hops: int,
) -> bool:
    """Send a message to its run's deployment, with all it carries; after three hops its run fails.

    False where it stays: its run has been moved to this deployment since.
    """
    hops = max(0, hops)  # a stranger's number, perhaps
    if hops >= len(_REROUTE_DELAYS_MS):
        mine = world.settings.deployment
        await bury(
            world,
            delivery,
            run_id=message.run_id,
            reason="deployment_mismatch",
            code="DEPLOYMENT_MISMATCH",
            detail=f"the run belongs to deployment {deployment!r}; {mine!r} met it again after {hops} re-routes",
        )
        return True
    delay_ms = _REROUTE_DELAYS_MS[hops]
    target = delivery.partition.short(target)
    again = Outgoing.of(rerouted)
    answer = await world.deliveries.move(delivery, again, old_id=message.message_id, target=target, delay_ms=delay_ms)
    if answer == "here":
        return False
    observe(MessageMoved(delivery.kind, "reroute"))
    fact(logging.INFO, "re-routed", where(delivery, message), deployment=deployment, hops=hops + 1, delay_ms=delay_ms)
    return True


async def leave_for_newer(world: World, delivery: Delivery) -> None:
    """Hand back a message of a newer version with all that it carries; to the dead letters after the time limit.

    Raises MalformedMessage for bytes that are no message of any version.
    """
    now = delivery.published_at
    body, message_id, first = touched(delivery.fields.get("msg", b""), refused_at=now)
    detail = f"kind {delivery.text('kind')!r} of spec version {delivery.text('spec')!r} is newer than this worker"
    if now - first >= world.settings.refused_limit_ms:
        await bury(world, delivery, run_id=delivery.text("run"), reason="newer_spec", detail=detail)
        return
    waited_ms = max(_NAME_DELAYS_MS[0], now - first)  # doubles each time, as the waits add up
    again = Outgoing.again(delivery, body=body, message_id=message_id)
    delay_ms = min(waited_ms, _NAME_DELAYS_MS[-1])
    await world.deliveries.move(delivery, again, old_id=message_id, target=delivery.stream, delay_ms=delay_ms)
    observe(MessageMoved(delivery.kind, "newer_spec"))
    fact(logging.INFO, "handed back", where(delivery), reason="newer_spec", delay_ms=delay_ms, error=detail)


async def bury(world: World, delivery: Delivery, *, run_id: str, reason: str, detail: str, code: str = "") -> None:
    """Move a delivery to the dead letters; with ``code`` its run fails with it."""
    payload = failures.encode(ErrorInfo(type="RedisworldError", message=detail, code=code)) if code else b""
    run_id = run_id if is_word(run_id) else ""  # a stranger's field may hold anything, and no run is called so
    if await world.deliveries.bury(delivery, run_id=run_id, reason=reason, detail=detail, code=code, payload=payload):
        observe(MessageBuried(delivery.kind, reason, delivery.entry_id))
        place = where(delivery) | {"run": run_id or None}
        world.connection.faults.warn(
            f"dead letter {reason}", "dead letter", place, level=logging.ERROR, reason=reason, error=detail
        )


async def bury_broken(world: World, delivery: Delivery, *, run_id: str, call: str, answer: Claim | Recorded) -> None:
    """Bury a delivery whose run's data in Redis takes no such call: to repeat it would end no better."""
    detail = f"the {call} answered {answer.outcome}: {answer.detail}"
    await bury(world, delivery, run_id=run_id, reason="broken", detail=detail)


async def bury_poison(world: World, delivery: Delivery) -> bool:
    """Bury what has been delivered too often, and fail its run. True if it was poison."""
    limit = world.settings.max_deliveries
    if delivery.deliveries <= limit:
        return False
    await bury(
        world,
        delivery,
        run_id=delivery.text("run") or _run_in(delivery),
        reason="max_deliveries",
        code="MAX_DELIVERIES_EXCEEDED",
        detail=f"the message was delivered {delivery.deliveries} times without being processed (limit {limit})",
    )
    return True


def ended_at_ceiling(run_id: str, workflow: str, age_ms: str) -> None:
    """Say that a script has met the ceiling of this run's log and ended the run."""
    observe(RunFinished(run_id, workflow, "failed", int(age_ms) / 1_000))
    fact(logging.ERROR, "run failed", run=run_id, workflow=workflow, code="MAX_EVENTS_EXCEEDED")


def where(delivery: Delivery, message: StepMessage | WorkflowMessage | None = None) -> dict[str, object]:
    """The fields of every line about a delivery: of its message, or what its clear fields say of it."""
    return {
        "run": delivery.text("run") if message is None else message.run_id,
        "workflow": None if message is None else message.workflow_name,
        "step": message.step_id if isinstance(message, StepMessage) else delivery.text("step") or None,
        "entry": delivery.entry_id,
        "deliveries": delivery.deliveries if message is None else message.deliveries,
    }


def as_recovery(message: StepMessage | WorkflowMessage, *, message_id: str, recoveries: int) -> WorkflowMessage:
    """A wake for the same run that counts its recovery replays.

    Not to be taken for the wake of a run whose own was lost, whose reason is ``recovery``.
    """
    if isinstance(message, WorkflowMessage):
        return msgspec.structs.replace(
            message, reason="divergence", run_input=None, deliveries=1, recoveries=recoveries
        )
    return WorkflowMessage(
        message_id=message_id,
        run_id=message.run_id,
        workflow_name=message.workflow_name,
        reason="divergence",
        recoveries=recoveries,
        trace_carrier=message.trace_carrier,
    )


def _run_in(delivery: Delivery) -> str:
    """The run that the message names, where its producer has left out the clear field."""
    try:
        return decode(delivery.fields.get("msg", b"")).run_id
    except MalformedMessage:
        return ""
