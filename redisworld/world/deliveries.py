"""What does a consumer hold while it works on a message?"""

from __future__ import annotations

import msgspec

from redisworld.keys import Partition
from redisworld.messages import StepMessage, WorkflowMessage, encode
from redisworld.settings import SPEC_VERSION

MOST_DIGITS = 15
"""Of a number that Lua, too, reads exactly."""


def number_in(text: bytes) -> int:
    """The whole number that a clear field is, or 0 where a stranger wrote something else."""
    return int(text) if text.isdigit() and len(text) <= MOST_DIGITS else 0


def known_kind(word: str) -> str:
    """The kind of a message as metrics and dead letters have it: step, workflow or unknown."""
    return word if word in ("step", "workflow") else "unknown"


class Delivery(msgspec.Struct, frozen=True):
    """A stream entry, pending under this process's consumer.

    ``stream`` is the name within the partition; ``deliveries`` counts the deliveries of this entry, from 1.
    """

    partition: Partition
    stream: str
    entry_id: str
    fields: dict[str, bytes]
    deliveries: int = 1

    @property
    def kind(self) -> str:
        """step or workflow; unknown where a stranger wrote something else into the clear field."""
        return known_kind(self.text("kind"))

    @property
    def is_step(self) -> bool:
        """Whether ``kind`` is step."""
        return self.fields.get("kind") == b"step"

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells this entry from all others: an entry id is unique in its stream only."""
        return self.partition.tag, self.stream, self.entry_id

    @property
    def published_at(self) -> int:
        """When the entry was sent, in epoch ms by Redis: the only clock that all workers share."""
        return int(self.entry_id.partition("-")[0])

    def text(self, field: str) -> str:
        """A clear field as text, or ``""``."""
        return self.fields.get(field, b"").decode("utf-8", "replace")

    def number(self, field: str) -> int:
        """A clear field as a whole number, or 0 where a stranger wrote something else."""
        return number_in(self.fields.get(field, b""))


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it goes into a stream: the clear fields, its id, and its bytes."""

    kind: str
    run_id: str
    id: str
    step_id: str = ""
    name: str
    spec: str = str(SPEC_VERSION)
    reason: str = ""
    body: bytes

    @classmethod
    def of(cls, message: StepMessage | WorkflowMessage) -> Outgoing:
        """A message of ours."""
        if isinstance(message, StepMessage):
            return cls(
                kind="step",
                run_id=message.run_id,
                id=message.message_id,
                step_id=message.step_id,
                name=message.step_name,
                body=encode(message),
            )
        return cls(
            kind="workflow",
            run_id=message.run_id,
            id=message.message_id,
            name=message.workflow_name,
            reason=message.reason,
            body=encode(message),
        )

    @classmethod
    def again(cls, delivery: Delivery, *, body: bytes, message_id: str) -> Outgoing:
        """A delivered message with its clear fields as they are, also one of a newer version."""
        return cls(
            kind=delivery.text("kind"),
            run_id=delivery.text("run"),
            id=message_id,
            step_id=delivery.text("step"),
            name=delivery.text("name"),
            spec=delivery.text("spec"),
            reason=delivery.text("reason"),
            body=body,
        )

    def args(self, *, old_id: str, target: str, delay_ms: int) -> list[str | bytes | int]:
        """As move_message takes it, after the delivery."""
        return [
            self.kind,
            self.run_id,
            self.step_id,
            self.name,
            self.spec,
            self.reason,
            old_id,
            self.id,
            target,
            delay_ms,
            self.body,
        ]


class ClaimItem(msgspec.Struct, frozen=True, kw_only=True):
    """One claim. ``ensure`` creates the step from ``input`` where it is missing, and starts it.

    ``owned`` recovers an inline step: it starts only while the row says that this message owns it.
    """

    run_id: str
    step_id: str
    token: str
    message_id: str
    delivery: Delivery
    attempts_allowed: int
    may_replay: bool
    step_name: str
    input: bytes | None = None
    ensure: bool = False
    owned: bool = False

    def args(self) -> list[str | bytes | int]:
        """As claim_many takes it."""
        send_input = self.ensure and self.input is not None
        return [
            self.run_id,
            self.step_id,
            self.token,
            self.message_id,
            self.delivery.stream,
            self.delivery.entry_id,
            self.attempts_allowed,
            int(self.may_replay),
            "owned" if self.owned else "ensure" if send_input else "bare",
            self.step_name,
            int(self.input is not None),
            self.input if send_input and self.input is not None else b"",
        ]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a claim: ``outcome`` is a word of design section 3, and what comes with it.

    ``detail``: of skipped and exhausted: responsible, owned, woken or settled. ``step_id``: the owned step.
    Times are epoch ms.
    """

    outcome: str
    detail: str = ""
    step_id: str = ""
    attempt: int = 0
    charged: int = 0
    """Attempts that used up the retry budget, this one included."""
    first_started_at: int = 0
    started_at: int = 0
    input: bytes | None = None
    wait_ms: int = 0


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome of a running step: completed, failed, or retrying with the message that comes back."""

    run_id: str
    step_id: str
    token: str
    outcome: str
    message_id: str
    delivery: Delivery
    payload: bytes
    may_replay: bool = True
    cause: str = ""
    delay_ms: int = 0
    target: str = ""
    step_name: str = ""
    message: bytes = b""

    def args(self) -> list[str | bytes | int]:
        """As complete_many takes it."""
        return [
            self.run_id,
            self.step_id,
            self.token,
            self.outcome,
            self.cause,
            self.message_id,
            self.delivery.stream,
            self.delivery.entry_id,
            int(self.may_replay),
            self.payload,
            self.delay_ms,
            self.target,
            self.step_name,
            self.message,
        ]


class Recorded(msgspec.Struct, frozen=True):
    """The answer to a completion; ``detail`` is responsible where this delivery must continue the run."""

    outcome: str
    detail: str = ""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a load. ``outcome``: loaded, settled, gone, full or not_found; the rest only if loaded.

    ``elements`` are log elements from where the caller stood; ``length`` is the whole log's. ``owned`` is the
    step that the asking message owns, or ``""``. ``begun_to`` and ``patches`` are as in RunRow.
    """

    outcome: str
    detail: str = ""
    workflow: str = ""
    deployment: str = ""
    spec_version: int = 1
    root_run_id: str = ""
    created_at: int = 0
    started_at: int = 0
    woken_at: int = 0
    replayed_to: int = 0
    begun_to: int = 0
    patches: frozenset[str] = frozenset()
    length: int = 0
    owned: str = ""
    elements: tuple[bytes, ...] = ()

    @property
    def passed_to(self) -> int:
        """As RunRow.passed_to of an open run."""
        return max(self.replayed_to, self.begun_to)


class Committed(msgspec.Struct, frozen=True):
    """The answer to a commit: committed, again, ended, chunk, lost, gone, diverged, invalid, full or not_found."""

    outcome: str
    inline: bool = False
    detail: str = ""
    at: int = 0


class Answer(msgspec.Struct, frozen=True):
    """The answer to a single event: its outcome word, and what comes with it."""

    outcome: str
    detail: str = ""


class Sweep(msgspec.Struct, frozen=True):
    """What a sweep over a pending list has come to: where to go on, and what was taken over.

    ``busy``: another consumer sweeps. Nothing becomes stale, or free to sweep, within ``quiet_ms``.
    """

    cursor: str
    taken: tuple[Delivery, ...] = ()
    quiet_ms: int = 0
    busy: bool = False
