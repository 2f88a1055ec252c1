"""What happens when one reply, or one request, between a worker and Redis is lost? (A05, promise 1)

One worker works through a proxy; the client and the bodies' notes do not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest
import redis

from redisworld import Settings, Workflows, World
from redisworld.events import EventKind
from redisworld.spawn import private_redis
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.processes import Workers, eventually, running
from tests.chaos.proxy import Proxy, preload, proxy, script
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio

LEASE_MS = 1_000

ignorant = Workflows()
"""An application that knows none of the names."""


class Place(NamedTuple):
    redis: redis.Redis
    url: str
    proxy: Proxy
    workers: Workers


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A Redis with the scripts loaded and a proxy before it; no worker yet."""
    with (
        private_redis(allow_wheel=True) as server,
        proxy(server.url) as between,
        redis.Redis.from_url(server.url) as raw,
        running(between.url, tmp_path_factory.mktemp("replies")) as workers,
    ):
        preload(raw)
        yield Place(raw, server.url, between, workers)


@pytest.fixture(scope="module")
def place(bare: Place) -> Place:
    """The same with a worker behind the proxy."""
    bare.workers.start(lease_ms=LEASE_MS, chunk_steps=2, env={"CHAOS_REDIS": bare.url})
    return bare


@pytest.fixture
async def world(place: Place) -> AsyncIterator[World]:
    async with World.connect(settings=Settings(url=place.url, partitions=2, lease_ms=LEASE_MS)) as connected:
        yield connected


COMPLETE, CLAIM, COMMIT = script("complete_many"), script("claim_many"), script("commit_pass")
LOAD, PROMOTE = script("load_run"), script("promote_due")

DIAMOND = (chaos_app.diamond, (), ["a", "b", "c", "d"])
TWO = (chaos_app.two_notes, (), ["x", "y"])
JOIN = (chaos_app.fan_out_then_join, (6,), "join 6")
SLEPT = (chaos_app.slept, (0.3,), "after")
RETRIED = (chaos_app.retried, (), "r")
NOTHING = (chaos_app.nothing, (), None)

CASES: dict[str, tuple[tuple[bytes, ...], Any]] = {
    "complete, inline or queued": ((COMPLETE, b"completed"), DIAMOND),
    "complete and start the next, inline": ((COMMIT, b"did", b"inline"), TWO),
    "complete and end, inline": ((COMMIT, b"did", b"run_completed"), TWO),
    "complete, queued": ((COMPLETE, b"completed"), JOIN),
    "complete, retrying": ((COMPLETE, b"retrying"), RETRIED),
    "claim": ((CLAIM,), JOIN),
    "first commit": ((COMMIT,), TWO),
    "first commit, first chunk": ((COMMIT,), JOIN),
    "first commit, ends": ((COMMIT,), NOTHING),
    "commit with an inline step": ((COMMIT, b"inline"), TWO),
    "commit that ends": ((COMMIT, b"run_completed"), DIAMOND),
    "commit with a wait": ((COMMIT, b"wait"), SLEPT),
    "load": ((LOAD,), DIAMOND),
    "promote": ((PROMOTE,), SLEPT),
}


@pytest.mark.parametrize("way", ["reply", "request"])
@pytest.mark.parametrize("case", CASES)
async def test_a_lost_call_is_asked_again_and_no_body_runs_twice(
    place: Place, world: World, case: str, way: str
) -> None:
    """A05: its body runs once, also where the request itself is lost: it is asked again within the lease."""
    needles, (workflow, arguments, expected) = CASES[case]
    run_id = f"{way}-{case}".replace(" ", "-").replace(",", "")
    if case != "promote":
        needles = (*needles, run_id.encode())
    fault = place.proxy.lose_reply(*needles) if way == "reply" else place.proxy.lose_request(*needles)
    began = time.monotonic()
    run = await world.start(workflow, *arguments, run_id=run_id)
    assert await run.result(timeout=10) == expected
    took = time.monotonic() - began
    assert fault.hits == 1, "the fault never happened"
    await settled(place.redis, timeout=5)
    assert set(notes(place.redis, run_id).values()) <= {1}
    log = logged(place.redis, run_id)
    tries = {"complete, retrying": 2}.get(case) or (2 if workflow is chaos_app.retried else 1)
    assert max((attempt for _, attempt in log[EventKind.STEP_STARTED]), default=0) <= tries
    assert took < 6
    invariants.check(place.redis, chaos_app.wf)


@pytest.mark.parametrize("what", ["step", "workflow"])
async def test_a_read_whose_reply_is_lost_comes_back_after_a_lease(place: Place, world: World, what: str) -> None:
    """The entries are pending under us and nobody knows: the only worker there is must take them from itself."""
    run_id = f"lost-read-{what}"
    needles = (run_id.encode(), b"kind", what.encode(), b"msg")
    fault = place.proxy.lose_answer(*needles)
    run = await world.start(chaos_app.fan_out_then_join, 6, run_id=run_id)
    assert await run.result(timeout=10) == "join 6"
    assert fault.hits == 1
    await settled(place.redis, timeout=5)
    assert set(notes(place.redis, run_id).values()) == {1}
    assert {attempt for _, attempt in logged(place.redis, run_id)[EventKind.STEP_STARTED]} == {1}
    invariants.check(place.redis, chaos_app.wf)


@pytest.mark.parametrize("way", ["reply", "request"])
async def test_a_lost_start_starts_once(place: Place, world: World, way: str) -> None:
    run_id = f"start-{way}"
    needles = (script("start_many"), run_id.encode())
    fault = place.proxy.lose_reply(*needles) if way == "reply" else place.proxy.lose_request(*needles)
    async with World.connect(settings=Settings(url=place.proxy.url, partitions=2)) as behind:
        run = await behind.start(chaos_app.two_notes, run_id=run_id)
        assert await run.result(timeout=10) == ["x", "y"]
    assert fault.hits == 1
    assert len(logged(place.redis, run_id)[EventKind.RUN_CREATED]) == 1


async def test_a_lost_cancel_is_one_request(place: Place, world: World) -> None:
    run = await world.start(chaos_app.slept, 30.0, run_id="lost-cancel")
    fault = place.proxy.lose_reply(script("cancel_run"), b"lost-cancel")
    async with World.connect(settings=Settings(url=place.proxy.url, partitions=2)) as behind:
        await behind.cancel("lost-cancel")
    assert fault.hits == 1
    with pytest.raises(Exception, match="cancelled"):
        await run.result(timeout=5)
    assert len(logged(place.redis, "lost-cancel")[EventKind.CANCEL_REQUESTED]) == 1
    await settled(place.redis)


async def test_all_kinds_of_replies_are_lost_one_after_the_other(place: Place, world: World) -> None:
    """Every fifth call of each script, over and over, while 20 runs are at work."""
    scripts_hurt = (COMPLETE, CLAIM, COMMIT, LOAD, PROMOTE)
    stop = asyncio.Event()

    async def hurt() -> None:
        number = 0
        while not stop.is_set():
            place.proxy.disarm()
            needle = scripts_hurt[number % len(scripts_hurt)]
            (place.proxy.lose_reply if number % 2 else place.proxy.lose_request)(needle)
            number += 1
            await asyncio.sleep(0.05)

    hurting = asyncio.create_task(hurt())
    kinds = [DIAMOND, TWO, JOIN, SLEPT, RETRIED]
    runs = [
        (await world.start(kinds[n % 5][0], *kinds[n % 5][1], run_id=f"many-{n}"), kinds[n % 5][2]) for n in range(20)
    ]
    try:
        for run, expected in runs:
            assert await run.result(timeout=20) == expected
    finally:
        stop.set()
        await hurting
        place.proxy.disarm()
    await settled(place.redis)
    for run, _ in runs:
        assert set(notes(place.redis, run.run_id).values()) <= {1}, run.run_id
    invariants.check(place.redis, chaos_app.wf)


@pytest.mark.parametrize("way", ["reply", "request"])
async def test_a_lost_hand_back_is_handed_back_once(bare: Place, world: World, way: str) -> None:
    """A worker that does not know the workflow moves its message; the one that knows it gets it once."""
    run_id = f"moved-{way}"
    needles = (script("move_message"), run_id.encode())
    fault = bare.proxy.lose_reply(*needles) if way == "reply" else bare.proxy.lose_request(*needles)
    knows = bare.workers.started[0]
    knows.freeze()
    await eventually(lambda: not bare.redis.info("clients")["blocked_clients"], what="no read of the frozen worker")
    other = bare.workers.start(app="tests.chaos.test_faults_replies:ignorant", lease_ms=60_000)
    try:
        run = await world.start(chaos_app.two_notes, run_id=run_id)
        await eventually(lambda: fault.hits, timeout=5)
        await asyncio.sleep(0.5)
    finally:
        other.kill()
        knows.thaw()
    assert fault.hits == 1
    assert await run.result(timeout=10) == ["x", "y"]
    await settled(bare.redis)
    assert notes(bare.redis, run_id) == {"x": 1, "y": 1}
    invariants.check(bare.redis, chaos_app.wf)
