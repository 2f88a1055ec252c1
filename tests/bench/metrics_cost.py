"""What do metrics cost a worker? Its CPU per no-op step with and without them, in pairs.

``python -m tests.bench.metrics_cost`` lets one worker work off what waits, on the loop and with the garbage collector
of ``redisworld worker``, in this process and on a private Redis. All the while metrics listen to one slice of the
steps and not to the next; two neighbours are a pair, and which of them has metrics first alternates. So a machine that
gets slower, other processes and the beginning of the work favour neither. Times are CPU times of the process, all of
its threads. A slice is many batches long, since what belongs to steps at its ends may be counted to its neighbour.

``queued`` steps wait in their stream before it begins. What it took to dispatch them is added to each slice: there is
hardly anything to count in it. ``inline`` steps come one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from contextlib import ExitStack
from functools import partial

import anyio

from consumers.worker import Worker
from redisworld import Workflow, Workflows
from redisworld.cli import event_loop
from redisworld.metrics import Metrics
from redisworld.observe import Observation, Observers, PassCommitted, observing
from redisworld.replay import install
from redisworld.spawn import private_redis
from redisworld.world import World

AIM = 1.05
SLICE = 500
"""Steps."""

_RUNS = 16
"""They are long, so that none ends while it is measured: the replay at its end takes as much as a thousand steps."""
_FIRST_SLICES = 2
"""They are not counted: connections are made, scripts loaded, series made."""

wf = Workflows()


class Slices:
    """Measures slice after slice, and lets ``metrics`` listen to every other one."""

    def __init__(self, pairs: int, metrics: Observers) -> None:
        self.done = asyncio.Event()
        self.us: dict[bool, list[float]] = {False: [], True: []}
        """Per step of each slice, without and with."""
        order = [turn for pair in range(pairs) for turn in ((False, True) if pair % 2 else (True, False))]
        self._turns = iter([True, False][:_FIRST_SLICES] + order)
        self._measured = -_FIRST_SLICES
        self._metrics = metrics
        self._listening = ExitStack()
        self._left = SLICE
        self._turn = self._next()

    def body(self) -> None:
        """A body has begun."""
        self._left -= 1
        if not self._left and not self.done.is_set():
            self._left = SLICE
            if self._measured >= 0:
                self.us[self._turn].append((time.process_time() - self._began) * 1e6 / SLICE)
            self._measured += 1
            self._turn = self._next()

    def _next(self) -> bool:
        self._listening.close()
        turn = next(self._turns, None)
        if turn is None:
            self.done.set()
            return False
        if turn:
            self._listening.enter_context(observing(self._metrics))
        self._began = time.process_time()
        return turn


_slices: list[Slices] = []


@wf.step
async def noop() -> None:
    """Does nothing but count."""
    _slices[-1].body()


@wf.step(queue="later")
async def queued_noop() -> None:
    """The same, of a queue that a worker may leave alone."""
    _slices[-1].body()


@wf.workflow
async def wide(steps: int) -> None:
    """Steps that come as messages."""
    await asyncio.gather(*(queued_noop() for _ in range(steps)))


@wf.workflow
async def chain(steps: int) -> None:
    """Inline steps, one after the other."""
    for _ in range(steps):
        await noop()


PATHS: dict[str, Workflow[[int], None]] = {"queued": wide, "inline": chain}


async def dispatched(world: World, runs: int) -> float:
    """All steps of so many runs are in their streams; the CPU that took, s."""
    worker, left = Worker(world, wf, queues=()), runs

    def watch(seen: Observation) -> None:
        nonlocal left
        if isinstance(seen, PassCommitted):
            left -= 1
            if not left:
                worker.stop()

    began = time.process_time()
    with observing(watch):
        await worker.run()
    return time.process_time() - began


async def measure(path: str, pairs: int) -> None:
    """Print what the pairs say."""
    with private_redis() as server:
        async with World.connect(server.url) as world:
            steps = SLICE * (2 * pairs + _FIRST_SLICES) * 5 // 4
            for _ in range(_RUNS):
                await world.start(PATHS[path], steps // _RUNS)
            before_us = 1e6 * await dispatched(world, _RUNS) / steps if path == "queued" else 0.0
            metrics = Metrics(workflows=wf.workflows, steps=wf.steps)
            slices = Slices(pairs, metrics.observers)
            _slices[:] = [slices]
            worker = Worker(world, wf)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.run)
                await slices.done.wait()
                worker.stop()
    without, having = ([before_us + us for us in slices.us[listening]] for listening in (False, True))
    low, median, high = statistics.quantiles(map(_ratio, without, having), n=4)
    more = statistics.median(b - a for a, b in zip(without, having, strict=True))
    print(
        f"{path}: {statistics.median(without):.1f} us of CPU a step without metrics, {statistics.median(having):.1f} "
        f"with; in {pairs} pairs {more:+.1f} us, ratio {median:.3f} (quartiles {low:.3f} to {high:.3f}), aim {AIM}",
        flush=True,
    )


def _ratio(without: float, having: float) -> float:
    return having / without


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=100, help=f"of slices of {SLICE} steps (default: 100)")
    parser.add_argument("--path", choices=PATHS, action="append", help="how steps come to the worker (default: both)")
    parser.add_argument("--uvloop", action=argparse.BooleanOptionalAction, help="default: where it is installed")
    given = parser.parse_args()
    install()
    for path in given.path or PATHS:
        event_loop.run(partial(measure, path, given.pairs), uvloop=given.uvloop)


if __name__ == "__main__":
    main()
