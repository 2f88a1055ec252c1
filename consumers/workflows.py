"""How does a responsible message continue its run? (design section 10)

Load, deliver the new events to the body one at a time, commit what it asks for in one script; run a step inline
where the commit says so; again, until the run waits for something that others will report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Literal

import msgspec

from consumers.attempt import Attempt
from consumers.attempts import LOGGED, Attempts, Executed
from consumers.handback import bury_broken, ended_at_ceiling, refuse, reroute
from consumers.job import Job
from consumers.live import Live
from consumers.passes import Ended, Inline, chunks, writes_only
from consumers.setbacks import create_again, diverged, fail, nothing_to_load
from consumers.slots import Slots
from consumers.sticky import Sticky
from redisworld import clock, events
from redisworld.errors import MalformedMessage, ReplayDivergence
from redisworld.events import EventKind
from redisworld.facts import fact
from redisworld.messages import RunContext, StepMessage, WorkflowMessage, moved
from redisworld.observe import (
    BodyTaken,
    FirstStepStarted,
    PassCommitted,
    RunFetched,
    RunFinished,
    StepClaimed,
    observe,
)
from redisworld.replay import Cancelled, Failed, Pass
from redisworld.workflows import Step, Workflows
from redisworld.world import ClaimItem, Committed, Delivery, Loaded, World
from redisworld.world.dispatch import context_of

Next = Literal["load", "lost", "waits", "settled"]
"""How a job goes on: from new events, from the whole log, or not at all; ``waits`` if its body may stay in memory."""


class Orchestrator:
    """Continues runs; used for wakes, by last completers, and to recover inline steps."""

    def __init__(
        self,
        world: World,
        app: Workflows,
        attempts: Attempts,
        *,
        step_slots: Slots,
        replay_slots: Slots,
        queues: frozenset[str],
        stopping: Callable[[], bool],
    ) -> None:
        self._world = world
        self._app = app
        self._attempts = attempts
        self._step_slots = step_slots
        self._replay_slots = replay_slots
        self._queues = queues
        self._stopping = stopping
        self._sticky = Sticky(world.settings.sticky_runs)

    def close(self) -> None:
        """Drop the bodies that wait in memory."""
        self._sticky.clear()

    def may_replay(self, workflow: str, deployment: str) -> bool:
        """Whether this worker can continue a run of that workflow and deployment."""
        return workflow in self._app.workflows and self._world.serves(deployment)

    async def process(self, delivery: Delivery, message: WorkflowMessage) -> None:
        """Process a wake to its end: settled, moved or buried."""
        if (job := await self._job(delivery, message, message.reason)) is None:
            return
        sure = message.deliveries == 1 and delivery.deliveries == 1 and not self._world.outlived(delivery.published_at)
        given = message.run_input if sure else None
        if given is not None and not self._world.serves(given.deployment_id):
            if not await self._deployment_fits(job, given.deployment_id):
                return
            given = None  # the run has been moved here since: a load knows more
        first = Live.first_pass(self._world, delivery, message, job.workflow) if given else None
        await self._drive(job, first)

    async def continue_run(self, delivery: Delivery, message: StepMessage, *, fetched_for: str) -> None:
        """Continue the run of a step message that is responsible for it, or that owns one of its steps."""
        if (job := await self._job(delivery, message, "step")) is None:
            return
        observe(RunFetched(fetched_for, message.run_id))
        await self._drive(job, None)

    async def _job(self, delivery: Delivery, message: StepMessage | WorkflowMessage, trigger: str) -> Job | None:
        """The message with its workflow; None where this worker does not know it and has handed the message back."""
        workflow = self._app.workflows.get(message.workflow_name)
        if workflow is None:
            detail = f"no workflow {message.workflow_name!r} is registered in this worker"
            await refuse(self._world, delivery, message, reason="unknown_name", detail=detail)
            return None
        return Job(delivery, message, workflow, trigger)

    async def _deployment_fits(self, job: Job, deployment: str) -> bool:
        """Whether this deployment may run the body; a wake of another one is re-routed."""
        if not isinstance(job.message, WorkflowMessage) or self._world.serves(deployment):
            return True
        hops = job.message.deployment_mismatch_retry_count
        return not await reroute(
            self._world,
            job.delivery,
            job.message,
            msgspec.structs.replace(moved(job.message), deployment_mismatch_retry_count=hops + 1),
            deployment=deployment,
            target=job.delivery.partition.workflows(deployment),
            hops=hops,
        )

    async def _drive(self, job: Job, live: Live | None) -> None:
        """Load, replay and commit until the message is settled; ``live`` is a first pass, which loads nothing."""
        answer: Next = "settled"
        source = "first" if live is not None else "cold"
        try:
            if live is None and (live := self._sticky.take(job.run_id)) is not None:
                source = "warm"
            observe(BodyTaken(job.run_id, job.workflow.name, source))
            answer = "load" if live is None or source == "warm" else await self._commit(job, live)
            while answer in ("load", "lost"):
                if answer == "lost" and live is not None:
                    # what the other pass told the store about join groups is known at its own prefix only
                    live.close()
                    live = None
                loaded = await self._world.deliveries.load(
                    job.delivery, job.run_id, job.message.message_id, start=live.load_from if live else 0
                )
                if loaded.outcome != "loaded":
                    await nothing_to_load(self._world, job, loaded)
                    answer = "waits" if loaded.outcome == "settled" else "settled"
                    return
                if not await self._deployment_fits(job, loaded.deployment):
                    return
                if loaded.owned:
                    answer = await self._run_owned(job, loaded)
                    continue
                if live is not None and not live.continues(loaded):
                    fact(logging.WARNING, "the log is not the one replayed so far, starting from it", job.where)
                    answer = "lost"
                    continue
                live = live or Live.cold(self._world, job.message, job.workflow, loaded)
                await live.feed(loaded)
                answer = await self._commit(job, live)
        except (ReplayDivergence, MalformedMessage) as error:
            await self._diverged(job, error)
        finally:
            if live is not None:  # after an error it stands nobody knows where
                self._sticky.keep(live) if answer == "waits" else live.close()

    # -- commits

    async def _commit(self, job: Job, live: Live) -> Next:
        """Commit what the body asks for; run a step inline where the commit starts one."""
        asked = live.instance.commands()
        inline = self._choose_inline(job, asked)
        if inline is None:
            return await self._committed(job, live, asked, await self._send(job, live, asked, None))
        async with self._slot(job):  # taken before the step starts, so that it never waits for one
            return await self._commit_inline(job, live, asked, inline)

    async def _committed(self, job: Job, live: Live, asked: Pass, answer: Committed) -> Next:
        """What follows from the answer to a commit."""
        match answer.outcome:
            case "committed" | "again":
                live.committed()
                return "load" if answer.outcome == "again" else "waits"
            case "ended" if asked.outcome:
                status = asked.outcome.status
                seconds = (answer.at - live.created_at) / 1000
                observe(RunFinished(job.run_id, job.workflow.name, status, seconds, live.last_step_s()))
                if isinstance(asked.outcome, Failed):
                    error = asked.outcome.error
                    fact(logging.WARNING, "run failed", job.where, code=error.code or None, error=str(error)[:LOGGED])
                else:
                    fact(logging.INFO, f"run {status}", job.where)
            case "lost":
                fact(logging.DEBUG, "another pass committed first", job.where)
                return "lost" if answer.detail == "1" else "settled"
            case "full":
                ended_at_ceiling(job.run_id, job.workflow.name, answer.detail)
            case "invalid":
                await fail(self._world, job, await self._world.row(job.run_id), "INVALID_COMMIT", answer.detail)
            case "diverged":
                raise ReplayDivergence(answer.detail)
            case "not_found":
                await create_again(self._world, job)
            case _:
                fact(logging.DEBUG, "nothing committed", job.where, answer=answer.outcome, detail=answer.detail or None)
        return "settled"

    async def _send(
        self, job: Job, live: Live, asked: Pass, inline: Inline | None, ended: Ended | None = None, token: str = ""
    ) -> Committed:
        """``token`` is that of the pass where this call may be repeated."""
        token = token or self._world.next_token()
        answer = Committed("lost")
        disposing = frozenset(hook.id for hook in asked.disposed_hooks)
        holders = {
            hook.id: await self._world.hooks.claim(job.run_id, hook.id, hook.token, disposing=disposing)
            for hook in asked.hooks
        }
        items_by_chunk = chunks(self._world, job.delivery, live.identity, asked, inline, holders, ended)
        for chunk, (items, last) in enumerate(items_by_chunk, 1):
            answer = await self._world.deliveries.commit(
                job.delivery,
                job.run_id,
                job.message.message_id,
                items,
                replayed_to=live.replayed_to,
                consumed=live.instance.consumed,
                pass_token=token,
                chunk=chunk,
                last=last,
                started_at=live.started_at,
                cancels=isinstance(asked.outcome, Cancelled),
            )
            live.started_at = None  # the run has started
            if answer.outcome not in ("chunk", "committed", "again", "ended"):
                break
            if not last:
                await asyncio.sleep(0)  # a reader may have been handed the first steps: they go before the next chunk
        seconds = clock.monotonic() - live.began
        observe(PassCommitted(job.run_id, job.workflow.name, job.trigger, answer.outcome, live.events, seconds))
        return answer

    # -- inline steps

    def _choose_inline(self, job: Job, asked: Pass, *, has_slot: bool = False) -> Inline | None:
        """The first new step, if this worker may run it now. A step message has a step slot already."""
        if asked.outcome or not self._world.settings.max_inline_steps or self._stopping():
            return None
        if job.is_wake and not has_slot and self._step_slots.free <= 0:
            return None
        step = next(iter(asked.steps), None)
        if step is None or step.name not in self._app.steps or step.queue not in self._queues:
            return None
        return Inline(step, self._world.next_token())

    async def _commit_inline(self, job: Job, live: Live, asked: Pass, inline: Inline | None) -> Next:
        """Commit, run the step that starts with it, and go on from its end: one call for each of a row of steps.

        The body sees the end of a step before the log has it, as long as nothing else can move the body. The next
        commit writes that end, if nothing else has been written meanwhile; or the step is recorded on its own, and
        the body, which has seen too much, is dropped.
        """
        executed: Executed | None = None
        ended: Ended | None = None
        while True:
            run_started_at, is_first = live.started_at, not live.replayed_to
            if executed is None:
                answer = await self._send(job, live, asked, inline)
            elif asked.hooks:  # their tokens are claimed before the commit, so on ground that must hold
                return await self._record_alone(executed)
            else:
                send = partial(self._send, job, live, asked, inline, ended, self._world.next_token())
                answer = await self._attempts.insist(executed, send)
                if answer.outcome not in ("committed", "again", "ended"):
                    return await self._record_alone(executed)
                self._attempts.ended(executed, executed.completion.outcome)
            if inline is None or not answer.inline:
                return await self._committed(job, live, asked, answer)
            live.committed()
            if is_first:
                observe(FirstStepStarted(job.run_id, job.workflow.name, (answer.at - live.created_at) / 1000))
            step, started = inline.step, self._world.ticks_ms()
            observe(StepClaimed("started", ((job.run_id, step.id),), inline=True))
            attempt = self._attempt(job, live.identity.context, step.id, step.name, inline.token, step.input)
            executed = await self._execute(job, msgspec.structs.replace(attempt, first_started_at=answer.at))
            done = executed.completion
            if done.outcome == "retrying" or not writes_only(asked, step) or not live.instance.waits_only_for(step.id):
                recorded = await self._attempts.record(executed)
                return "load" if recorded.detail == "responsible" else "waits"
            at = answer.at + max(0, self._world.ticks_ms() - started)
            live.created_inline(step, answer.at, run_started_at=run_started_at)
            ended = Ended(done, live.instance.consumed, at)
            live.ended_inline(step.id, done.outcome, at, done.payload)
            asked = live.instance.commands()
            inline = self._choose_inline(job, asked, has_slot=True)

    async def _record_alone(self, executed: Executed) -> Next:
        """Something may have been written since the step started that the body has not seen: it is dropped."""
        recorded = await self._attempts.record(executed)
        return "lost" if recorded.detail == "responsible" else "settled"

    async def _execute(self, job: Job, attempt: Attempt) -> Executed:
        with self._replay_slots.lent() if job.is_wake else nullcontext():  # wakes go on while a body runs
            return await self._attempts.execute(attempt)

    async def _run_owned(self, job: Job, loaded: Loaded) -> Next:
        """A redelivery of the owner: its inline step starts again here."""
        name = await self._name_of(job, loaded)
        step = self._app.steps.get(name)
        if step is None:
            detail = f"no step {name!r} is registered in this worker"
            await refuse(self._world, job.delivery, job.message, reason="unknown_name", detail=detail)
            return "settled"
        item = ClaimItem(
            run_id=job.run_id,
            step_id=loaded.owned,
            token=self._world.next_token(),
            message_id=job.message.message_id,
            delivery=job.delivery,
            attempts_allowed=step.max_attempts,
            may_replay=True,
            step_name=name,
            owned=True,
        )
        async with self._slot(job):
            return await self._claim_owned(job, loaded, step, item)

    async def _claim_owned(self, job: Job, loaded: Loaded, step: Step[..., Any], item: ClaimItem) -> Next:
        claim, name = await self._world.deliveries.claim(item), step.name
        observe(StepClaimed(claim.outcome, ((job.run_id, loaded.owned),), inline=True))
        if claim.outcome == "full":
            ended_at_ceiling(job.run_id, job.workflow.name, claim.detail)
        if claim.outcome == "broken":
            await bury_broken(self._world, job.delivery, run_id=job.run_id, call="claim", answer=claim)
        if claim.outcome != "started":
            fact(logging.DEBUG, "step not started", job.where, step=loaded.owned, claim=claim.outcome)
            return "load" if claim.detail == "responsible" else "settled"
        attempt = self._attempt(job, context_of(job.run_id, loaded), loaded.owned, name, item.token, claim.input or b"")
        started = msgspec.structs.replace(
            attempt, attempt=claim.attempt, charged=claim.charged, first_started_at=claim.first_started_at
        )
        recorded = await self._attempts.record(await self._execute(job, started))
        return "load" if recorded.detail == "responsible" else "settled"

    def _attempt(self, job: Job, context: RunContext, step_id: str, name: str, token: str, data: bytes) -> Attempt:
        return Attempt(
            step=self._app.steps[name],
            run_id=job.run_id,
            workflow=job.workflow.name,
            step_id=step_id,
            token=token,
            attempt=1,
            charged=1,
            first_started_at=0,
            input=data,
            delivery=job.delivery,
            message_id=job.message.message_id,
            context=context,
            may_replay=True,
            inline=True,
            trace_carrier=job.message.trace_carrier,
        )

    def _slot(self, job: Job) -> AbstractAsyncContextManager[None]:
        """A step slot for inline steps of a wake; a step message came with one."""
        return self._step_slots.turn() if job.is_wake else nullcontext()

    async def _name_of(self, job: Job, loaded: Loaded) -> str:
        elements, start = list(loaded.elements), 0
        while elements:
            for element in elements:
                event = events.parse(element)
                if event.kind is EventKind.STEP_CREATED and event.id == loaded.owned:
                    return event.detail
            start += len(elements)
            elements = await self._world.log(job.run_id, start)
        raise MalformedMessage(f"run {job.run_id!r} owns step {loaded.owned!r}, which its log does not have")

    async def _diverged(self, job: Job, error: ReplayDivergence | MalformedMessage) -> None:
        await diverged(self._world, job, error)
