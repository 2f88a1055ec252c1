"""How do the loops become one worker, and how does it stop without losing or repeating anything?

A drain: stop reading, let running bodies finish within the grace, hand back what has not started, then cancel the
rest and hand it back without charging its retry budget.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import anyio

from consumers.bodies import Bodies
from consumers.children import contained_children
from consumers.health import Health
from consumers.intake import Intake
from consumers.leases import LeaseKeeper
from consumers.presence import Presence
from consumers.reader import Reader
from consumers.reclaim import Reclaimer
from consumers.recovery import Recovery
from consumers.retention import Retention
from consumers.slots import Slots
from consumers.steps import StepConsumer
from consumers.timers import Timers
from consumers.traced import parts
from consumers.unserved import Unserved
from redisworld.errors import InvalidInput, MalformedMessage, RedisUnavailable
from redisworld.facts import fact
from redisworld.observe import tracer
from redisworld.replay import install
from redisworld.workflows import Workflows, check_queue
from redisworld.world import Delivery, Stream, World

_AFTER_GRACE_S = 3.0
"""What a drain may take beyond the grace, to hand back and to leave: 25 s and these are below Kubernetes' 30 s."""
_LEAVING_S = 1.0

Loop = Reader | Timers | Reclaimer | Retention | Recovery | Unserved


class Worker:
    """Runs the workflows and steps of an application until ``stop`` is called.

    ``queues`` are the named queues whose steps it takes besides those of ``app``'s default one; None takes all that
    the application names. One that no step of ``app`` uses is warned of: a step may have been in it before.
    Raises InvalidInput for a world, an application or queues that are none.
    """

    def __init__(self, world: World, app: Workflows, *, queues: Iterable[str] | None = None) -> None:
        if not isinstance(world, World):
            raise InvalidInput(f"a Worker works in a World that is connected, not in {world!r:.100}")
        if not isinstance(app, Workflows):
            raise InvalidInput(f"a Worker takes the Workflows object of an application, not {app!r:.100}")
        install()  # here the application has been imported, and no body has run
        settings = world.settings
        self._world = world
        self._faults = world.connection.faults
        self._app = app
        self._stopping = False
        self._queues = _used(app) if queues is None else _named(queues)
        self.health = Health(blocked_limit_s=settings.max_blocked_loop_ms / 1000, block_s=settings.block_ms / 1000)
        self._step_slots = Slots("step", settings.concurrency)
        self._replay_slots = Slots("workflow", settings.replay_concurrency)
        self._bodies = Bodies(settings.concurrency, settings.max_payload)
        self._leases = LeaseKeeper(world, cancelled=self._bodies.stop)
        attempts, orchestrator = parts(tracer())
        self._attempts = attempts(world, self._bodies, self._leases, self._step_slots)
        self._orchestrator = orchestrator(
            world,
            app,
            self._attempts,
            step_slots=self._step_slots,
            replay_slots=self._replay_slots,
            queues=self._queues,
            stopping=lambda: self._stopping,
        )
        self._steps = StepConsumer(world, app, self._attempts, self._orchestrator)
        self._stopped = anyio.Event()
        self._intake: Intake | None = None

    @property
    def ends_within_s(self) -> float:
        """How long a drain may take, from the stop to the end of ``run``, whatever becomes of Redis."""
        return self._world.settings.grace_ms / 1000 + _AFTER_GRACE_S + _LEAVING_S

    @property
    def abandoned(self) -> int:
        """Threads of timed-out or handed-back bodies that go on: a process that must end cannot wait for them."""
        return self._bodies.abandoned

    def stop(self) -> None:
        """Begin to drain. A repeat changes nothing."""
        if not self._stopping:
            fact(logging.INFO, "draining", bodies=self._bodies.running)
        self._stopping = self.health.stopping = True
        self._step_slots.close()
        self._replay_slots.close()
        self._stopped.set()

    @property
    def streams(self) -> list[Stream]:
        """All streams this worker reads."""
        steps, workflows = self._streams()
        return [*steps, *workflows]

    async def run(self) -> None:
        """Work until ``stop``, then drain. Returns when nothing is held any more."""
        steps, workflows = self._streams()
        streams = [*steps, *workflows]
        try:
            await self._world.queue.ensure_groups(streams)
        except (RedisUnavailable, MalformedMessage) as error:  # a full Redis refuses; a reader makes what it misses
            fact(logging.WARNING, "groups not made yet", error=error)
        loops = self._loops(steps, workflows)
        slots = (self._step_slots, self._replay_slots)
        presence = Presence(self._world, self._app, self.health, slots=slots, streams=streams)
        fact(logging.INFO, "worker started", consumer=self._world.consumer, concurrency=self._step_slots.limit)
        for queue in sorted(self._queues - _used(self._app)):
            fact(logging.WARNING, "no step of the application uses this queue", queue=queue)
        with self._leases, contained_children():
            async with anyio.create_task_group() as background:
                background.start_soon(self.health.run, self._tick)
                background.start_soon(presence.run)
                with anyio.CancelScope() as held:
                    async with self._make_intake() as self._intake, anyio.create_task_group() as reading:
                        for loop in loops:
                            reading.start_soon(loop.run, lambda: self._stopping)
                        await self._stopped.wait()
                        reading.start_soon(self._world.queue.end_reads)
                        last = anyio.current_time() + self._world.settings.grace_ms / 1000 + _AFTER_GRACE_S
                        await self._let_bodies_finish()
                        # a Redis that swallows what it is sent must not hold up the end; leases do the rest
                        reading.cancel_scope.deadline = held.deadline = last
                if held.cancelled_caught or reading.cancel_scope.cancelled_caught:
                    fact(logging.WARNING, "grace is over and Redis does not answer, what is held waits for its lease")
                background.cancel_scope.cancel()
        self._orchestrator.close()
        with anyio.move_on_after(_LEAVING_S):
            await presence.leave()
            await self._leave(streams)
        fact(logging.INFO, "worker stopped", consumer=self._world.consumer)

    def _loops(self, steps: list[Stream], workflows: list[Stream]) -> tuple[Loop, ...]:
        """What brings work, and what looks after the store meanwhile."""
        slots = dict.fromkeys(steps, self._step_slots) | dict.fromkeys(workflows, self._replay_slots)
        return (
            Reader(self._world, steps, self._step_slots, self.health.loop("steps"), self._accept),
            Reader(self._world, workflows, self._replay_slots, self.health.loop("workflows"), self._accept),
            Timers(self._world, self.health.loop("timers")),
            Reclaimer(self._world, slots, self.health.loop("pending", may_be_silent=True), self._accept),
            Retention(self._world),
            Recovery(self._world, self._app, [*steps, *workflows]),
            Unserved(self._world),
        )

    def _make_intake(self) -> Intake:
        return Intake(
            self._world,
            steps=self._steps,
            orchestrator=self._orchestrator,
            attempts=self._attempts,
            leases=self._leases,
            step_slots=self._step_slots,
            replay_slots=self._replay_slots,
            stopping=lambda: self._stopping,
        )

    def _accept(self, deliveries: list[Delivery]) -> None:
        if self._intake is not None:
            self._intake.accept(deliveries)

    def _streams(self) -> tuple[list[Stream], list[Stream]]:
        settings = self._world.settings
        deployments = ["", settings.deployment] if settings.affinity else [""]
        steps, workflows = [], []
        for partition in self._world.partitions:
            for deployment in deployments:
                workflows.append((partition, partition.short(partition.workflows(deployment))))
                for queue in sorted(self._queues):
                    steps.append((partition, partition.short(partition.steps(queue, deployment))))
        return steps, workflows

    def _tick(self) -> None:
        self._leases.tick()
        self._step_slots.announce()
        self._replay_slots.announce()

    async def _let_bodies_finish(self) -> None:
        with anyio.move_on_after(self._world.settings.grace_ms / 1000):
            await self._bodies.wait_idle()
        if self._bodies.running:
            fact(logging.WARNING, "grace is over, handing back what runs", bodies=self._bodies.running)
        self._bodies.drain()
        self._world.connection.hurry()  # a drain must end, also without Redis

    async def _leave(self, streams: list[Stream]) -> None:
        for stream in streams:
            try:
                await self._world.upkeep.remove_consumer(stream, self._world.consumer)
            except RedisUnavailable as error:
                fact(logging.WARNING, "consumer not removed, another worker will", stream=stream[1], error=error)
                return


def _used(app: Workflows) -> frozenset[str]:
    """The queues of an application's steps, and the default one."""
    return frozenset({step.queue for step in app.steps.values()} | {""})


def _named(queues: Iterable[str]) -> frozenset[str]:
    if isinstance(queues, (str, bytes)) or not isinstance(queues, Iterable):
        raise InvalidInput(f"queues= of a Worker takes names of queues, like ['gpu'], not {queues!r:.100}")
    return frozenset({check_queue(queue) for queue in queues} | {""})
