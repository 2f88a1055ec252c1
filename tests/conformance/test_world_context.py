"""Which error does a user see who works inside ``async with World.connect(...)``?"""

from __future__ import annotations

import pytest

from redisworld import RunNotFound, Settings, World

pytestmark = pytest.mark.anyio


async def test_an_error_raised_inside_the_context_arrives_as_itself(redis_url: str) -> None:
    with pytest.raises(RunNotFound):
        async with World.connect(settings=Settings(url=redis_url)) as world:
            await world.row("no-such-run")
