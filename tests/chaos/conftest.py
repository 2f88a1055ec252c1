"""Which fixtures do the chaos tests share?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from redisworld import Settings, World
from tests.apps import chaos_app
from tests.chaos.processes import Workers, running

Connect = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    """Worker processes that end with the test."""
    with running(redis_url, tmp_path) as started:
        yield started


@pytest.fixture
def connect(redis_url: str) -> Connect:
    """``async with connect(lease_ms=500) as world``: a client with the settings that Workers.start has."""

    @asynccontextmanager
    async def connected(**settings: Any) -> AsyncIterator[World]:
        options = {
            "url": redis_url,
            "lease_ms": 1_000,
            "reclaim_every_ms": 200,
            "block_ms": 500,
            "partitions": 2,
            "timer_poll_ms": 500,
        } | settings
        async with World.connect(settings=Settings(**options)) as world:
            yield world

    return connected


@pytest.fixture(autouse=True)
def _bodies_in_this_process_note_too(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CHAOS_REDIS", redis_url)
    yield
    if chaos_app._client is not None:
        chaos_app._client.close()
        chaos_app._client = None
