"""Which situations does docs/operations.md tell of? Each is brought about for real, and lasts while it is looked at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from redisworld import Settings, World
from redisworld.runs import Status
from redisworld.world import read_state
from redisworld.world.waiting import read_standing
from tests.apps import shop_app
from tests.integration.cli_process import WAIT_S, worker

SHOP, OTHER = "tests.apps.shop_app", "tests.apps.empty_app"
_FOR_EVER_S = 3_600


def start(url: str, workflow: Any, *args: Any, run_id: str, **settings: Any) -> None:
    """Start a run."""

    async def begin() -> None:
        async with World.connect(settings=Settings(url=url, **settings)) as world:
            await world.start(workflow, *args, run_id=run_id)

    asyncio.run(begin())


def until_waits(url: str, run_id: str, *whats: str) -> None:
    """Return when a run waits for exactly these."""

    async def look() -> None:
        deadline = time.monotonic() + WAIT_S
        async with World.connect(settings=Settings(url=url)) as world:
            while True:
                found = [what.what for what in (await read_standing(world, run_id)).waits_for]
                if found == list(whats):
                    return
                assert time.monotonic() < deadline, f"run {run_id} waits for {found}"
                await asyncio.sleep(0.05)

    asyncio.run(look())


def until_ended(url: str, run_id: str) -> None:
    """Return when a run has ended."""
    until_waits(url, run_id)


def until_worker_is_listed(url: str, count: int) -> None:
    """Return when so many workers say that they are ready, and none that it has something to do."""

    async def look() -> None:
        deadline = time.monotonic() + WAIT_S
        async with World.connect(settings=Settings(url=url)) as world:
            while True:
                workers = (await read_state(world)).workers
                idle = [w for w in workers if w.state == "ready" and not w.steps and not w.replays]
                if len(idle) == len(workers) == count:
                    return
                assert time.monotonic() < deadline, f"never {count} workers that are ready and have nothing to do"
                await asyncio.sleep(0.05)

    asyncio.run(look())


def miss_heartbeat(raw: redis.Redis) -> None:
    """Let the last heartbeat of all workers run out, as it does 15 s after a kill."""
    for key in raw.scan_iter(match="rw:{default}:worker:*"):
        raw.delete(key)


@contextmanager
def calm(url: str, raw: redis.Redis) -> Iterator[None]:
    """A worker that has done something, and has something to wait for."""
    with worker(url, app=SHOP):
        until_worker_is_listed(url, 1)
        start(url, shop_app.publish, "cat.png", run_id="publish-cat")
        until_ended(url, "publish-cat")
        start(url, shop_app.invite, "nobody@example.com", run_id="invite-3")
        until_ended(url, "invite-3")
        start(url, shop_app.remind, "buy milk", run_id="remind-1")
        until_waits(url, "remind-1", "timer")
        until_worker_is_listed(url, 1)  # a heartbeat may have come in the middle of all that
        yield


@contextmanager
def killed(url: str, raw: redis.Redis) -> Iterator[None]:
    """A worker was killed while it ran steps, and its heartbeat has run out."""
    with worker(url, app=SHOP) as process:
        until_worker_is_listed(url, 1)
        start(url, shop_app.publish, "cat.png", _FOR_EVER_S, run_id="publish-cat")
        _until_running(url, "publish-cat", 2)
        process.process.kill()
        process.process.wait()
        miss_heartbeat(raw)
        yield


def _until_running(url: str, run_id: str, count: int) -> None:
    async def look() -> None:
        deadline = time.monotonic() + WAIT_S
        async with World.connect(settings=Settings(url=url)) as world:
            while (await read_standing(world, run_id)).steps.get(Status.RUNNING) != count:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)

    asyncio.run(look())


@contextmanager
def letter(url: str, raw: redis.Redis) -> Iterator[None]:
    """Workers did not know a workflow, and waited no hour before they buried its message; those of now know it."""
    with worker(url, app=OTHER, REDISWORLD_REFUSED_LIMIT_MS="0"):
        start(url, shop_app.publish, "cat.png", run_id="publish-cat")
        until_waits(url, "publish-cat", "letter")
    miss_heartbeat(raw)
    with worker(url, app=SHOP):
        until_worker_is_listed(url, 1)
        yield


@contextmanager
def hook(url: str, raw: redis.Redis) -> Iterator[None]:
    """A run waits for a payload."""
    with worker(url, app=SHOP):
        start(url, shop_app.fulfil, "42", run_id="fulfil-42")
        until_waits(url, "fulfil-42", "hook")
        until_worker_is_listed(url, 1)
        yield


@contextmanager
def deployment(url: str, raw: redis.Redis) -> Iterator[None]:
    """A run belongs to a deployment whose workers are gone."""
    with worker(url, "--deployment", "v2", "--affinity", app=SHOP):
        until_worker_is_listed(url, 1)
        start(url, shop_app.publish, "cat.png", run_id="publish-cat", deployment="v1", affinity=True)
        yield


@contextmanager
def queue(url: str, raw: redis.Redis) -> Iterator[None]:
    """A step goes to a queue that no worker reads."""
    with worker(url, "--queue", "mail", app=SHOP):
        start(url, shop_app.film, "cats", run_id="film-1")
        until_waits(url, "film-1", "step")
        until_worker_is_listed(url, 1)
        yield


@contextmanager
def retry(url: str, raw: redis.Redis) -> Iterator[None]:
    """A step has failed and asked for an hour."""
    with worker(url, app=SHOP):
        start(url, shop_app.charge, "7", run_id="charge-7")
        until_waits(url, "charge-7", "retry")
        until_worker_is_listed(url, 1)
        yield


@contextmanager
def down(url: str, raw: redis.Redis) -> Iterator[None]:
    """The URL of the command is of a port that nobody listens on."""
    yield


SCENES: dict[str, Callable[[str, redis.Redis], Any]] = {
    "How is it doing?": calm,
    "A worker was killed": killed,
    "There are dead letters": letter,
    "Nobody resumes a hook": hook,
    "Nobody serves a deployment": deployment,
    "Nobody reads a queue": queue,
    "A retry is far away": retry,
    "Redis is down": down,
}
"""By the heading of the section."""
