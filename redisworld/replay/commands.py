"""What does a pass ask the store to write?"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from redisworld.attributes import Changes
from redisworld.errors import ErrorInfo
from redisworld.runs import Status

GroupMode = Literal["all", "fail_fast"]

WAKES = ""
"""Assignment of a step each of whose completions the body can observe."""

UNOBSERVED = "-"
"""Assignment of a step whose completion nothing waits for: it never wakes the run."""


class CreateStep(msgspec.Struct, frozen=True, gc=False):
    """Create a step. ``group`` is its join group, ``""`` (always wakes) or ``"-"`` (never does)."""

    id: str
    name: str
    input: bytes
    group: str = WAKES
    queue: str = ""


class CreateWait(msgspec.Struct, frozen=True):
    """Create a durable timer, due at body time ``due_ms`` (epoch milliseconds)."""

    id: str
    due_ms: int


class CancelWait(msgspec.Struct, frozen=True):
    """The body dropped a wait that the log holds."""

    id: str


class CreateHook(msgspec.Struct, frozen=True):
    """Create a hook under a token. ``awaited``: the body waits to learn whether the token is its own."""

    id: str
    token: str
    metadata: bytes
    awaited: bool = False


class DisposeHook(msgspec.Struct, frozen=True):
    """The body needs a hook no more."""

    id: str


class SetAttributes(msgspec.Struct, frozen=True):
    """Set attributes of the run; None takes one away."""

    id: str
    changes: Changes


class SealGroup(msgspec.Struct, frozen=True):
    """A join group got members in this pass; count it again from the stored states.

    Mode ``all``: only the last completion wakes. ``fail_fast``: the first failure wakes too.
    """

    id: str
    mode: GroupMode


class Assign(msgspec.Struct, frozen=True):
    """A recorded step is observed in another way than before."""

    step_id: str
    group: str


class Completed(msgspec.Struct, frozen=True):
    """The body returned."""

    status: ClassVar[Status] = Status.COMPLETED
    result: bytes


class Failed(msgspec.Struct, frozen=True):
    """The body raised."""

    status: ClassVar[Status] = Status.FAILED
    error: ErrorInfo


class Cancelled(msgspec.Struct, frozen=True):
    """The body let the requested cancellation through."""

    status: ClassVar[Status] = Status.CANCELLED


Outcome = Completed | Failed | Cancelled


class Pass(msgspec.Struct, frozen=True):
    """Everything the body asked for that the log does not hold yet, in the order it asked."""

    steps: list[CreateStep]
    waits: list[CreateWait]
    cancelled_waits: list[CancelWait]
    hooks: list[CreateHook]
    disposed_hooks: list[DisposeHook]
    groups: list[SealGroup]
    assigns: list[Assign]
    outcome: Outcome | None
    patches: tuple[str, ...] = ()
    """Names decided in this pass."""
    attributes: tuple[SetAttributes, ...] = ()
