"""Which fixture do the script tests share? ``theatre``: where scenes are played; one client for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redisworld.spawn import PrivateRedis
from tests.scripts.stage import Theatre, theatre_on


@pytest.fixture(scope="session")
def theatre(redis_server: PrivateRedis) -> Iterator[Theatre]:
    with theatre_on(redis_server.url) as theatre:
        yield theatre
