"""What is the state of the namespace, as Redis itself says it now?

At most three round trips of pipelined commands: two to four for each stream of a partition, six or seven for each
partition, none whose cost grows with how much waits, and never a scan. The reading itself knows no client: it says
what to ask and takes the answers, so that a command asks through the event loop, and a scrape from a thread of its
own: a process that is stuck tells the truth all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from redisworld.errors import RedisUnavailable
from redisworld.keys import GROUP, Partition, listed_streams, listed_workers, worker_key
from redisworld.runs import Status
from redisworld.state import Backlog, State, StreamState, worker_in
from redisworld.world.connection import Connection
from redisworld.world.deliveries import number_in
from redisworld.world.refusals import RAISED, checked, error_word, is_of_redis
from redisworld.world.replies import entry_ms, our_group, score_of, text_of

if TYPE_CHECKING:
    from redisworld.world.world import World

_ALWAYS = ("workflows", "steps")
"""Streams that every namespace has, also before the first worker."""

_Ask = Callable[[Any], None]
_Reading = Generator[_Ask, list[Any], State]


async def read_state(world: World) -> State:
    """The state now. Raises RedisUnavailable."""
    reading = _reading(world.settings.namespace, world.partitions)
    ask = next(reading)
    try:
        while True:
            ask = reading.send(await world.connection.pipe("read_state", ask, raises="transient"))
    except StopIteration as over:
        state: State = over.value
        return state


class StateReader:
    """Reads the state through a blocking client of its own, from any one thread at a time; ``close`` it."""

    def __init__(self, connection: Connection, partitions: Sequence[Partition]) -> None:
        self._client = connection.sync_client()
        self._namespace = connection.settings.namespace
        self._partitions = partitions

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def read(self) -> State:
        """The state now. Raises RedisUnavailable, at the latest when one answer takes longer than the lease allows."""
        reading = _reading(self._namespace, self._partitions)
        ask = next(reading)
        try:
            while True:
                pipeline = self._client.pipeline(transaction=False)
                ask(pipeline)
                ask = reading.send(checked(pipeline.execute(raise_on_error=False)))
        except StopIteration as over:
            state: State = over.value
            return state
        except RAISED as error:
            if not is_of_redis(error):
                raise
            raise RedisUnavailable(f"the state cannot be read ({error_word(error)}): {error}") from error


def _reading(namespace: str, partitions: Sequence[Partition]) -> _Reading:
    """Yields what to ask, is sent the answers, returns the state."""

    def namespace_wide(pipeline: Any) -> None:
        pipeline.time()
        pipeline.zrange(listed_streams(namespace), 0, -1)
        pipeline.smembers(listed_workers(namespace))

    now, listed, consumers = yield namespace_wide
    now_ms = now[0] * 1_000 + now[1] // 1_000
    names = sorted({*_ALWAYS, *(text_of(name) for name in _many(listed))})
    workers = sorted(text_of(name) for name in _many(consumers))
    streams = [_Stream(partition, name) for name in names for partition in partitions]

    def each_key(pipeline: Any) -> None:
        for stream in streams:
            pipeline.xlen(stream.key)
            pipeline.xinfo_groups(stream.key)
        for partition in partitions:
            _ask_partition(pipeline, partition)
        if workers:
            pipeline.mget([worker_key(namespace, name) for name in workers])

    answers = iter((yield each_key))
    for stream in streams:
        stream.length, stream.group = _number(next(answers)), _group(next(answers))
    of_partitions = [_PartitionAnswers(*(next(answers) for _ in range(_PER_PARTITION))) for _ in partitions]
    beats = _many(next(answers, ()))
    overdue = [partition for partition, seen in zip(partitions, of_partitions, strict=True) if seen.due_ms() <= now_ms]

    def what_waits(pipeline: Any) -> None:
        for stream in streams:
            if stream.pending:
                pipeline.xpending(stream.key, GROUP)
            if stream.lag:
                pipeline.xrange(stream.key, min=f"({stream.delivered}", count=1)
        for partition in overdue:
            pipeline.zcount(partition.delayed, "-inf", now_ms)

    answers = iter((yield what_waits))
    found = []
    for stream in streams:
        pending = next(answers) if stream.pending else None
        unread = _many(next(answers)) if stream.lag else ()
        found.append(stream.state(now_ms, pending, unread))
    return State(
        namespace=namespace,
        at_ms=now_ms,
        streams=tuple(found),
        timers_pending=sum(_number(seen.delayed) for seen in of_partitions),
        timers_overdue=sum(_number(count) for count in answers),
        timers_overdue_ms=int(max(0, *(now_ms - seen.due_ms() for seen in of_partitions))),
        dead_letters=sum(_number(seen.dead) for seen in of_partitions),
        runs={
            "pending": sum(_number(seen.pending) for seen in of_partitions),
            "running": sum(_number(seen.running) for seen in of_partitions),
        },
        workers=tuple(worker for beat in beats if beat and (worker := worker_in(beat)) is not None),
        recorded=_added(seen.stats for seen in of_partitions),
    )


class _Stream:
    """One stream of one partition, while it is read."""

    def __init__(self, partition: Partition, name: str) -> None:
        self._partition, self._name = partition.number, name
        self.key = partition.tag + name
        self.length = 0
        self.group: dict[str, Any] = {}

    @property
    def pending(self) -> int:
        return int(self.group.get("pending", 0))

    @property
    def lag(self) -> int:
        lag = self.group.get("lag")
        return lag if isinstance(lag, int) else max(0, self.length - self.pending)

    @property
    def delivered(self) -> str:
        """Where reading goes on; a stream without the group is all unread."""
        return text_of(self.group.get("last-delivered-id", "0-0"))

    def state(self, now_ms: int, pending: Any, unread: Any) -> StreamState:
        oldest_pending = pending["min"] if isinstance(pending, dict) else None
        backlog = Backlog(
            length=self.length,
            lag=self.lag,
            lag_unknown="lag" in self.group and self.group["lag"] is None,
            pending=self.pending,
            consumers=self.group.get("consumers", 0),
            oldest_pending_ms=_age_ms(now_ms, oldest_pending) if oldest_pending else 0,
            oldest_unread_ms=_age_ms(now_ms, unread[0][0]) if unread else 0,
        )
        return StreamState(partition=self._partition, stream=self._name, backlog=backlog)


class _PartitionAnswers(NamedTuple):
    delayed: Any
    first: Any
    dead: Any
    stats: Any
    pending: Any
    running: Any

    def due_ms(self) -> float:
        """When the first delayed member is due; never, where there is none."""
        first = _many(self.first)
        return score_of(first[0][1]) if first else math.inf


_PER_PARTITION = len(_PartitionAnswers._fields)


def _ask_partition(pipeline: Any, partition: Partition) -> None:
    """What ``_PartitionAnswers`` holds, in its order."""
    pipeline.zcard(partition.delayed)
    pipeline.zrange(partition.delayed, 0, 0, withscores=True)
    pipeline.xlen(partition.dead)
    pipeline.hgetall(partition.stats)
    pipeline.zcard(partition.index(f"status:{Status.PENDING}"))
    pipeline.zcard(partition.index(f"status:{Status.RUNNING}"))


def _added(partitions: Iterable[Any]) -> dict[str, int]:
    added: dict[str, int] = {}
    for stats in partitions:
        for name, count in stats.items() if isinstance(stats, dict) else ():
            if count.isdigit():
                added[text_of(name)] = added.get(text_of(name), 0) + number_in(count)
    return added


def _group(groups: Any) -> dict[str, Any]:
    """What XINFO GROUPS says of our group; empty where there is none, and the stream is all unread."""
    return our_group(_many(groups)) or {}


def _many(answer: Any) -> Any:
    """A list or set; a key of another type counts as nothing here, its reader complains of it."""
    return () if isinstance(answer, Exception) else answer


def _number(answer: Any) -> int:
    return answer if isinstance(answer, int) else 0


def _age_ms(now_ms: int, entry: bytes | str) -> int:
    """Since an entry was sent."""
    return max(0, now_ms - entry_ms(entry))
