"""Which fixtures do the conformance tests share?

``connect``: the consumers of a process, driven by hand. ``a`` and ``b``: two Worlds that only call scripts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import redis

from tests.conformance.harness import Consumers, connected
from tests.scripts.driver import Consumer, consumers

Connect = Callable[..., AbstractAsyncContextManager[Consumers]]


@pytest.fixture
def connect(redis_url: str, raw: redis.Redis) -> Connect:
    """``async with connect(lease_ms=500) as consumers``."""

    def connecting(**settings: Any) -> AbstractAsyncContextManager[Consumers]:
        return connected(redis_url, raw, **settings)

    return connecting


@pytest.fixture
async def both(redis_url: str) -> AsyncIterator[list[Consumer]]:
    """Two Worlds, each with connections of its own, on one namespace and one pinned clock."""
    async with consumers(redis_url) as found:
        yield found


@pytest.fixture
def a(both: list[Consumer]) -> Consumer:
    return both[0]


@pytest.fixture
def b(both: list[Consumer]) -> Consumer:
    return both[1]
