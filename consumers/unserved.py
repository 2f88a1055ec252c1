"""What becomes of runs whose deployment no live worker serves? (design section 11)

With affinity their messages wait in streams of their own. Once they have waited there for ``deployment_grace_ms`` while
other workers of the namespace live, their runs fail: somebody has taken the old workers away too soon, and nobody would
notice. Where no worker lives at all nothing fails: that is an outage, and it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from consumers.handback import bury, where
from consumers.pauses import Pauses, rest
from redisworld import clock
from redisworld.errors import MalformedMessage, RunNotFound
from redisworld.facts import fact
from redisworld.world import Delivery, Stream, World
from redisworld.world.pinned import Pinned, pinned_to
from redisworld.world.serving import Serving, read_serving

_LOOKS = 10
"""In a grace: so late at most a deployment is found to be unserved."""
_LONGEST_S = 60.0


class Unserved:
    """Fails runs of deployments that have been unserved for too long, counted from when this worker first saw that."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._grace_ms = world.settings.deployment_grace_ms
        self._since: dict[str, float] = {}

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Look until ``stopping``; not at all where messages may wait for ever."""
        pauses, every_s = Pauses(self._world.connection.faults), min(_LONGEST_S, self._grace_ms / 1000 / _LOOKS)
        while self._grace_ms and await rest(every_s, stopping):
            try:
                await self.tick()
                pauses.over()
            except Exception as error:  # the top of a loop
                self._since.clear()  # who lives is not known meanwhile
                await pauses.after("deployments not looked at, trying again", error)

    async def tick(self) -> int:
        """Look which deployments are unserved, and fail what has waited too long; how many messages went.

        Raises RedisUnavailable.
        """
        serving, now = await read_serving(self._world), clock.monotonic()
        found = {name: await Pinned(self._world, name).waiting(serving) for name in _unserved(serving)}
        self._since = {name: self._since.get(name, now) for name, waiting in found.items() if waiting}
        over = [name for name, since in self._since.items() if now - since >= self._grace_ms / 1000]
        return sum([await self._fail(name, found[name], serving) for name in over])

    async def _fail(self, deployment: str, streams: Iterable[Stream], serving: Serving) -> int:
        done = 0
        try:
            async for page in Pinned(self._world, deployment).take(streams, serving):
                for delivery in page:
                    await self._end(delivery, deployment)
                done += len(page)
        except MalformedMessage as error:  # a key there is not ours: other deployments are looked at all the same
            self._world.connection.faults.warn(
                "unserved", "deployment not looked at", deployment=deployment, level=logging.ERROR, error=error
            )
        return done

    async def _end(self, delivery: Delivery, deployment: str) -> None:
        """The first message of a run ends it; the others have nothing to do any more."""
        run_id = delivery.text("run")
        if await self._is_over(run_id):
            await self._world.deliveries.settle(delivery)
            fact(logging.DEBUG, "run is over", where(delivery))
            return
        await bury(
            self._world,
            delivery,
            run_id=run_id,
            reason="deployment_mismatch",
            code="DEPLOYMENT_MISMATCH",
            detail=f"the run belongs to deployment {deployment!r}, and no live worker served that"
            f" for {self._grace_ms / 1000:g} s",
        )

    async def _is_over(self, run_id: str) -> bool:
        try:
            return (await self._world.row(run_id)).status.terminal
        except (RunNotFound, MalformedMessage):  # the letter says so
            return False


def _unserved(serving: Serving) -> set[str]:
    """Deployments with streams of their own that no live worker reads, while some worker reads something."""
    read = {stream for worker in serving.workers.values() for stream in worker.streams}
    if not read:
        return set()
    return set(map(pinned_to, serving.streams)) - set(map(pinned_to, read)) - {""}
