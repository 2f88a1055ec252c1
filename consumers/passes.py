"""What does one replay pass ask Redis to write, as commit_pass takes it, and in which chunks?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from redisworld import attributes, failures, messages
from redisworld.errors import ErrorInfo
from redisworld.messages import RunContext
from redisworld.replay.commands import Completed, CreateStep, Failed, Outcome, Pass
from redisworld.world import Completion, Delivery, World
from redisworld.world.dispatch import step_message, step_stream

Item = list[str | bytes | int]

_FIRST_STEPS = 8
"""The first chunk of many steps is a small one, and each is four times the one before it: workers begin while the rest
is being encoded."""

_MESSAGE = 300
"""Bytes of a step message without its input, about: enough to bound a chunk."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The immutable facts of a run that its messages carry."""

    run_id: str
    workflow: str
    context: RunContext
    trace_carrier: dict[str, str] | None = None


class Inline(msgspec.Struct, frozen=True):
    """The new step that the committing worker runs itself, and the token of that attempt."""

    step: CreateStep
    token: str


class Ended(msgspec.Struct, frozen=True):
    """The inline step that has led to a pass, and whose end that pass records.

    ``length`` is that of the log when it started, with its start; ``at`` the body time of its end.
    """

    completion: Completion
    length: int
    at: int

    def item(self) -> Item:
        """As commit_pass takes it."""
        done = self.completion
        return ["did", done.step_id, done.token, done.outcome, self.length, self.at, done.payload]


def chunks(
    world: World,
    delivery: Delivery,
    run: Identity,
    asked: Pass,
    inline: Inline | None,
    holders: Mapping[str, str],
    ended: Ended | None = None,
) -> Iterator[tuple[Item, bool]]:
    """The arguments of each commit_pass call, and whether it is the last.

    Step creations fill chunks of ``chunk_steps`` and ``chunk_bytes``, after a few smaller ones; all else goes with the
    last one, which alone seals groups, sets ``replayed_to`` and settles. The step that has ended, patches and
    attributes go with the first.
    ``holders`` says of each new hook which other run holds its token.
    """
    settings, items = world.settings, _Steps(world, delivery, run)
    chunk: Item = ended.item() if ended else []
    for name in asked.patches:  # in the first chunk: what is asked for beyond a patch must not be without it
        chunk += ["patch", name]
    for change in asked.attributes:
        chunk += ["attr", change.id, msgspec.json.encode(change.changes), attributes.encode(change.changes)]
    steps = size = 0
    most = min(_FIRST_STEPS, settings.chunk_steps) if len(asked.steps) > 2 * _FIRST_STEPS else settings.chunk_steps
    for step in asked.steps:
        if inline is not None and step.id == inline.step.id:
            continue
        item = items.item(step)
        weight = 2 * len(step.input) + _MESSAGE  # it goes into the log and into the message
        if steps and (steps >= most or size + weight > settings.chunk_bytes):
            yield chunk, False
            chunk, steps, size, most = [], 0, 0, min(4 * most, settings.chunk_steps)
        chunk += item
        steps += 1
        size += weight
    if inline is not None:
        chunk += ["inline", *items.item(inline.step)[1:], inline.token]
    for wait in asked.waits:
        chunk += ["wait", wait.id, wait.due_ms]
    for dropped in asked.cancelled_waits:
        chunk += ["unwait", dropped.id]
    for hook in asked.hooks:
        chunk += ["hook", hook.id, hook.token, hook.metadata, holders[hook.id], int(hook.awaited)]
    for disposed in asked.disposed_hooks:
        chunk += ["dispose", disposed.id]
    for assigned in asked.assigns:
        chunk += ["assign", assigned.step_id, assigned.group]
    for group in asked.groups:
        chunk += ["seal", group.id, group.mode]
    if asked.outcome is not None:
        chunk += ending(asked.outcome)
    yield chunk, True


def writes_only(asked: Pass, step: CreateStep) -> bool:
    """Whether the commit of this pass puts this step into the log, and nothing else."""
    others = (asked.waits, asked.cancelled_waits, asked.hooks, asked.disposed_hooks, asked.attributes, asked.patches)
    return [other.id for other in asked.steps] == [step.id] and not asked.outcome and not any(others)


def ending(outcome: Outcome) -> Item:
    """The terminal item."""
    if isinstance(outcome, Failed):
        return failure(outcome.error)
    return ["end", f"run_{outcome.status}", "", outcome.result if isinstance(outcome, Completed) else b""]


def failure(error: ErrorInfo) -> Item:
    """The terminal item of a run that failed with this error."""
    return ["end", "run_failed", error.code or "USER_ERROR", failures.encode(error)]


class _Steps:
    """The steps of one pass as commit_pass takes them. What they share is worked out once: a fan-out has thousands."""

    def __init__(self, world: World, delivery: Delivery, run: Identity) -> None:
        self._world = world
        self._partition = delivery.partition
        self._run = run
        self._now_ms = world.now_ms()
        self._streams: dict[str, str] = {}

    def item(self, step: CreateStep) -> Item:
        run = self._run
        message = step_message(
            self._world,
            run_id=run.run_id,
            workflow=run.workflow,
            step_id=step.id,
            name=step.name,
            context=run.context,
            data=step.input,
            trace_carrier=run.trace_carrier,
            now_ms=self._now_ms,
        )
        if (target := self._streams.get(step.queue)) is None:
            target = self._streams[step.queue] = step_stream(
                self._world, self._partition, step.queue, run.context.deployment_id
            )
        return ["step", step.id, step.name, step.group, target, messages.encode(message), step.input]
