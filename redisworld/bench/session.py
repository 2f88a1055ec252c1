"""What does every workload need? A Redis, a namespace of its own on it, slots for marks, a meter, and workers."""

from __future__ import annotations

import asyncio
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from redisworld.bench import app
from redisworld.bench.marks import Marks, NotMeasured, made
from redisworld.bench.meter import Meter, metering
from redisworld.bench.processes import Process, running
from redisworld.errors import InvalidInput
from redisworld.keys import PREFIX
from redisworld.settings import Settings
from redisworld.spawn import private_redis
from redisworld.world import Run, World

WORKED = "redisworld.bench.app:wf"
"""What the measured workers run."""

_WARM_UP = 16
_READY_S = 60.0
_LOOK_S = 1.0
"""How often a wait looks whether the measured processes are still there."""
_SPARE_SLOTS = 4_096
"""For warming up, whatever the workload asks for."""
_PAUSE_S = (0.002, 0.006)
"""Between single messages: long enough for the worker to block again, and never in step with it."""

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, of how much."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a bench as a whole was asked for. ``url`` None starts a private redis-server for each workload."""

    url: str | None = None
    workers: int = 1
    partitions: int | None = None
    metrics: bool = False
    """Whether workers serve /metrics, which costs them some CPU per step."""
    timeout_s: float = 300.0


class Session:
    """What a workload is given; get one from ``opened``."""

    def __init__(
        self, options: Options, world: World, meter: Meter, marks: Marks, folder: Path, progress: Progress
    ) -> None:
        self.options = options
        self.world = world
        self.settings = world.settings
        self.meter = meter
        self.marks = marks
        self.progress = progress
        self._folder = folder
        self._processes: list[Process] = []
        self._random = random.Random(1)

    def now_ns(self) -> int:
        """The clock that bodies mark with."""
        return time.monotonic_ns()

    async def pause(self) -> None:
        """Let an idle worker become idle again."""
        await asyncio.sleep(self._random.uniform(*_PAUSE_S))

    async def started(self, first: int, count: int, *, label: str = "", poll_s: float = 0.0005) -> list[int]:
        """When each of these bodies started. Raises NotMeasured."""
        return await self.marks.wait(
            first,
            count,
            timeout_s=self.options.timeout_s,
            poll_s=poll_s,
            alive=self.check,
            progress=(lambda done: self.progress(label, done, count)) if label else lambda done: None,
        )

    async def finished(self, run: Run[Any]) -> None:
        """Return when a run has completed. Raises NotMeasured when it does not come to its end, RunUnsuccessful."""
        waiting = asyncio.ensure_future(run.result(timeout=self.options.timeout_s))
        try:
            while not (await asyncio.wait({waiting}, timeout=_LOOK_S))[0]:
                self.check()
            await waiting
        except TimeoutError as error:
            raise NotMeasured(f"run {run.run_id} did not end within {self.options.timeout_s:.0f} s") from error
        finally:
            waiting.cancel()

    def check(self) -> None:
        """Raises NotMeasured when a measured process has ended by itself."""
        for process in self._processes:
            process.check()

    @asynccontextmanager
    async def workers(self, *, warm: bool = True, **environment: str) -> AsyncIterator[list[Process]]:
        """The workers of a bench, warmed up: connected, and with every script loaded."""
        arguments = ["redisworld", "worker", WORKED, "--log-level", "warning", "--metrics-host", "127.0.0.1"]
        arguments += ["--metrics-port", "0" if self.options.metrics else "none"]

        async def warm_up(slot: int) -> None:
            await self.finished(await self.world.start(app.fanout, slot, 1))
            seen: set[int] = set()
            while len(seen) < self.options.workers:  # none of them may begin in the middle of what is measured
                run = await self.world.start(app.who, _WARM_UP)
                await self.finished(run)
                seen |= set(await run.result())
            await self.finished(await self.world.start(app.sequence, self.marks.give(3), 3))

        async with self.working(
            arguments, warm_up=warm_up if warm else None, count=self.options.workers, **environment
        ) as processes:
            yield processes

    @asynccontextmanager
    async def working(
        self,
        arguments: Sequence[str],
        *,
        warm_up: Callable[[int], Awaitable[None]] | None,
        count: int,
        **environment: str,
    ) -> AsyncIterator[list[Process]]:
        """So many processes; ``warm_up`` is called with the slot that tells when one is there."""
        s = self.settings
        # not on the command line: a URL may hold a password, and everybody can read command lines
        given = {"REDISWORLD_URL": s.url, "REDISWORLD_NAMESPACE": s.namespace}
        given |= {"REDISWORLD_CONCURRENCY": str(s.concurrency)} | environment
        processes = [
            Process(arguments, marks=self._folder / "marks", log=self._folder / "log", environment=given)
            for _ in range(count)
        ]
        with running(processes):
            self._processes = processes
            try:
                if warm_up is not None:
                    await self._warmed(warm_up)
                yield processes
            finally:
                self._processes = []

    async def _warmed(self, warm_up: Callable[[int], Awaitable[None]]) -> None:
        slot = self.marks.give(1)
        warming = asyncio.ensure_future(warm_up(slot))
        try:
            await self.marks.wait(slot, 1, timeout_s=_READY_S, alive=self.check)
            async with asyncio.timeout(_READY_S):
                await warming
        except TimeoutError as error:
            raise NotMeasured(f"the workers were not ready within {_READY_S:.0f} s") from error
        finally:
            warming.cancel()


@asynccontextmanager
async def opened(options: Options, *, slots: int, progress: Progress, concurrency: int = 64) -> AsyncIterator[Session]:
    """A session with so many slots. Its keys are deleted at the end, and what it started is stopped."""
    folder = Path(tempfile.mkdtemp(prefix="rw-bench-"))
    try:
        with nullcontext(options.url) if options.url else _private() as url:
            settings = Settings(
                url=url,
                namespace=f"bench-{secrets.token_hex(4)}",  # on a given Redis it must not meet the workers of real runs
                concurrency=concurrency,
                partitions=options.partitions,
            )
            with made(folder / "marks", slots + _SPARE_SLOTS) as marks:
                async with World.connect(settings=settings) as world:
                    if world.connection.clustered:
                        raise InvalidInput("a bench counts what one server does: give it one Redis, not a cluster")
                    try:
                        async with metering(world) as meter:
                            yield Session(options, world, meter, marks, folder, progress)
                    finally:
                        if options.url:
                            await _clear(world)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _private() -> Iterator[str]:
    with private_redis() as server:
        yield server.url


async def _clear(world: World) -> None:
    """Delete what the bench left on a Redis that goes on living."""
    commands, namespace = world.connection.commands, world.settings.namespace
    for pattern in (f"{PREFIX}{{{namespace}:*", f"{PREFIX}{{{namespace}}}:*", f"{PREFIX}{namespace}:*"):
        found = [key async for key in commands.scan_iter(match=pattern, count=1_000)]
        for start in range(0, len(found), 1_000):
            await commands.unlink(*found[start : start + 1_000])
