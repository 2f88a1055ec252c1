"""Is docs/testing.md true? Its code runs as it stands there."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from redisworld import InvalidInput, Settings, World
from redisworld.testing import working
from redisworld.world.listing_hooks import hooks_of
from tests.integration.cli_process import ROOT

pytest.importorskip("fakeredis")

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)


@pytest.fixture
def names() -> dict[str, Any]:
    """What the blocks define, one after another."""
    found: dict[str, Any] = {"__name__": "testing_page"}
    for block in BLOCKS:
        exec(compile(block, "docs/testing.md", "exec"), found)
    return found


def test_the_test_on_the_page_passes_and_again_on_another_redis(names: dict[str, Any]) -> None:
    for _ in range(2):
        names["test_an_approved_order_is_shipped"]()


def test_a_test_that_fails_ends_at_once_with_its_own_error(names: dict[str, Any]) -> None:
    async def scene() -> None:
        async with working(names["wf"]) as world:
            await world.start(names["fulfil"], "42")  # its body waits for longer than a drain
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(asyncio.wait_for(scene(), 10))


def test_what_is_no_application_is_refused(names: dict[str, Any]) -> None:
    async def scene() -> None:
        async with working(names["fulfil"]):
            pass

    with pytest.raises(InvalidInput, match="not <workflow fulfil>"):
        asyncio.run(scene())


def test_the_same_test_works_on_a_real_redis(names: dict[str, Any], redis_url: str) -> None:
    async def scene() -> list[str]:
        settings = Settings(url=redis_url, namespace="mine", block_ms=50)
        async with working(names["wf"], settings=settings) as world:
            run = await world.start(names["fulfil"], "42", wait="10ms")
            while not await hooks_of(world, run.run_id):  # noqa: ASYNC110  # Redis sets no event
                await asyncio.sleep(0.01)
            await world.resume("order:42", False)
            return [await run.result(timeout="10s"), world.settings.namespace]

    assert asyncio.run(scene()) == ["refused", "mine"]


def test_each_ending_of_the_url_is_a_redis_of_its_own(names: dict[str, Any]) -> None:
    async def runs(url: str) -> int:
        async with World.connect(url) as world:
            await world.start(names["fulfil"], "42", run_id="one", delay="1h")
            return len([key async for key in world.connection.commands.scan_iter("*:run:one")])

    async def scene() -> list[int]:
        return [await runs(f"redisworld://embedded/{ending}") for ending in ("a", "b")]

    assert asyncio.run(scene()) == [1, 1]
