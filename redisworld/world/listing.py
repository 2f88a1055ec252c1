"""Which runs are there?"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from redisworld.errors import InvalidInput
from redisworld.runs import OPEN, Status
from redisworld.world.listing_runs import RunPage, page_of_runs
from redisworld.world.replies import text_of
from redisworld.world.scanning import pages

if TYPE_CHECKING:
    from redisworld.world.world import World


class Listing:
    """The runs of a namespace, from the indexes of its partitions."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def runs(
        self,
        *,
        statuses: Collection[Status] = (),
        workflow: str = "",
        deployment: str = "",
        attributes: Mapping[str, str] | None = None,
        root: str = "",
        since: int = 0,
        limit: int = 50,
        after: str = "",
    ) -> RunPage:
        """A page of runs, newest first, as ``page_of_runs`` reads it; its ``after`` begins the next one.

        Raises InvalidInput for a limit below 1, a ``since`` that is no number, what is no status, and an ``after`` that
        is not listed.
        """
        if not isinstance(limit, int) or limit < 1:
            raise InvalidInput(f"limit={limit!r}: a page has 1 run at least")
        if not isinstance(since, int):
            raise InvalidInput(f"since={since!r}: a moment in whole epoch ms, as the times of a run are")
        if wrong := [status for status in statuses if status not in tuple(Status)]:
            raise InvalidInput(f"{wrong[0]!r} is no status: give several, like statuses=[Status.FAILED]")
        return await page_of_runs(
            self._world, statuses=statuses, workflow=workflow, deployment=deployment, attributes=attributes, root=root,
            since=since, limit=limit, after=after,
        )  # fmt: skip

    async def open(self) -> AsyncGenerator[str, None]:
        """Ids of all pending and running runs, in no order, read in pages.

        Each run that is open all the while comes once; one that starts or ends meanwhile may come or not.
        """
        connection = self._world.connection
        for partition in self._world.partitions:
            seen: set[str] = set()
            for status in OPEN:  # pending first: a run that starts meanwhile is in the second
                page = partial(connection.commands.zscan, partition.index(f"status:{status}"), count=1000)
                async for members in pages(connection, "read_open_runs", page):
                    for member, _ in members:
                        if (run_id := text_of(member)) not in seen:
                            seen.add(run_id)
                            yield run_id

    async def count_open(self) -> int:
        """How many runs are pending or running."""
        keys = [partition.index(f"status:{status}") for partition in self._world.partitions for status in OPEN]
        return sum(await self._world.connection.pipe("count_open_runs", lambda pipe: [pipe.zcard(key) for key in keys]))
