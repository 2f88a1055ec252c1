"""Which fixtures do the script tests share?

- ``a`` and ``b``: two consumers on one namespace of a real Redis.
- ``theatre``: where scenes are played; one client for all tests of the session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from redisworld.spawn import PrivateRedis
from tests.scripts.driver import Consumer, consumers
from tests.scripts.stage import Theatre, theatre_on


@pytest.fixture
async def both(redis_url: str) -> AsyncIterator[list[Consumer]]:
    async with consumers(redis_url) as found:
        yield found


@pytest.fixture
def a(both: list[Consumer]) -> Consumer:
    return both[0]


@pytest.fixture
def b(both: list[Consumer]) -> Consumer:
    return both[1]


@pytest.fixture(scope="session")
def theatre(redis_server: PrivateRedis) -> Iterator[Theatre]:
    with theatre_on(redis_server.url) as theatre:
        yield theatre
