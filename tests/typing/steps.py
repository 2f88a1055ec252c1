"""What does a type checker infer of steps and runs? mypy reads this file (test_types.py); nothing runs it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from redisworld import Backoff, Run, Workflow, Workflows, World, get_step_metadata, now, patched, sleep

wf = Workflows()


@dataclass
class Thumbnail:
    path: str


@wf.step
async def load(image: str, *, width: int = 64) -> Thumbnail:
    raise NotImplementedError


@wf.step
def count(image: str) -> int:
    raise NotImplementedError


@wf.step(max_retries=5, timeout=timedelta(minutes=2), queue="gpu", backoff=Backoff(first_ms=1))
async def sharpen(image: str) -> Thumbnail | None: ...


@wf.step(name="weigh")
def weigh(*images: str) -> dict[str, float]:
    raise NotImplementedError


@wf.step
async def store(image: str) -> None: ...


@wf.workflow
async def publish(image: str, width: int = 64) -> list[Thumbnail]:
    raise NotImplementedError


@wf.workflow(name="tidy")
async def tidy() -> None: ...


async def body() -> None:
    assert_type(await load("cat.png", width=1), Thumbnail)
    assert_type(await count("cat.png"), int)
    assert_type(await sharpen("cat.png"), Thumbnail | None)
    assert_type(await weigh("a", "b"), dict[str, float])
    assert_type(await asyncio.gather(load("a"), count("a")), tuple[Thumbnail, int])
    assert_type(await asyncio.gather(*(count(image) for image in "ab")), list[int])
    assert_type(await asyncio.gather(count("a"), return_exceptions=True), tuple[int | BaseException])
    assert_type(await asyncio.wait_for(load("a"), timeout=1), Thumbnail)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(load("a"))
    assert_type(task.result(), Thumbnail)
    await store("a")
    await sleep("1h")
    assert_type(patched("name"), bool)
    assert_type(now().year, int)


async def client(world: World) -> None:
    run = await world.start(publish, "cat.png", width=1)
    assert_type(run, Run[list[Thumbnail]])
    assert_type(await run.result(), list[Thumbnail])
    assert_type(await (await world.start(publish, "cat.png", run_id="r")).result(timeout=1), list[Thumbnail])
    assert_type(await world.start(tidy), Run[None])
    assert_type(world.run("r", publish), Run[list[Thumbnail]])
    assert_type(world.run("r"), Run[Any])
    assert_type(get_step_metadata().attempt, int)


async def wrong(world: World, untyped: Workflow[..., Any]) -> None:
    await load(7)  # type: ignore[arg-type]
    await load("a", 64)  # type: ignore[call-arg]  # width goes by name
    await load()  # type: ignore[call-arg]
    await count("a", height=1)  # type: ignore[call-arg]
    await sharpen(b"a")  # type: ignore[arg-type]
    await world.start(publish, 7)  # type: ignore[call-overload]
    await world.start(publish)  # type: ignore[call-overload]
    await world.start(publish, "a", height=1)  # type: ignore[call-arg]
    await world.start(untyped, 7)
    wf.step(retries=1)  # type: ignore[call-overload]
    wf.step(timeout=[1])  # type: ignore[call-overload]
    thumbnail: int = await load("a")  # type: ignore[assignment]
    del thumbnail


@wf.workflow  # type: ignore[arg-type]
def not_async() -> int:
    return 1
