"""Do runs that steps have started know where they come from, and are they found by it? (design section 12)"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from redisworld import Settings, Workflows, World, get_step_metadata
from tests.conformance.conftest import Connect

pytestmark = pytest.mark.anyio

wf = Workflows()
world_of: dict[str, World] = {}


@wf.step
async def begin(depth: int) -> str:
    """Starts the next run below this one, once whatever its attempts."""
    run = await world_of["step"].start(nested, depth - 1, run_id=f"below-{get_step_metadata().step_id}")
    return run.run_id


@wf.step
def begin_in_a_thread(url: str) -> str:
    async def start() -> str:
        async with World.connect(url) as world:
            return (await world.start(nested, 0)).run_id

    return asyncio.run(start())


@wf.workflow
async def nested(depth: int) -> str:
    return await begin(depth) if depth else ""


@wf.workflow
async def threaded(url: str) -> str:
    return await begin_in_a_thread(url)


async def listed(world: World, root: str, **options: Any) -> list[str]:
    return [run.run_id for run in (await world.listing.runs(root=root, **options)).runs]


@pytest.mark.parametrize("max_inline_steps", [0, 1])
async def test_all_runs_below_a_run_have_it_as_their_root_and_are_found_by_it(
    connect: Connect, max_inline_steps: int
) -> None:
    async with connect(app=wf, max_inline_steps=max_inline_steps) as consumers:
        world = world_of["step"] = consumers.world
        top, other = await world.start(nested, 3, run_id="top"), await world.start(nested, 1, run_id="other")
        await consumers.drain()
        child = await top.result(timeout=5)
        grandchild = await world.run(child).result(timeout=5)
        last = await world.run(grandchild).result(timeout=5)

        assert {(await world.row(id)).root_run_id for id in (child, grandchild, last)} == {"top"}
        assert (await top.row()).root_run_id == ""
        assert sorted(await listed(world, "top")) == sorted([child, grandchild, last])
        assert await listed(world, "other") == [await other.result(timeout=5)]
        assert await listed(world, child) == []
        assert await listed(world, "top", workflow="threaded") == []


async def test_a_world_in_a_thread_of_the_same_namespace_counts_and_one_of_another_does_not(
    connect: Connect, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(app=wf) as consumers:
        run = await consumers.world.start(threaded, redis_url, run_id="top")
        await consumers.drain()
        assert await listed(consumers.world, "top") == [await run.result(timeout=5)]

        async with World.connect(settings=Settings(url=redis_url, namespace="elsewhere")) as elsewhere:
            world_of["step"] = elsewhere
            run = await consumers.world.start(nested, 1, run_id="across")
            await consumers.drain()
            with anyio.fail_after(5):
                assert (await elsewhere.row(await run.result())).root_run_id == ""
