"""What happened, for whoever listens? The one seam between the engine and metrics, traces, logs and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec


class RedisCalled(msgspec.Struct, frozen=True):
    """One round trip. ``error`` is a bounded word, or empty."""

    op: str
    seconds: float
    error: str = ""


class RunFinished(msgspec.Struct, frozen=True):
    """A pass ended its run. ``seconds`` since the run was created, by Redis time."""

    run_id: str
    workflow: str
    status: str
    seconds: float


class BodyTaken(msgspec.Struct, frozen=True):
    """A message continues its run, whose body is on its ``first`` pass, ``warm`` in memory, or ``cold``: replayed."""

    run_id: str
    workflow: str
    source: str


class PassCommitted(msgspec.Struct, frozen=True):
    """A replay reached its commit. ``trigger`` is the reason of the message that caused it."""

    run_id: str
    workflow: str
    trigger: str
    outcome: str
    events: int
    seconds: float


class PrologueTaken(msgspec.Struct, frozen=True):
    """How a step delivery learned about its run: ``run_context`` or ``runs_get``."""

    path: str
    run_id: str
    step_id: str


class RunFetched(msgspec.Struct, frozen=True):
    """A lazy run fetch, made after the prologue. ``reason``: last_completer or redelivery."""

    reason: str
    run_id: str


class StepClaimed(msgspec.Struct, frozen=True):
    """The claim's answer. ``inline`` where the commit itself started the step."""

    outcome: str
    run_id: str
    step_id: str
    step: str
    inline: bool = False


class StepStarted(msgspec.Struct, frozen=True):
    """A body begins. ``waited_ms`` from the dispatch to the start, by Redis time; 0 when inline."""

    workflow: str
    step: str
    run_id: str
    step_id: str
    attempt: int
    inline: bool
    waited_ms: int = 0


class StepEnded(msgspec.Struct, frozen=True):
    """A body ended. ``outcome``: completed, failed, retrying, or lost where its result was refused."""

    workflow: str
    step: str
    run_id: str
    step_id: str
    attempt: int
    outcome: str
    cause: str
    seconds: float


class MessageRead(msgspec.Struct, frozen=True):
    """Messages handed to this process. ``delivery``: first or reclaimed."""

    kind: str
    delivery: str
    count: int


class MessageMoved(msgspec.Struct, frozen=True):
    """A message went back.

    ``reason``: too_early, missing, not_found, unknown_name, newer_spec, reroute, drain or divergence.
    """

    kind: str
    reason: str


class MessageBuried(msgspec.Struct, frozen=True):
    """A message went to the dead letters."""

    kind: str
    reason: str
    entry_id: str


class TimersPromoted(msgspec.Struct, frozen=True):
    """Due members were promoted; how late each was, in ms."""

    late_ms: tuple[int, ...]


class DelayedLost(msgspec.Struct, frozen=True):
    """A delayed message was due and its body was gone. ``kind``: step, workflow or unknown."""

    kind: str


class GroupRecreated(msgspec.Struct, frozen=True):
    """A stream had lost its consumer group; it was made again at 0."""

    stream: str


class Reading(msgspec.Struct, frozen=True):
    """A loop of this process has begun to fail at reading from Redis, or reads again."""

    loop: str
    ok: bool


class LoopMoved(msgspec.Struct, frozen=True):
    """The event loop came to what was due, ``late_s`` late. Seen twenty times a second."""

    late_s: float


class RunRecovered(msgspec.Struct, frozen=True):
    """What a run waited for was nowhere, and was sent or set again. ``kind``: wake, step or wait."""

    kind: str
    run_id: str


class LeaseLost(msgspec.Struct, frozen=True):
    """A delivery is no longer held by this process although it was not settled here."""

    entry_id: str


class Saturation(msgspec.Struct, frozen=True):
    """How many slots of a kind are taken now."""

    kind: str
    in_flight: int
    limit: int


Observation = (
    RedisCalled | RunFinished | BodyTaken | PassCommitted | PrologueTaken | RunFetched | StepClaimed | StepStarted
    | StepEnded | MessageRead | MessageMoved | MessageBuried | TimersPromoted | DelayedLost | GroupRecreated | Reading
    | RunRecovered | LeaseLost | Saturation | LoopMoved
)  # fmt: skip

_observers: list[Callable[[Observation], None]] = []


def observe(observation: Observation) -> None:
    """Tell every observer, in this thread, now."""
    for observer in _observers:
        observer(observation)


@contextmanager
def observing(observer: Callable[[Observation], None]) -> Iterator[None]:
    """Let ``observer`` listen while the context is open. It must be quick and must not raise."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
