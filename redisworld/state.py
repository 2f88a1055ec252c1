"""What is the state of a namespace, as Redis says it at one moment?

Plain values: ``world.reading_state`` reads them, the exporter serves them and the command line shows them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from redisworld.messages import UNREADABLE

WORKER_STATES = ("ready", "draining", "unready")
"""``ready`` takes messages; ``draining`` was told to stop; ``unready`` has a loop that cannot read from Redis."""


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in a stream, or in all streams of a queue. Ages in ms by Redis time; 0 where there is nothing."""

    length: int = 0
    """Entries: unread and pending ones, for acknowledged entries are deleted."""
    lag: int = 0
    """Entries that no worker has been handed: what Redis says, or ``length - pending`` where it cannot tell."""
    lag_unknown: bool = False
    """Redis answers null for the lag, so an autoscaler that asks for it is blind."""
    pending: int = 0
    """Entries that some consumer holds."""
    consumers: int = 0
    """Consumers the group knows, dead ones included until a worker removes them."""
    oldest_pending_ms: int = 0
    """Since the oldest pending entry was sent."""
    oldest_unread_ms: int = 0
    """Since the oldest unread entry was sent."""

    @classmethod
    def together(cls, parts: Iterable[Backlog]) -> Backlog:
        """Counts add up, ages take the oldest; a worker is a consumer of each stream it reads, so that is no sum."""
        all_ = tuple(parts)
        return cls(
            length=sum(part.length for part in all_),
            lag=sum(part.lag for part in all_),
            lag_unknown=any(part.lag_unknown for part in all_),
            pending=sum(part.pending for part in all_),
            consumers=max((part.consumers for part in all_), default=0),
            oldest_pending_ms=max((part.oldest_pending_ms for part in all_), default=0),
            oldest_unread_ms=max((part.oldest_unread_ms for part in all_), default=0),
        )


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of one partition; ``stream`` is its name within the partition."""

    partition: int
    stream: str
    backlog: Backlog

    @property
    def queue(self) -> str:
        """``workflows``, ``steps`` or ``steps:<queue>``: the stream without its deployment."""
        return self.stream.partition("@")[0]

    @property
    def deployment(self) -> str:
        """The deployment this stream is pinned to, or the empty text."""
        return self.stream.partition("@")[2]


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """What a live worker last said of itself. New fields have defaults: versions of redisworld work side by side."""

    consumer: str
    """Its name in every group: host, process id and a random part."""
    state: str
    """One of ``WORKER_STATES``; a newer worker may know more."""
    reason: str = ""
    """Why it is not ready."""
    version: str = ""
    deployment: str = ""
    streams: tuple[str, ...] = ()
    """The streams it reads, by their name within each partition; none where it only looks after timers."""
    started_at: int = 0
    beat_at: int = 0
    """Epoch ms by Redis time."""
    steps: int = 0
    steps_limit: int = 0
    replays: int = 0
    replays_limit: int = 0
    """Deliveries it holds now, and at most."""
    lease_ms: int = 0
    """How long what it holds stays its own without renewal, and after how long it takes over from others."""

    @property
    def host(self) -> str:
        """The host part of the consumer's name."""
        return self.consumer.rsplit(":", 2)[0]

    @property
    def pid(self) -> str:
        """The process id in the consumer's name."""
        return [*self.consumer.rsplit(":", 2), "", ""][1]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A whole namespace. ``at_ms`` is Redis time of the reading."""

    namespace: str
    at_ms: int
    streams: tuple[StreamState, ...] = ()
    """Every known stream of every partition, in order of name and partition."""
    timers_pending: int = 0
    """Timers and messages that are due later: waits, delayed starts, retries, messages handed back."""
    timers_overdue: int = 0
    """Those of them that are due already and not promoted yet."""
    timers_overdue_ms: int = 0
    """How late the most overdue one is now."""
    dead_letters: int = 0
    runs: dict[str, int] = {}
    """Open runs: ``pending`` and ``running``. How many have ended is in ``recorded``."""
    workers: tuple[WorkerState, ...] = ()
    """Live workers, by consumer."""
    recorded: dict[str, int] = {}
    """The exact counts that the scripts keep in ``{ns:p}:stats``, by name, over all partitions."""

    @property
    def queues(self) -> dict[str, Backlog]:
        """What waits by queue, over all partitions and deployments."""
        by_queue: dict[str, list[Backlog]] = {}
        for stream in self.streams:
            by_queue.setdefault(stream.queue, []).append(stream.backlog)
        return {queue: Backlog.together(parts) for queue, parts in by_queue.items()}

    @property
    def workers_by_state(self) -> dict[str, int]:
        """How many live workers that take messages are in each state, 0 included; an unknown state is ``unready``."""
        counts = dict.fromkeys(WORKER_STATES, 0)
        for worker in (worker for worker in self.workers if worker.streams):
            counts[worker.state if worker.state in counts else "unready"] += 1
        return counts


def worker_in(beat: bytes) -> WorkerState | None:
    """The worker whose heartbeat this is; None for a stranger's key: whoever lists workers must not fail on it."""
    try:
        return msgspec.json.decode(beat, type=WorkerState)
    except UNREADABLE:
        return None
