"""What does a state consist of beside Redis: workers and what they hold, the clock, and what may still go wrong?"""

from __future__ import annotations

from typing import Any, NamedTuple

from redisworld.messages import Message

RUN = "r1"
TOKEN = "please"
NOW = 1_800_000_000_000


class Budget(NamedTuple):
    """How often something may still go wrong; ``cancel`` and ``hook`` are what people outside may still do."""

    crashes: int = 0
    steals: int = 0
    """Leases that run out while their worker goes on without knowing."""
    lost: int = 0
    """Replies that do not arrive, so that the call is made again."""
    drains: int = 0
    """Hand-backs: of a message that has not started, or of a running body."""
    cancel: str = ""
    """request, terminate, or nothing any more."""
    hook: int = 0

    def less(self, name: str) -> Budget:
        """One less of it."""
        spent: dict[str, Any] = {name: "" if name == "cancel" else getattr(self, name) - 1}
        return self._replace(**spent)


class Held(NamedTuple):
    """A delivery as its worker knows it."""

    stream: str
    entry: str
    message: Message
    brief: str
    """The message in a word or two, for comparing and printing."""
    published: int
    deliveries: int


class Hand(NamedTuple):
    """One delivery at work: what its worker does next with it. Fields that a stage does not use have their defaults."""

    held: Held
    does: str
    """claim, own (claim of an owned step), finish, load, stage and point (before the commit that makes a hook), commit,
    go (a commit that records the end of the inline step before it), move, or keep (its body)."""
    token: str = ""
    step: str = ""
    name: str = ""
    attempt: int = 0
    charged: int = 0
    ensure: bool = False
    inline: bool = False
    prefix: int = 0
    """Log elements that the live body has consumed; 0 when there is none."""
    points: tuple[int, ...] = ()
    """Prefixes at which the live body was told that the store holds all that it had asked for."""
    started_at: int = 0
    """Body time of a first pass that has read nothing."""
    replayed_to: int = 0
    chunk: int = 0
    delay_ms: int = 0
    keeps: bool = False
    """Its live body stays in memory when the inline step's end is settled."""
    asked: bool = False
    """The call has been made already, and its reply was lost."""

    def text(self) -> str:
        """All that tells it from another hand."""
        h = self.held
        return (
            f"{h.stream} {h.entry} {h.brief} {h.deliveries} {self.does} {self.token} {self.step} {self.attempt}"
            f" {self.charged} {self.ensure:d}{self.inline:d} {self.prefix} {self.points} {self.started_at}"
            f" {self.replayed_to} {self.chunk} {self.delay_ms} {self.asked:d}{self.keeps:d}"
        )


class Worker(NamedTuple):
    """A process: its consumer name, and what it has in hand."""

    name: str
    hands: tuple[Hand, ...] = ()
    body: tuple[int, tuple[int, ...]] | None = None
    """The body that waits in memory: its prefix and points, see ``Hand``."""


class Outside(NamedTuple):
    """All of a state that is not in Redis."""

    now: int
    workers: tuple[Worker, ...]
    budget: Budget


class Scenario(NamedTuple):
    """What is explored: a body, workers, and what may happen to them."""

    name: str
    workflow: str
    budget: Budget = Budget()
    ends: frozenset[str] = frozenset({"completed"})
    """Statuses that the run may end with."""
    result: bytes = b"\x02"
    """What a completed run returns, packed."""
    workers: int = 2
    helpers: int = 0
    """How many of the workers run steps only: they may not replay."""
    slots: int = 1
    """Deliveries that one worker has in hand at most."""
    inline: bool = True
    chunk: int = 500
    """Steps per commit call."""
    sticky: bool = False
    """Whether workers keep bodies that wait in memory."""
    early: bool = False
    """In some schedule the run must end while one of its steps is still open."""
