"""Is docs/testing.md true? Its code runs as it stands there."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from redisworld import World
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


def test_each_ending_of_the_url_is_a_redis_of_its_own(names: dict[str, Any]) -> None:
    async def runs(url: str) -> int:
        async with World.connect(url) as world:
            await world.start(names["fulfil"], "42", run_id="one", delay="1h")
            return len([key async for key in world.connection.commands.scan_iter("*:run:one")])

    async def scene() -> list[int]:
        return [await runs(f"redisworld://embedded/{ending}") for ending in ("a", "b")]

    assert asyncio.run(scene()) == [1, 1]
