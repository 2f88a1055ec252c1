"""What can be done with runs, steps, events and messages? ``World`` is the only door to Redis.

Each method reads like the vocabulary, calls one script and costs one round trip; any of them may be repeated.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import anyio
import msgspec

from redisworld import messages, scripts
from redisworld.begun import Begun
from redisworld.errors import InvalidInput, RunConflict, RunNotFound
from redisworld.events import RunCreated, carried
from redisworld.keys import Partition, partition_of
from redisworld.messages import RunInput, WorkflowMessage
from redisworld.observe import Carrier, starting
from redisworld.runs import RunRow, Status, Step
from redisworld.settings import SPEC_VERSION, Settings
from redisworld.values import Signature, encode_foreign
from redisworld.world.attributes import Attributes
from redisworld.world.batching import Batcher
from redisworld.world.begins import AT_ONCE, Begins, Start
from redisworld.world.connection import Connection
from redisworld.world.dead import DeadLetters
from redisworld.world.deliveries import (
    Claim,
    ClaimItem,
    Committed,
    Completion,
    Delivery,
    Loaded,
    Outgoing,
    Recorded,
    Sweep,
)
from redisworld.world.endings import Endings
from redisworld.world.events import Events
from redisworld.world.handle import Run
from redisworld.world.heartbeats import Heartbeats
from redisworld.world.hook_info import HookInfo, read_hook
from redisworld.world.hooks import Hooks
from redisworld.world.listing import Listing
from redisworld.world.namespace import open_namespace
from redisworld.world.outputs import Outputs
from redisworld.world.promoting import tell_trouble
from redisworld.world.queue import Queue, Stream, fields_of
from redisworld.world.reading import read_log, read_row, read_steps
from redisworld.world.recovering import Recovering
from redisworld.world.replies import claim_of, items_of, loaded_of, word_of
from redisworld.world.run_ids import check_run_id, new_run_id

_START_PATIENCE_MS = 1_000
"""A caller of start() waits for an answer; it may repeat the start as it sees fit."""

START_MESSAGE = "start"
"""Message id of a run's first message."""

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Startable(Protocol[P, R_co]):
    """What start() needs to know of a workflow."""

    @property
    def name(self) -> str:
        """The registered name."""

    @property
    def func(self) -> Callable[P, Coroutine[Any, Any, R_co]]:
        """The body, for its types."""

    @property
    def signature(self) -> Signature:
        """Arguments and result as bytes."""


class World:
    """A namespace in Redis. Get one from ``World.connect``; useless outside its context."""

    def __init__(
        self, connection: Connection, partitions: int, redis_ms: int, tasks: anyio.abc.TaskGroup, work: Begun
    ) -> None:
        self.connection = connection
        self.settings = connection.settings
        self.partitions = tuple(Partition(self.settings.namespace, p) for p in range(partitions))
        suffix = secrets.token_hex(4)
        self.consumer = f"{socket.gethostname()[:40]}:{os.getpid()}:{suffix}"
        """Unique per process and World: the name of this consumer in every group."""
        self.queue = Queue(connection, self.consumer, self._restore_namespace)
        self._token_prefix = suffix
        self._token_numbers = itertools.count(1)
        self._claims: Batcher[ClaimItem, Claim] = Batcher(work, self._claim_many, lambda item: len(item.input or b""))
        self._completions: Batcher[Completion, Recorded] = Batcher(
            work, self._complete_many, lambda item: len(item.payload) + len(item.message)
        )
        self._starts: Batcher[Start, Sequence[bytes]] = Batcher(
            work, self._start_many, lambda item: 2 * len(item.message)
        )
        self.endings = Endings(connection, self.partitions, tasks)
        self.heartbeats = Heartbeats(connection, self.partitions)
        self.hooks = Hooks(self)
        self.listing = Listing(self)
        self.dead = DeadLetters(self)
        self.recovery = Recovering(self)
        self.events = Events(self)
        self.attributes = Attributes(self)
        self.outputs = Outputs(self)
        self.ceiling = (self.settings.max_log_events, self.settings.retention_ms)
        """What scripts that may meet the ceiling of a log take: events, and ms the run then stays."""
        self._clock_offset_ms = redis_ms - time.monotonic_ns() // 1_000_000
        self.clock: Callable[[], int | str] = lambda: ""
        """Tests pin the time of every script here (epoch ms); the empty text takes Redis TIME."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        create: bool = True,
        patience_ms: int = 0,
    ) -> AsyncIterator[World]:
        """Connect to a namespace, and make it if it is new (with ``create=False``: raise NamespaceNotFound).

        ``url`` wins over ``settings.url``; without both, ``REDISWORLD_*`` variables count. ``patience_ms`` is how long
        to wait for a Redis that is down or loading; one that refuses the user is not waited for. Raises InvalidInput,
        RedisUnavailable, and NamespaceMismatch for a namespace with another partition count or newer data.
        """
        settings = settings or Settings.from_env(url=url)
        if url is not None and url != settings.url:
            settings = msgspec.structs.replace(settings, url=url)
        settings.check()
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(Connection(settings, patience_ms=patience_ms))
            partitions, redis_ms = await open_namespace(connection, settings.partitions, create=create)
            failure: BaseException | None = None
            work = await stack.enter_async_context(Begun())
            async with anyio.create_task_group() as tasks:
                try:
                    world = cls(connection, partitions, redis_ms, tasks, work)
                    if create and (pin := world.pin(settings.deployment)):  # runs may start before the first worker
                        await world.heartbeats.list_streams([f"workflows{pin}"], redis_ms)
                    yield world
                except (Exception, asyncio.CancelledError) as error:
                    failure = error  # the caller's own: the task group would wrap it
                tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure

    async def _restore_namespace(self) -> None:
        """Write the meta hash again after Redis lost it. Raises NamespaceMismatch if somebody else was faster."""
        await open_namespace(self.connection, len(self.partitions), create=True)

    def partition(self, name: str) -> Partition:
        """The partition that a run id or a hook token belongs to."""
        return self.partitions[partition_of(name, len(self.partitions))]

    def next_token(self) -> str:
        """A claim token: this consumer and a counter, never given twice."""
        return f"{self._token_prefix}.{next(self._token_numbers)}"

    def now_ms(self) -> int:
        """Redis time by this process's monotonic clock, read once at connect: no skew, only drift."""
        return int(self.clock() or time.monotonic_ns() // 1_000_000 + self._clock_offset_ms)

    async def call(
        self,
        name: str,
        partition: Partition,
        *args: Any,
        patience_ms: int | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Run a script on a partition; for the parts of this package."""
        reply: list[Any] = await self.connection.script(
            scripts.load(name), partition.stats, list(args), patience_ms=patience_ms, timeout=timeout
        )
        return reply

    # -- runs

    # The type system has no way to say: these parameters, and run_id. With one of ours the arguments are checked at
    # the call only.
    @overload
    async def start(self, workflow: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    async def start(
        self,
        workflow: Startable[..., R],
        /,
        *args: Any,
        run_id: str | None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        **kwargs: Any,
    ) -> Run[R]: ...
    @overload
    async def start(
        self, workflow: Startable[..., R], /, *args: Any, delay: timedelta | float | str, **kwargs: Any
    ) -> Run[R]: ...
    @overload
    async def start(self, workflow: Startable[..., R], /, *args: Any, at: datetime, **kwargs: Any) -> Run[R]: ...
    async def start(  # type: ignore[misc]  # mypy: a workflow's own run_id, which is nobody's, may be of any type
        self,
        workflow: Startable[..., R],
        /,
        *args: Any,
        run_id: str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        **kwargs: Any,
    ) -> Run[R]:
        """Start a run of ``workflow`` with these arguments; the handle of it.

        With a ``run_id`` the start is idempotent: a run of that id which exists, finished or not, is handed back
        and nothing is created or changed. With ``delay`` (seconds, a timedelta or text like ``"10m"``) or ``at`` (an
        aware datetime) it begins then: until that time it is pending, and ``cancel`` ends it at once. A time that has
        passed is now. Raises InvalidArguments, InvalidValue, InvalidInput for a bad run id or time, RunConflict when
        the id belongs to another workflow, RedisUnavailable.
        """
        for name, given in (("delay", delay), ("at", at)):
            if given is not None and workflow.signature.takes(name):
                raise InvalidInput(
                    f"start(): workflow {workflow.name} has a parameter {name!r}, so {name}= could mean either: "
                    "give that argument by position, or rename it to start the run later"
                )
        identifier = new_run_id() if run_id is None else check_run_id(run_id)
        payload = workflow.signature.encode_call(args, kwargs, max_bytes=self.settings.max_payload)
        begins = Begins.of(delay, at)
        with starting(identifier, workflow.name) as carrier:
            outcome, existing = await self.create_run(
                identifier, workflow.name, payload, begins=begins, trace_carrier=carrier
            )
        if outcome == "conflict" and existing != workflow.name:
            raise RunConflict(f"run id {identifier!r} belongs to a run of workflow {existing!r}, not {workflow.name!r}")
        return Run(self, identifier, decode_result=workflow.signature.decode_result)

    @overload
    def run(self, run_id: str, workflow: Startable[..., R]) -> Run[R]: ...
    @overload
    def run(self, run_id: str, workflow: None = None) -> Run[Any]: ...
    def run(self, run_id: str, workflow: Startable[..., Any] | None = None) -> Run[Any]:
        """The handle of a run; ``workflow`` gives its result the annotated type. Does not look whether it exists."""
        return Run(self, check_run_id(run_id), decode_result=workflow.signature.decode_result if workflow else None)

    async def resume(self, token: str, payload: Any = None, *, resume_id: str | None = None) -> Run[Any]:
        """Hand a payload to the hook that holds a token; its run.

        A dataclass, Struct or model goes as its contents, so a dict of its fields is the same payload. With a
        ``resume_id`` it happens once: a repeat with the same payload succeeds and changes nothing, also after the hook
        was disposed of or its run has ended. Raises HookNotFound, RunGone, ResumeConflict for an id used with another
        payload, InvalidValue, InvalidInput, RedisUnavailable.
        """
        data = encode_foreign(
            payload, where=f"the payload for hook token {token!r}", max_bytes=self.settings.max_payload
        )
        run_id, _ = await self.hooks.resume(token, data, resume_id=resume_id)
        return Run(self, run_id)

    async def hook(self, token: str) -> HookInfo:
        """The open hook that holds a token. For people, not for the hot path: it reads the log of the hook's run.

        Raises HookNotFound, InvalidInput for a token that cannot be one, RedisUnavailable.
        """
        return await read_hook(self, token)

    async def _start_many(self, partition: Partition, items: list[Start]) -> list[Sequence[bytes]]:
        args = [arg for item in items for arg in item.args()]
        replies = await self.call("start_many", partition, self.clock(), *args, patience_ms=_START_PATIENCE_MS)
        return list(items_of(replies))

    async def create_run(
        self,
        run_id: str,
        workflow: str,
        payload: bytes,
        *,
        root_run_id: str = "",
        begins: Begins = AT_ONCE,
        trace_carrier: Carrier | None = None,
    ) -> tuple[str, str]:
        """Write ``run_created`` and the first message: ``("created", workflow)``, or ``("conflict", its workflow)``."""
        s = self.settings
        root = root_run_id or run_id
        created = RunCreated(
            input=payload,
            deployment_id=s.deployment,
            root_run_id=root_run_id or None,
            trace_carrier=carried(trace_carrier),
        )
        first = WorkflowMessage(
            message_id=START_MESSAGE,
            run_id=run_id,
            workflow_name=workflow,
            reason="start",
            run_input=RunInput(input=payload, deployment_id=s.deployment, root_run_id=root_run_id or None)
            if len(payload) <= s.step_input_limit
            else None,
            requested_at=time.time_ns() // 1_000_000,
            trace_carrier=trace_carrier,
        )
        start = Start(
            run_id=run_id,
            workflow=workflow,
            deployment=s.deployment,
            pin=self.pin(s.deployment),
            root=root,
            created=msgspec.msgpack.encode(created),
            message=messages.encode(first),
            begins=begins,
        )
        reply = await self._starts.ask(self.partition(run_id), start)
        word = word_of(reply)
        if word == "conflict":
            return word, reply[2].decode()
        return word, workflow

    def pin(self, deployment: str) -> str:
        """What a stream's name ends with when runs stay on their deployment, else ``""``."""
        return f"@{deployment}" if self.settings.affinity and deployment else ""

    async def cancel(self, run_id: str, *, reason: str = "", terminate: bool = False) -> Status:
        """Ask the body to stop (it gets CancelledError), or end the run at once with ``terminate``.

        A repeat changes nothing. Returns the status that the run then has or had already; raises RunNotFound.
        """
        cancel = self.events.run_cancelled if terminate else self.events.cancel_requested
        answer = await cancel(run_id, reason)
        if answer.outcome == "not_found":
            raise RunNotFound(run_id)
        return Status.CANCELLED if answer.outcome == "cancelled" else Status(answer.detail)

    async def row(self, run_id: str) -> RunRow:
        """The fixed fields of the run row. Raises RunNotFound."""
        return await read_row(self, run_id)

    async def steps(self, run_id: str) -> dict[str, Step]:
        """The states of all steps of a run by step id; for people, not for the hot path."""
        return await read_steps(self, run_id)

    async def log(self, run_id: str, start: int = 0, count: int | None = None) -> list[bytes]:
        """Log elements from index ``start`` (0 is event 1), at most ``count`` (default ``log_page``)."""
        return await read_log(self, run_id, start, count or self.settings.log_page)

    # -- passes

    async def load(self, delivery: Delivery, run_id: str, message_id: str, *, start: int = 0) -> Loaded:
        """Row fields and log elements from ``start``, read at one moment; starts a pending run.

        Settles a message that nothing waits for, and one whose run is terminal.
        """
        s = self.settings
        reply = await self.call(
            "load_run",
            delivery.partition,
            self.clock(),
            self.consumer,
            run_id,
            message_id,
            delivery.stream,
            delivery.entry_id,
            start,
            s.log_page,
            s.chunk_bytes,
            *self.ceiling,
        )
        return loaded_of(reply)

    async def commit(
        self,
        delivery: Delivery,
        run_id: str,
        message_id: str,
        items: Sequence[str | bytes | int],
        *,
        replayed_to: int,
        consumed: int,
        pass_token: str,
        last: bool = True,
        started_at: int | None = None,
    ) -> Committed:
        """Write what a pass asks for, fenced by ``replayed_to``; ``items`` are as commit_pass takes them.

        ``started_at`` is the body time of a first pass that has read nothing: the commit starts the run with it, or
        answers lost if somebody else has written meanwhile.
        """
        reply = await self.call(
            "commit_pass",
            delivery.partition,
            self.clock(),
            self.consumer,
            run_id,
            replayed_to,
            consumed,
            message_id,
            delivery.stream,
            delivery.entry_id,
            pass_token,
            int(last),
            *self.ceiling,
            SPEC_VERSION,
            "" if started_at is None else started_at,
            *items,
        )
        word = word_of(reply)
        if word in ("committed", "again", "ended", "chunk"):
            return Committed(word, inline=reply[1] == b"1", at=int(reply[2]))
        return Committed(word, detail=reply[1].decode() if len(reply) > 1 else "")

    # -- steps

    def claim(self, item: ClaimItem) -> Awaitable[Claim]:
        """Fence and write ``step_started``; goes out with the other claims of this tick."""
        return self._claims.ask(item.delivery.partition, item)

    async def claim_together(self, partition: Partition, items: list[ClaimItem]) -> list[Claim]:
        """Claim up to ``MOST_ITEMS`` steps of one partition in a call of their own; the answers in their order."""
        return await self._claim_many(partition, items)

    async def _claim_many(self, partition: Partition, items: list[ClaimItem]) -> list[Claim]:
        args = [arg for item in items for arg in item.args()]
        replies = await self.call("claim_many", partition, self.clock(), self.consumer, *self.ceiling, *args)
        return [claim_of(reply) for reply in items_of(replies)]

    def complete(self, item: Completion) -> Awaitable[Recorded]:
        """Record an outcome and settle its delivery; goes out with the other completions of this tick."""
        return self._completions.ask(item.delivery.partition, item)

    def complete_then(self, item: Completion, done: Callable[[Recorded | BaseException], None]) -> None:
        """The same, for who does not wait: ``done`` gets the answer, or what the call raised."""
        self._completions.add(item.delivery.partition, item, done)

    async def _complete_many(self, partition: Partition, items: list[Completion]) -> list[Recorded]:
        args = [arg for item in items for arg in item.args()]
        replies = await self.call("complete_many", partition, self.clock(), self.consumer, *args)
        return [
            Recorded(reply[0].decode(), reply[1].decode() if len(reply) > 1 and reply[1] else "")
            for reply in items_of(replies)
        ]

    # -- deliveries

    async def move(self, delivery: Delivery, message: Outgoing, *, old_id: str, target: str, delay_ms: int = 0) -> bool:
        """Hand a delivery back as ``message``, after ``delay_ms``; False if this consumer holds it no more."""
        args = message.args(old_id=old_id, target=target, delay_ms=delay_ms)
        reply = await self.call(
            "move_message", delivery.partition, self.clock(), self.consumer, delivery.stream, delivery.entry_id, *args
        )
        return word_of(reply) == "moved"

    async def give_back(self, delivery: Delivery) -> bool:
        """Put a delivery back into its stream, bytes as they are; False if this consumer holds it no more."""
        again = Outgoing.again(delivery, body=delivery.fields.get("msg", b""), message_id="")
        return await self.move(delivery, again, old_id="", target=delivery.stream)

    async def settle(self, delivery: Delivery) -> bool:
        """Acknowledge and delete a delivery; False if this consumer holds it no more."""
        reply = await self.call("settle_message", delivery.partition, self.consumer, delivery.stream, delivery.entry_id)
        return word_of(reply) == "settled"

    async def bury(
        self, delivery: Delivery, *, run_id: str, reason: str, detail: str, code: str = "", payload: bytes = b""
    ) -> bool:
        """Move a delivery to the dead letters; with ``code`` its run fails in the same script."""
        kind = delivery.kind if delivery.kind in ("step", "workflow") else "unknown"
        reply = await self.call(
            "bury_message",
            delivery.partition,
            self.clock(),
            self.consumer,
            delivery.stream,
            delivery.entry_id,
            kind,
            run_id,
            reason,
            detail,
            delivery.deliveries,
            code,
            payload,
            self.settings.retention_ms,
        )
        return word_of(reply) == "buried"

    async def reclaim(self, stream: Stream, cursor: str, count: int, *, lease_ms: int | None = None) -> Sweep:
        """Take over at most ``count`` deliveries whose lease ran out, unless another consumer sweeps.

        Neither repeated nor waited for: once Redis answers again the living must renew first. Raises RedisUnavailable.
        """
        s = self.settings
        # a sweeper that dies with the ticket must not keep the next one out for longer than the lease
        ticket_ms = min(5 * s.reclaim_every_ms, max(s.lease_ms, s.reclaim_every_ms * 6 // 5))
        lease_ms = s.lease_ms if lease_ms is None else lease_ms
        args = (self.consumer, stream[1], lease_ms, cursor, count, ticket_ms)
        timeout = self.connection.lease_timeout_s
        reply = await self.call("reclaim_stale", stream[0], *args, patience_ms=0, timeout=timeout)
        match word_of(reply):
            case "busy":
                return Sweep(cursor, quiet_ms=max(0, int(reply[1])), busy=True)
            case "no_group":
                await self.queue.ensure_groups([stream], lost=True)
                return Sweep("0-0")
        taken = tuple(
            Delivery(*stream, entry.decode(), fields_of(fields), int(deliveries))
            for entry, deliveries, fields in reply[3:]
        )
        return Sweep(reply[1].decode(), taken, int(reply[2]))

    async def promote(self, partition: Partition, limit: int = 100) -> tuple[int | None, list[int]]:
        """Make due timers happen: ms until the next one (None: there is none), and how late each was.

        What could not be promoted is told to observers and logged.
        """
        reply = await self.call("promote_due", partition, self.clock(), limit)
        word_of(reply)
        for trouble, member in [item for item in reply[2:] if isinstance(item, list)]:
            tell_trouble(self.connection.faults, trouble.decode(), member.decode("utf-8", "replace"))
        lates = [int(item) for item in reply[2:] if not isinstance(item, list)]
        return (int(reply[1]) if reply[1] else None), lates

    async def reap(self, partition: Partition, limit: int) -> int:
        """Delete at most ``limit`` finished runs whose retention is over; how many."""
        reply = await self.call("reap_expired", partition, self.clock(), limit)
        word_of(reply)
        return int(reply[1])

    async def remove_consumer(self, stream: Stream, consumer: str) -> bool:
        """Remove a consumer that holds nothing; False if it does."""
        return word_of(await self.call("remove_consumer", stream[0], consumer, stream[1])) == "removed"
