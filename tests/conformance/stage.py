"""How does a test bring a run and its parts into any state of the transition table, and fire an event at them?

Everything is done by the calls that real processes make; nothing is written into Redis behind their back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redisworld.errors import ErrorInfo
from redisworld.events import EventKind
from redisworld.runs import Status
from redisworld.world import Answer, Delivery
from redisworld.world.hooks import Holder
from tests.scripts.driver import ERROR, RESULT, RUN, Attempt, Consumer, step_message

STEP, WAIT, HOOK, ATTRIBUTE = "s1", "w1", "h1", "x1"
TOKEN, RESUME, PAYLOAD = "chat:42", "k1", b"\x01"
OTHER_RUN = "r2"
PATCH = "fraud-check"


class Stage:
    """One run with one step, wait or hook in it. ``mine`` sends the event; ``other`` is another worker."""

    def __init__(self, mine: Consumer, other: Consumer) -> None:
        self.mine, self.other = mine, other
        self.delivery: Delivery | None = None
        self.attempt: Attempt | None = None

    # -- setting the stage

    async def open(self, status: Status) -> None:
        """The run, pending or running."""
        await self.mine.start()
        if status is not Status.PENDING:
            await self.mine.world.events.run_started(RUN)

    async def end(self, status: Status) -> None:
        """The run, finished in this way."""
        if status is Status.CANCELLED:
            await self.mine.world.cancel(RUN, terminate=True)
        elif status is Status.COMPLETED:
            await self.mine.world.events.run_completed(RUN, RESULT)
        elif status is Status.FAILED:
            await self.mine.world.events.run_failed(RUN, ErrorInfo("Oops", ""))

    async def enter(self, kind: EventKind, state: str) -> None:
        """The subject of this kind of event, in a state of the table."""
        subject = _SUBJECTS[kind]
        if subject is not None:
            await subject(self, state)

    async def be_cancelled(self, state: str) -> None:
        if state == "asked to cancel before":
            await self.mine.world.cancel(RUN)

    async def be_attributes(self, state: str) -> None:
        events = self.mine.world.events
        if state == "written under this correlation id":
            await events.attr_set(RUN, {"a": "1"}, id=ATTRIBUTE)
        elif state == "64 others":
            await events.attr_set(RUN, {f"k{number}": "" for number in range(64)})

    async def be_patched(self, state: str) -> None:
        if state == "recorded before":
            await self.mine.world.events.patched(RUN, PATCH)

    async def be_step(self, state: str) -> None:
        """A step for ``step_created``."""
        if state == "created under another name":
            await self.mine.world.events.step_created(RUN, step_message(STEP, name="other"))
        elif state != "missing":
            await self.be_claimed({"running": "running elsewhere"}.get(state, state))

    async def be_claimed(self, state: str) -> None:
        """A step for ``step_started``: ``delivery`` is what the caller holds."""
        if state.startswith("missing"):
            self.delivery = await self.mine.publish(STEP)
            return
        delivery = await self._created()
        match state:
            case "pending":
                self.delivery = delivery
            case "pending, retry time ahead":
                await self.mine.retry(await self.mine.claim(delivery), delay_ms=1_000)
                self.delivery = await self.mine.publish(STEP)
            case "pending, attempts used up":
                attempt = await self.mine.claim(delivery)
                await self.mine.retry(attempt)
                self.delivery = await self.mine.redelivered(attempt)
            case "running under this token":
                self.attempt = await self.mine.claim(delivery)
                self.delivery = delivery
            case "running, redelivered to the caller" | "running, redelivered, attempts used up":
                await self.mine.claim(delivery)
                self.delivery = await self.mine.take(delivery)
            case "running elsewhere":
                await self.other.claim(await self.other.take(delivery))
                self.delivery = await self.mine.duplicate(delivery)
            case "completed" | "failed":
                await self.mine.complete(await self.mine.claim(delivery), state, may_replay=False)
                self.delivery = await self.mine.duplicate(delivery)

    async def be_running(self, state: str) -> None:
        """A step for an outcome: ``attempt`` is the caller's."""
        if state == "missing":
            delivery = await self.mine.publish(STEP)
            self.attempt = Attempt(delivery, self.mine.claim_item(delivery), None)  # type: ignore[arg-type]
            return
        delivery = await self._created()
        if state == "pending":
            self.attempt = Attempt(delivery, self.mine.claim_item(delivery), None)  # type: ignore[arg-type]
            return
        self.attempt = attempt = await self.mine.claim(delivery)
        match state:
            case "pending after a retry of this token":
                await self.mine.retry(attempt)
            case "running under another token":
                await self._taken_over(delivery)
            case "completed under this token" | "failed under this token":
                await self.mine.complete(attempt, state.partition(" ")[0])
            case "completed under another token" | "failed under another token":
                await self.other.complete(await self._taken_over(delivery), state.partition(" ")[0], may_replay=False)

    async def be_wait(self, state: str) -> None:
        events = self.mine.world.events
        if state == "missing":
            return
        await events.wait_created(RUN, WAIT, self.mine.clock.now + 1_000)
        if state == "completed":
            await events.wait_completed(RUN, WAIT)
        elif state == "cancelled":
            await events.wait_cancelled(RUN, WAIT)

    async def be_hook(self, state: str) -> None:
        events = self.mine.world.events
        if "token held by" in state or state == "conflict":
            await self.mine.start(OTHER_RUN)
            await events.hook_created(OTHER_RUN, HOOK, TOKEN)
        if state == "missing, token held by a hook that is over":
            await events.hook_disposed(OTHER_RUN, HOOK)
        if state == "claiming":
            await self.mine.world.hooks.claim(RUN, HOOK, TOKEN)
        if state.startswith("missing") or state == "claiming":
            return
        await events.hook_created(RUN, HOOK, TOKEN)
        if state.startswith("resumed"):
            stored = b"\x02" if state.endswith("another payload") else PAYLOAD
            await self.mine.world.hooks.resume_at(Holder(RUN, HOOK), TOKEN, stored, resume_id=RESUME)
        if state.endswith("disposed"):
            await events.hook_disposed(RUN, HOOK)

    async def _created(self) -> Delivery:
        await self.mine.world.events.step_created(RUN, step_message(STEP))
        return (await self.mine.steps_delivered())[STEP]

    async def _taken_over(self, delivery: Delivery) -> Attempt:
        return await self.other.claim(await self.other.take(delivery))

    # -- firing

    async def fire(self, kind: EventKind, state: str) -> str:
        """Write the event; the word it answers."""
        return (await _FIRE[kind](self, state)).outcome

    async def run_created(self, _: str) -> Answer:
        return Answer((await self.mine.world.create_run(RUN, "wf", b"\x90"))[0])

    async def run_started(self, _: str) -> Answer:
        return await self.mine.world.events.run_started(RUN)

    async def run_completed(self, _: str) -> Answer:
        return await self.mine.world.events.run_completed(RUN, RESULT)

    async def run_failed(self, _: str) -> Answer:
        return await self.mine.world.events.run_failed(RUN, ErrorInfo("Oops", ""))

    async def cancel_requested(self, _: str) -> Answer:
        return await self.mine.world.events.cancel_requested(RUN)

    async def run_cancelled(self, _: str) -> Answer:
        return await self.mine.world.events.run_cancelled(RUN)

    async def attr_set(self, _: str) -> Answer:
        return await self.mine.world.events.attr_set(RUN, {"a": "1"}, id=ATTRIBUTE)

    async def patched(self, _: str) -> Answer:
        return await self.mine.world.events.patched(RUN, PATCH)

    async def step_created(self, _: str) -> Answer:
        return await self.mine.world.events.step_created(RUN, step_message(STEP))

    async def step_started(self, state: str) -> Answer:
        assert self.delivery is not None
        changes: dict[str, object] = {"attempts_allowed": 1} if "attempts used up" in state else {}
        if state == "missing, its input at hand":
            changes |= {"ensure": True, "input": b"\x90"}
        if self.attempt is not None:
            changes["token"] = self.attempt.item.token
        return Answer((await self.mine.claim(self.delivery, **changes)).outcome)

    async def step_completed(self, _: str) -> Answer:
        return await self._outcome("completed", RESULT)

    async def step_failed(self, _: str) -> Answer:
        return await self._outcome("failed", ERROR)

    async def step_retrying(self, _: str) -> Answer:
        return await self._outcome("retrying", ERROR)

    async def hook_created(self, _: str) -> Answer:
        return await self.mine.world.events.hook_created(RUN, HOOK, TOKEN)

    async def hook_received(self, _: str) -> Answer:
        return await self.mine.world.hooks.resume_at(Holder(RUN, HOOK), TOKEN, PAYLOAD, resume_id=RESUME)

    async def hook_disposed(self, _: str) -> Answer:
        return await self.mine.world.events.hook_disposed(RUN, HOOK)

    async def wait_created(self, _: str) -> Answer:
        return await self.mine.world.events.wait_created(RUN, WAIT, self.mine.clock.now + 1_000)

    async def wait_completed(self, _: str) -> Answer:
        return await self.mine.world.events.wait_completed(RUN, WAIT)

    async def wait_cancelled(self, _: str) -> Answer:
        return await self.mine.world.events.wait_cancelled(RUN, WAIT)

    async def _outcome(self, outcome: str, payload: bytes) -> Answer:
        assert self.attempt is not None
        recorded = await self.mine.complete(self.attempt, outcome, payload=payload)
        return Answer(recorded.outcome, recorded.detail)

    # -- looking

    async def state_of(self, kind: EventKind) -> str:
        """The state of the event's subject now, as the row shows it; ``missing`` where there is none."""
        field = _FIELDS.get(str(kind).partition("_")[0])
        if field is None:
            return ""
        found = await self.mine.redis.hget(self.mine.key(), field)
        return found.decode().partition("|")[0] if found else "missing"


_FIELDS = {"run": "status", "step": f"s:{STEP}", "wait": f"w:{WAIT}", "hook": f"h:{HOOK}"}

_SUBJECTS: dict[EventKind, Callable[[Stage, str], Awaitable[None]] | None] = {
    EventKind.RUN_CREATED: None,
    EventKind.RUN_STARTED: None,
    EventKind.RUN_COMPLETED: None,
    EventKind.RUN_FAILED: None,
    EventKind.RUN_CANCELLED: None,
    EventKind.CANCEL_REQUESTED: Stage.be_cancelled,
    EventKind.ATTR_SET: Stage.be_attributes,
    EventKind.PATCHED: Stage.be_patched,
    EventKind.STEP_CREATED: Stage.be_step,
    EventKind.STEP_STARTED: Stage.be_claimed,
    EventKind.STEP_COMPLETED: Stage.be_running,
    EventKind.STEP_FAILED: Stage.be_running,
    EventKind.STEP_RETRYING: Stage.be_running,
    EventKind.HOOK_CREATED: Stage.be_hook,
    EventKind.HOOK_RECEIVED: Stage.be_hook,
    EventKind.HOOK_DISPOSED: Stage.be_hook,
    EventKind.WAIT_CREATED: Stage.be_wait,
    EventKind.WAIT_COMPLETED: Stage.be_wait,
    EventKind.WAIT_CANCELLED: Stage.be_wait,
}

_FIRE: dict[EventKind, Callable[[Stage, str], Awaitable[Answer]]] = {
    kind: getattr(Stage, kind) for kind in EventKind if kind is not EventKind.HOOK_CONFLICT
}
