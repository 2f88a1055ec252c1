"""How does a queued step message become a recorded outcome? (design section 9)"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from consumers.attempt import Attempt
from consumers.attempts import Attempts, Executed
from consumers.handback import bury_broken, ended_at_ceiling, refuse, reroute, where
from consumers.workflows import Orchestrator
from redisworld.errors import RunNotFound
from redisworld.facts import fact
from redisworld.keys import Partition
from redisworld.messages import RunContext, StepMessage, moved
from redisworld.observe import MessageMoved, PrologueTaken, RunFetched, StepClaimed, StepId, observe
from redisworld.workflows import Step, Workflows
from redisworld.world import Claim, ClaimItem, Delivery, Outgoing, World
from redisworld.world.dispatch import context_of


class Taken(msgspec.Struct, frozen=True):
    """A step message that this worker can run, and the claim it sends."""

    delivery: Delivery
    message: StepMessage
    step: Step[..., Any]
    context: RunContext
    item: ClaimItem


class StepConsumer:
    """Processes step messages: prologue, deployment guard, claim, body, outcome, and the run's continuation."""

    def __init__(self, world: World, app: Workflows, attempts: Attempts, orchestrator: Orchestrator) -> None:
        self._world = world
        self._app = app
        self._attempts = attempts
        self._orchestrator = orchestrator

    async def process(self, delivery: Delivery, message: StepMessage) -> None:
        """Process one delivery to its end: settled, moved, buried, or the run continued."""
        context = await self._prologue(delivery, message)
        if context is not None and not self._world.serves(context.deployment_id):
            context = await self._rerouted(delivery, message, context)
        if context is None:
            return
        if message.step_name not in self._app.steps:
            await refuse(
                self._world,
                delivery,
                message,
                reason="unknown_name",
                detail=f"no step {message.step_name!r} is registered in this worker",
            )
            return
        taken = self._take(delivery, message, context)
        claim = await self._world.deliveries.claim(taken.item)
        self._started([taken], [claim])
        if executed := await self.execute(taken, claim):
            await self.finish(taken, executed)

    def usual(self, delivery: Delivery, message: StepMessage) -> Taken | None:
        """What to claim for a first delivery that says all there is to know; None where ``process`` has to look."""
        context = message.run_context
        if context is None or message.deliveries > 1 or message.step_name not in self._app.steps:
            return None
        if not self._world.serves(context.deployment_id):
            return None
        return self._take(delivery, message, context)

    def _take(self, delivery: Delivery, message: StepMessage, context: RunContext) -> Taken:
        step = self._app.steps[message.step_name]
        # of a message that has outlived its run, the log of the run that has its id now knows the input
        data = None if self._world.outlived(delivery.published_at) else message.step_input
        item = ClaimItem(
            run_id=message.run_id,
            step_id=message.step_id,
            token=self._world.next_token(),
            message_id=message.message_id,
            delivery=delivery,
            attempts_allowed=step.max_attempts,
            may_replay=self._orchestrator.may_replay(message.workflow_name, context.deployment_id),
            step_name=message.step_name,
            input=data,
            # a redelivery ensures at once; a first delivery only when the bare claim says missing
            ensure=data is not None and (message.deliveries > 1 or delivery.deliveries > 1),
        )
        return Taken(delivery, message, step, context, item)

    async def claim_together(self, partition: Partition, batch: Sequence[Taken]) -> list[Claim]:
        """Claim usual steps in one call; ``execute`` each with its answer. Raises as ``World.deliveries.claim``."""
        observe(PrologueTaken("run_context", [_id(taken.message) for taken in batch]))
        claims = await self._world.deliveries.claim_together(partition, [taken.item for taken in batch])
        self._started(batch, claims)
        return claims

    def _started(self, batch: Sequence[Taken], claims: Sequence[Claim]) -> None:
        started = [_id(it.message) for it, claim in zip(batch, claims, strict=True) if claim.outcome == "started"]
        if started:
            observe(StepClaimed("started", started))

    async def execute(self, taken: Taken, claim: Claim) -> Executed | None:
        """Run the body if the claim lets it; None where that has ended the delivery."""
        delivery, message, item = taken.delivery, taken.message, taken.item
        if claim.outcome != "started":
            if claim.outcome == "missing" and item.input is not None and not item.ensure:
                claim = await self._world.deliveries.claim(msgspec.structs.replace(item, ensure=True))
            observe(StepClaimed(claim.outcome, (_id(message),)))
            if claim.outcome != "started":
                await self._not_started(delivery, message, claim)
                return None
        return await self._attempts.execute(
            Attempt(
                step=taken.step,
                run_id=message.run_id,
                workflow=message.workflow_name,
                step_id=message.step_id,
                token=item.token,
                attempt=claim.attempt,
                charged=claim.charged,
                first_started_at=claim.first_started_at,
                input=item.input if item.input is not None else claim.input or b"",
                delivery=delivery,
                message_id=message.message_id,
                context=taken.context,
                may_replay=item.may_replay,
                waited_ms=max(0, claim.started_at - delivery.published_at),
                trace_carrier=message.trace_carrier,
                prologue="runs_get" if message.run_context is None else "run_context",
            )
        )

    async def finish(self, taken: Taken, executed: Executed) -> None:
        """Record the outcome, and continue the run where that falls to this delivery."""
        if (await self._attempts.record(executed)).detail == "responsible":
            await self.continue_run(taken)

    async def continue_run(self, taken: Taken) -> None:
        """Continue the run: this delivery's completion was the last that it waited for."""
        await self._orchestrator.continue_run(taken.delivery, taken.message, fetched_for="last_completer")

    async def _prologue(self, delivery: Delivery, message: StepMessage) -> RunContext | None:
        """The run's identity: from the message, or with one fetch of the row. None: the delivery is done with."""
        if message.run_context is not None:
            observe(PrologueTaken("run_context", (_id(message),)))
            return message.run_context
        observe(PrologueTaken("runs_get", (_id(message),)))
        return await self._fetched(delivery, message)

    async def _fetched(self, delivery: Delivery, message: StepMessage) -> RunContext | None:
        try:
            row = await self._world.row(message.run_id)
        except RunNotFound as error:
            await refuse(self._world, delivery, message, reason="not_found", detail=str(error))
            return None
        if row.status.terminal:  # pending is a stale read, not an end
            fact(logging.DEBUG, "run is over", where(delivery, message), status=row.status)
            await self._world.deliveries.settle(delivery)
            return None
        return context_of(row.run_id, row)

    async def _rerouted(self, delivery: Delivery, message: StepMessage, context: RunContext) -> RunContext | None:
        """Re-route a message of another deployment, with all it carries; after three hops its run fails.

        Not None where the run has been moved to this deployment since: its row says what the message does not know.
        """
        hops = message.deployment_mismatch_retry_count
        step = self._app.steps.get(message.step_name)
        if await reroute(
            self._world,
            delivery,
            message,
            msgspec.structs.replace(moved(message), deployment_mismatch_retry_count=hops + 1),
            deployment=context.deployment_id,
            hops=hops,
            target=delivery.partition.steps(step.queue if step else "", context.deployment_id),
        ):
            return None
        observe(RunFetched("moved", message.run_id))
        return await self._fetched(delivery, message)

    async def _not_started(self, delivery: Delivery, message: StepMessage, claim: Claim) -> None:
        fact(logging.DEBUG, "step not started", where(delivery, message), claim=claim.outcome)
        match claim.outcome:
            case "full":
                ended_at_ceiling(message.run_id, message.workflow_name, claim.detail)
            case "skipped" | "exhausted" if claim.detail in ("responsible", "owned"):
                # a crash between a completion and its replay, or in the body of an inline step this message owns
                reason = "redelivery" if claim.outcome == "skipped" else "last_completer"
                await self._orchestrator.continue_run(delivery, message, fetched_for=reason)
            case "gone" | "stale" | "skipped" | "exhausted":
                pass  # the claim, or whoever made it so, has settled the delivery
            case "too_early":
                again = Outgoing.of(moved(message))
                await self._world.deliveries.move(
                    delivery,
                    again,
                    old_id=message.message_id,
                    target=delivery.stream,
                    delay_ms=max(1, claim.wait_ms),
                )
                observe(MessageMoved("step", "too_early"))
            case "missing":
                await refuse(
                    self._world,
                    delivery,
                    message,
                    reason="missing",
                    detail=f"the run has no step {message.step_id!r} and the message carries no input to create it",
                )
            case "not_found":
                await refuse(
                    self._world, delivery, message, reason="not_found", detail=f"there is no run {message.run_id!r}"
                )
            case _:
                await bury_broken(self._world, delivery, run_id=message.run_id, call="claim", answer=claim)


def _id(message: StepMessage) -> StepId:
    return message.run_id, message.step_id
