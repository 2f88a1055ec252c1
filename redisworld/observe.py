"""What happened, for whoever listens? The one seam between the engine and metrics, traces, logs and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import msgspec


class Seen(msgspec.Struct, frozen=True, gc=False):
    """Something that happened. Steps make many, and none can be in a cycle: no garbage collector looks at them."""


class RedisCalled(Seen, frozen=True):
    """One round trip. ``error`` is a bounded word, or empty."""

    op: str
    seconds: float
    error: str = ""


class RunFinished(Seen, frozen=True):
    """A pass ended its run. ``seconds`` since the run was created, by Redis time."""

    run_id: str
    workflow: str
    status: str
    seconds: float
    last_step_s: float | None = None
    """To the end of its last step, where the run ended with it."""


class FirstStepStarted(Seen, frozen=True):
    """The first commit of a run has started its first step. ``seconds`` since the run was created, by Redis time."""

    run_id: str
    workflow: str
    seconds: float


class BodyTaken(Seen, frozen=True):
    """A message is about to continue its run, whose body is on its ``first`` pass, ``warm`` in memory, or ``cold``."""

    run_id: str
    workflow: str
    source: str


class PassCommitted(Seen, frozen=True):
    """A pass reached its commit. ``trigger`` is the reason of the message that caused it.

    ``events`` are those that the pass has given to the body, and ``seconds`` its time, from the first of them to the
    answer of the commit.
    """

    run_id: str
    workflow: str
    trigger: str
    outcome: str
    events: int
    seconds: float


StepId = tuple[str, str]
"""The ids of a run and of its step."""


class PrologueTaken(Seen, frozen=True):
    """How the deliveries of these steps learned about their runs: ``run_context`` or ``runs_get``."""

    path: str
    steps: Sequence[StepId]


class RunFetched(Seen, frozen=True):
    """A lazy run fetch, made after the prologue. ``reason``: last_completer, redelivery or moved."""

    reason: str
    run_id: str


class StepClaimed(Seen, frozen=True):
    """What the claims of these steps were answered. ``inline`` where a commit started them, or a wake claimed them."""

    outcome: str
    steps: Sequence[StepId]
    inline: bool = False


class StepStarted(Seen, frozen=True):
    """A body begins. ``waited_ms`` from the dispatch to the start, by Redis time; 0 when inline."""

    workflow: str
    step: str
    run_id: str
    step_id: str
    attempt: int
    inline: bool
    waited_ms: int = 0


class StepEnded(Seen, frozen=True):
    """A body ended. ``outcome``: completed, failed, retrying, or lost where its result was refused."""

    workflow: str
    step: str
    run_id: str
    step_id: str
    attempt: int
    outcome: str
    cause: str
    seconds: float


class MessageRead(Seen, frozen=True):
    """Messages handed to this process. ``delivery``: first or reclaimed."""

    kind: str
    delivery: str
    count: int


class MessageMoved(Seen, frozen=True):
    """A message went back.

    ``reason``: too_early, missing, not_found, unknown_name, newer_spec, reroute, drain or divergence.
    """

    kind: str
    reason: str


class MessageBuried(Seen, frozen=True):
    """A message went to the dead letters."""

    kind: str
    reason: str
    entry_id: str


class TimersPromoted(Seen, frozen=True):
    """Due members were promoted; how late each was, in ms."""

    late_ms: tuple[int, ...]


class DelayedLost(Seen, frozen=True):
    """A delayed message was due and its body was gone. ``kind``: step, workflow or unknown."""

    kind: str


class GroupRecreated(Seen, frozen=True):
    """A stream had lost its consumer group; it was made again at 0."""

    stream: str


class Reading(Seen, frozen=True):
    """A loop of this process has begun to fail at reading from Redis, or reads again."""

    loop: str
    ok: bool


class LoopMoved(Seen, frozen=True):
    """The event loop came to what was due, ``late_s`` late. Seen twenty times a second."""

    late_s: float


class RunRecovered(Seen, frozen=True):
    """What a run waited for was nowhere, and was sent or set again. ``kind``: wake, step or wait."""

    kind: str
    run_id: str


class LeaseLost(Seen, frozen=True):
    """A delivery is no longer held by this process although it was not settled here."""

    entry_id: str


class Saturation(Seen, frozen=True):
    """How many slots of a kind are taken now."""

    kind: str
    in_flight: int
    limit: int


Observation = (
    RedisCalled | RunFinished | FirstStepStarted | BodyTaken | PassCommitted | PrologueTaken | RunFetched | StepClaimed
    | StepStarted | StepEnded | MessageRead | MessageMoved | MessageBuried | TimersPromoted | DelayedLost
    | GroupRecreated | Reading
    | RunRecovered | LeaseLost | Saturation | LoopMoved
)  # fmt: skip

Observers = Mapping[type, Callable[[Any], None]]
"""An observer for each kind of observation that somebody listens to."""


class _Listening(dict[type, list[Callable[[Any], None]]]):
    """Who listens to a kind, found once: a step has several observations."""

    def __missing__(self, kind: type) -> list[Callable[[Any], None]]:
        asked = (each.get(kind) if isinstance(each, Mapping) else each for each in _observers)
        self[kind] = found = [observer for observer in asked if observer is not None]
        return found


_observers: list[Callable[[Observation], None] | Observers] = []
_listening = _Listening()


def observe(observation: Observation) -> None:
    """Tell every observer, in this thread, now."""
    for observer in _listening[type(observation)]:
        observer(observation)


@contextmanager
def observing(observer: Callable[[Observation], None] | Observers) -> Iterator[None]:
    """Let ``observer`` listen while the context is open. It must be quick and must not raise."""
    global _listening  # noqa: PLW0603 a new one each time: what another thread still finds in the old one is dropped
    _observers.append(observer)
    _listening = _Listening()
    try:
        yield
    finally:
        _observers.remove(observer)
        _listening = _Listening()


Carrier = dict[str, str]
"""What a message carries of a trace: W3C traceparent, tracestate and baggage, by name."""


class StepSpan(Protocol):
    """The span of one attempt of a step."""

    def current(self) -> AbstractContextManager[None]:
        """While it lasts, spans and logs of this task belong to the attempt. At its end the body has ended."""

    def end(self, outcome: str, cause: str = "") -> None:
        """What has become of the attempt; a repeat changes nothing."""


class Tracer(Protocol):
    """What tells the story of runs as spans; ``redisworld.tracing`` makes one. Times are epoch, ages ms."""

    def start(self, run_id: str, workflow: str) -> AbstractContextManager[Carrier]:
        """A run is being started; what its first message is to carry."""

    def turn(self) -> AbstractContextManager[None]:
        """A message that continues a run is taken up: whatever was current before has nothing to do with it."""

    def replay(
        self, run_id: str, workflow: str, *, trigger: str, origin: Carrier | None, age_ms: int, deliveries: int
    ) -> AbstractContextManager[None]:
        """A replay, since its turn began, with what it leads to; ``origin`` is where its run was started."""

    def dispatch(
        self, run_id: str, workflow: str, *, steps: int, waits: int, hooks: int
    ) -> AbstractContextManager[Carrier]:
        """The commit of a pass; what its step messages are to carry."""

    def step(
        self,
        name: str,
        *,
        run_id: str,
        workflow: str,
        step_id: str,
        attempt: int,
        prologue: str,
        carrier: Carrier | None,
        age_ms: int,
    ) -> StepSpan:
        """An attempt begins. Without a ``prologue`` it is inline, part of what is current."""

    def raised(self, error: BaseException) -> None:
        """The current span has met this error."""

    def carrier(self) -> Carrier | None:
        """The current span as a message carries it."""

    def ids(self) -> dict[str, str]:
        """``trace_id`` and ``span_id`` of the current span, for logs; empty without one."""


_tracers: list[Tracer] = []


def tracer() -> Tracer | None:
    """The tracer of this process, if it has one. Whoever works on runs asks once, when it is made."""
    return _tracers[-1] if _tracers else None


def starting(run_id: str, workflow: str) -> AbstractContextManager[Carrier | None]:
    """A run is being started while the context is open; what its first message is to carry."""
    return nullcontext() if (known := tracer()) is None else known.start(run_id, workflow)


@contextmanager
def traced(by: Tracer) -> Iterator[None]:
    """Let ``by`` trace what this process starts, and the workers that it makes, while the context is open."""
    _tracers.append(by)
    try:
        yield
    finally:
        _tracers.remove(by)
