"""Which fixture do the conformance tests share? ``connect``: the consumers of a process, driven by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import redis

from tests.conformance.harness import Consumers, connected

Connect = Callable[..., AbstractAsyncContextManager[Consumers]]


@pytest.fixture
def connect(redis_url: str, raw: redis.Redis) -> Connect:
    """``async with connect(lease_ms=500) as consumers``."""

    def connecting(**settings: Any) -> AbstractAsyncContextManager[Consumers]:
        return connected(redis_url, raw, **settings)

    return connecting
