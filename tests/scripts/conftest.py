"""Which fixtures do the script tests share? ``a`` and ``b``: two consumers on one namespace of a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.scripts.driver import Consumer, consumers


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
