"""Which events can be written one at a time, by whom no replay pass of ours runs? (design section 7)

A foreign runtime creates each event by itself; an operator and a running step create a few. They go through the same
fences as a pass. Each answers an outcome word and its detail: ``gone`` and the status on a finished run (``conflict``
for its end), ``conflict`` where it has happened already, ``not_found`` for an unknown run, hook or wait, ``full`` where
the log was at its ceiling and the run has been ended for it. A repeat writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redisworld import attributes, failures, messages, values
from redisworld.errors import ErrorInfo, InvalidInput
from redisworld.messages import StepMessage
from redisworld.settings import SPEC_VERSION
from redisworld.world.deliveries import Answer
from redisworld.world.dispatch import step_stream
from redisworld.world.replies import detail_of, word_of

if TYPE_CHECKING:
    from redisworld.world.world import World

_LONGEST_REASON = 4_096


class Events:
    """The single events of runs. ``World.deliveries`` starts and ends steps: ``claim`` and ``complete``."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run_started(self, run_id: str) -> Answer:
        """``started`` and the time the run started at, in epoch ms; the first time, however often it is asked."""
        return await self._create(run_id, "start")

    async def run_completed(self, run_id: str, result: bytes) -> Answer:
        """``ended``."""
        return await self._create(run_id, "end", "run_completed", "", result)

    async def run_failed(self, run_id: str, error: ErrorInfo) -> Answer:
        """``ended``."""
        return await self._create(run_id, "end", "run_failed", error.code or "USER_ERROR", failures.encode(error))

    async def cancel_requested(self, run_id: str, reason: str = "") -> Answer:
        """``requested`` and the run's status: its body gets CancelledError and may clean up."""
        return await self._cancel(run_id, "request", reason)

    async def run_cancelled(self, run_id: str, reason: str = "") -> Answer:
        """``cancelled`` at once, without asking the body; also when the run was cancelled before."""
        return await self._cancel(run_id, "terminate", reason)

    async def attr_set(self, run_id: str, changes: dict[str, str | None], *, id: str = "", writer: str = "") -> Answer:
        """``created``: the attributes have these values; None takes one away. At most 64 a run, else ``invalid``.

        With a correlation id it happens once; without one each call is an event. ``writer`` is the id of the step that
        writes, for people. Raises InvalidInput for keys and values of more than 256 characters and bytes.
        """
        changes = attributes.checked(changes, {}, reserved=True)
        return await self._create(run_id, "attr", id, msgspec.json.encode(changes), attributes.encode(changes, writer))

    async def patched(self, run_id: str, name: str) -> Answer:
        """``created``: the run goes with this change of its code. Nobody is woken."""
        return await self._create(run_id, "patch", name)

    async def step_created(self, run_id: str, message: StepMessage, *, queue: str = "", deployment: str = "") -> Answer:
        """``created``, and its message is ready to run. Another step under this id: ``diverged``."""
        world = self._world
        target = step_stream(world, world.partition(run_id), queue, deployment)
        data = message.step_input or b""
        return await self._create(
            run_id, "step", message.step_id, message.step_name, "", target, messages.encode(message), data
        )

    async def wait_created(self, run_id: str, wait_id: str, due_ms: int) -> Answer:
        """``created``; the wait is completed at that time (epoch ms)."""
        return await self._create(run_id, "wait", wait_id, due_ms)

    async def wait_completed(self, run_id: str, wait_id: str) -> Answer:
        """``completed``, before its time if it must be; the run is woken."""
        return await self._create(run_id, "waited", wait_id)

    async def wait_cancelled(self, run_id: str, wait_id: str) -> Answer:
        """``cancelled``."""
        return await self._create(run_id, "unwait", wait_id)

    async def hook_created(self, run_id: str, hook_id: str, token: str, metadata: bytes = b"") -> Answer:
        """``created``, or ``hook_conflict`` and the run whose living hook holds the token."""
        holder = await self._world.hooks.claim(run_id, hook_id, token)
        answer = await self._create(run_id, "hook", hook_id, token, metadata, holder, 0)
        return Answer(answer.outcome, holder) if answer.outcome == "hook_conflict" else answer

    async def hook_disposed(self, run_id: str, hook_id: str) -> Answer:
        """``disposed``; its token is free at once."""
        return await self._create(run_id, "dispose", hook_id)

    async def _cancel(self, run_id: str, mode: str, reason: str) -> Answer:
        world = self._world
        payload, retention_ms = _packed_reason(reason), world.cancelled_ms
        reply = await world.call(
            "cancel_run", world.partition(run_id), world.clock(), run_id, mode, payload, retention_ms
        )
        return Answer(word_of(reply), detail_of(reply))

    async def _create(self, run_id: str, *item: str | bytes | int) -> Answer:
        world = self._world
        reply = await world.call(
            "create_event", world.partition(run_id), world.clock(), run_id, *world.ceiling, SPEC_VERSION, *item
        )
        return Answer(word_of(reply), detail_of(reply))


def _packed_reason(reason: str) -> bytes:
    if not isinstance(reason, str) or len(reason) > _LONGEST_REASON:
        raise InvalidInput(f"a reason is a text of at most {_LONGEST_REASON:,} characters, not {reason!r:.100}")
    return values.encode(reason, where="the reason")  # which refuses a lone surrogate
