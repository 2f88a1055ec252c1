"""What can be done with runs, steps, events and messages? ``World`` is the only door to Redis.

Each method reads like the vocabulary, calls one script and costs one round trip. Any of them may be repeated, but for a
start without a run id and a resume without a resume id: these would happen twice.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, overload

import anyio
import msgspec

from redisworld import clock, messages, scripts
from redisworld.begun import Begun
from redisworld.errors import InvalidInput, MalformedMessage, RunConflict, RunNotFound
from redisworld.events import RunCreated, carried
from redisworld.keys import Partition, partition_of
from redisworld.messages import RunInput, WorkflowMessage
from redisworld.observe import Carrier, starting
from redisworld.runs import RunRow, Status, Step
from redisworld.settings import Settings
from redisworld.values import Signature, encode_foreign
from redisworld.world.attributes import Attributes
from redisworld.world.batching import Batcher
from redisworld.world.begins import AT_ONCE, Begins, Start
from redisworld.world.connection import Connection
from redisworld.world.consuming import Deliveries
from redisworld.world.dead import DeadLetters
from redisworld.world.deployments import Deployments
from redisworld.world.endings import Endings
from redisworld.world.events import Events
from redisworld.world.handle import Run
from redisworld.world.heartbeats import Heartbeats
from redisworld.world.hook_info import HookInfo, read_hook
from redisworld.world.hooks import Hooks
from redisworld.world.listing import Listing
from redisworld.world.namespace import open_namespace
from redisworld.world.outputs import Outputs
from redisworld.world.own_run import current_run
from redisworld.world.queue import Queue
from redisworld.world.reading import read_log, read_row, read_steps
from redisworld.world.recovering import Recovering
from redisworld.world.replies import checked, items_of, text_of, word_of
from redisworld.world.run_ids import check_run_id, new_run_id
from redisworld.world.upkeep import Upkeep

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
    def startable(self) -> Literal[True]:
        """A workflow says so; a step has all the rest, too."""

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
        self._starts: Batcher[Start, Sequence[bytes]] = Batcher(
            work, self._start_many, lambda item: 2 * len(item.message), hurried=True
        )
        self.deliveries = Deliveries(self, work)
        """What consumers do; not for those who start and watch runs."""
        self.upkeep = Upkeep(self)
        """What workers do from time to time."""
        self.endings = Endings(connection, self.partitions, tasks)
        self.heartbeats = Heartbeats(connection, self.partitions)
        self.hooks = Hooks(self)
        self.listing = Listing(self)
        self.dead = DeadLetters(self)
        self.deployments = Deployments(self)
        self.recovery = Recovering(self)
        self.events = Events(self)
        self.attributes = Attributes(self)
        self.outputs = Outputs(self)
        self.ceiling = (self.settings.max_log_events, self.settings.retention_ms)
        """What scripts that may meet the ceiling of a log take: events, and ms the run then stays."""
        self.cancelled_ms = max(self.settings.retention_ms, self.settings.lease_ms)
        """How long a cancelled run stays: until the workers of its steps, at their next renewal, have seen it."""
        self._clock_offset_ms = redis_ms - clock.monotonic_ns() // 1_000_000
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
        RedisUnavailable, NamespaceMismatch for a namespace with another partition count or newer data, and
        MalformedMessage for a key of another type in the place of its meta hash.
        """
        settings = settings or Settings.from_env(url=url)
        if url is not None and url != settings.url:
            settings = msgspec.structs.replace(settings, url=url)
        settings.check()
        scripts.load_all()
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
                except BaseException as error:
                    failure = error  # the caller's own, SystemExit included: the task group would wrap it
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
        """Redis time by this process's monotonic clock, read at connect and by workers each minute."""
        return int(self.clock() or self.ticks_ms() + self._clock_offset_ms)

    def ticks_ms(self) -> int:
        """This process's monotonic clock, for lengths of time: no clock that is set changes them."""
        return int(self.clock() or clock.monotonic_ns() // 1_000_000)

    async def read_clock(self) -> None:
        """Ask Redis for its time again: one of both clocks may have been set. Raises RedisUnavailable."""
        self._clock_offset_ms = await self.connection.time_ms(patience_ms=0) - clock.monotonic_ns() // 1_000_000

    def outlived(self, published_at: int) -> bool:
        """Whether a message is so old that its run may have ended and gone: its id may be that of another one now."""
        return self.now_ms() - published_at > self.cancelled_ms

    async def call(
        self,
        name: str,
        partition: Partition,
        *args: Any,
        patience_ms: int | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Run a script on a partition; for the parts of this package. Raises MalformedMessage for ``broken``."""
        reply: list[Any] = await self.connection.script(
            scripts.load(name), partition.stats, list(args), patience_ms=patience_ms, timeout=timeout
        )
        return checked(reply)

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
        passed is now. A run that a step starts in its own namespace has the root of the step's run.

        A workflow's own parameter ``run_id``, ``delay`` or ``at`` is given by position: by name these mean the run.

        Raises InvalidArguments, InvalidValue, InvalidInput for a bad run id or time and for what is no workflow,
        RunConflict when the id belongs to another workflow, MalformedMessage where Redis holds something else under it,
        RedisUnavailable.
        """
        _check_startable(workflow)
        for name, given in (("run_id", run_id), ("delay", delay), ("at", at)):
            if given is not None and workflow.signature.takes(name, behind=len(args)):
                raise InvalidInput(
                    f"start(): workflow {workflow.name} has a parameter {name!r}, so {name}= could mean either: "
                    "give that argument by position, or rename it"
                )
        identifier = new_run_id() if run_id is None else check_run_id(run_id)
        payload = workflow.signature.encode_call(args, kwargs, max_bytes=self.settings.max_payload)
        begins = Begins.of(delay, at)
        parent = current_run()
        root = parent.root_run_id if parent is not None and parent.namespace == self.settings.namespace else ""
        with starting(identifier, workflow.name) as carrier:
            outcome, existing = await self.create_run(
                identifier, workflow.name, payload, root_run_id=root, begins=begins, trace_carrier=carrier
            )
        if outcome == "conflict" and existing != workflow.name:
            told = f"run id {identifier!r} belongs to a run of workflow {existing!r}, not {workflow.name!r}"
            raise RunConflict(told, run_id=identifier, workflow=existing)
        return Run(self, identifier, decode_result=workflow.signature.decode_result)

    @overload
    def run(self, run_id: str, workflow: Startable[..., R]) -> Run[R]: ...
    @overload
    def run(self, run_id: str, workflow: None = None) -> Run[Any]: ...
    def run(self, run_id: str, workflow: Startable[..., Any] | None = None) -> Run[Any]:
        """The handle of a run; ``workflow`` gives its result the annotated type. Does not look whether it exists."""
        if workflow is None:
            return Run(self, check_run_id(run_id))
        _check_startable(workflow)
        return Run(self, check_run_id(run_id), decode_result=workflow.signature.decode_result)

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
        """Write ``run_created`` and the first message: ``("created", workflow)``, or ``("conflict", its workflow)``.

        Raises InvalidInput for an id that no run can have.
        """
        check_run_id(run_id)
        self.connection.check_place()  # before the start is among those of another loop
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
            requested_at=self.now_ms(),
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
            return word, text_of(reply[2])
        return word, workflow

    def pin(self, deployment: str) -> str:
        """What a stream's name ends with when runs stay on their deployment, else ``""``."""
        return f"@{deployment}" if self.settings.affinity and deployment else ""

    def serves(self, deployment: str) -> bool:
        """Whether runs of that deployment may go on in this process."""
        return not self.settings.affinity or deployment in ("", self.settings.deployment)

    async def cancel(self, run_id: str, *, reason: str = "", terminate: bool = False) -> Status:
        """Ask the body to stop (it gets CancelledError), or end the run at once with ``terminate``.

        Once the run has ended so, the bodies of its steps are cancelled, too, within a third of a lease. A repeat
        changes nothing. Returns the status that the run then has or had already. Raises RunNotFound, and
        InvalidInput for what is no run id or a reason that is no text of at most 4,096 characters.
        """
        check_run_id(run_id)
        cancel = self.events.run_cancelled if terminate else self.events.cancel_requested
        answer = await cancel(run_id, reason)
        if answer.outcome == "not_found":
            raise RunNotFound(run_id)
        if answer.outcome == "cancelled":
            return Status.CANCELLED
        try:
            return Status(answer.detail)
        except ValueError as error:
            raise MalformedMessage(f"run {run_id!r} has the status {answer.detail!r}, which is none") from error

    async def row(self, run_id: str) -> RunRow:
        """The fixed fields of the run row. Raises RunNotFound."""
        return await read_row(self, run_id)

    async def steps(self, run_id: str) -> dict[str, Step]:
        """The states of all steps of a run by step id; for people, not for the hot path."""
        return await read_steps(self, run_id)

    async def log(self, run_id: str, start: int = 0, count: int | None = None) -> list[bytes]:
        """Log elements from index ``start`` (0 is event 1), at most ``count`` (default ``log_page``)."""
        return await read_log(self, run_id, start, count or self.settings.log_page)


def _check_startable(workflow: object) -> None:
    if getattr(workflow, "startable", None) is not True:
        raise InvalidInput(f"a run is of a workflow, a function with @wf.workflow, not of {workflow!r}")
