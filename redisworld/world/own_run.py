"""What may a running step write to its run, besides its outcome? Attributes and output streams."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redisworld.attributes import Changes
from redisworld.metadata import current_step

if TYPE_CHECKING:
    from redisworld.world.world import World


class _Place:
    """Where this attempt is in one output stream: one write at a time, so that a repeated one is known by its index."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.index = 0


class OwnRun:
    """The run of a step, as one attempt of it may write to it."""

    def __init__(
        self, world: World, *, run_id: str, step_id: str, attempt: int, token: str, root_run_id: str = ""
    ) -> None:
        self.run_id = run_id
        self.root_run_id = root_run_id or run_id
        """The run from which all comes that is started below it."""
        self.namespace = world.settings.namespace
        self.step_id = step_id
        self.attempt = attempt
        self.chunk_bytes = world.settings.output_chunk_bytes
        """The most bytes of one chunk."""
        self._world = world
        self._token = token
        self._places: dict[tuple[str, str], _Place] = {}

    async def set_attributes(self, changes: Changes) -> None:
        """Set attributes of the run, at once. Raises as Attributes.set."""
        await self._world.attributes.set(self.run_id, changes, writer=self.step_id)

    async def write(self, run_id: str, name: str, chunks: list[bytes], *, close: bool = False) -> None:
        """Add chunks to an output stream, of this run or of one that handed its writable over. Raises as Outputs.write.

        The index goes up whatever comes of it: what was not acknowledged may have been written all the same.
        """
        place = self._places.setdefault((run_id, name), _Place())
        async with place.turn:
            index, place.index = place.index, place.index + len(chunks)
            await self._world.outputs.write(
                run_id,
                name,
                chunks,
                step_id=self.step_id,
                attempt=self.attempt,
                # The claim token fences what runs on after it lost its lease. Another run's script cannot see it.
                token=self._token if run_id == self.run_id else "",
                index=index,
                close=close,
            )


def current_run() -> OwnRun | None:
    """The run of the step this code runs in, or None outside of one."""
    own_run = getattr(current_step.get(), "own_run", None)  # of the consumer's scope
    return own_run if isinstance(own_run, OwnRun) else None
