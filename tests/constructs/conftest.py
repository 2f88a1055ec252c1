"""Where do the logs come from that several tests look at? Every construct is run once, warm and cold."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import msgspec
import pytest
import redis

from redisworld.spawn import PrivateRedis
from tests.constructs.everything import CATALOGUE
from tests.constructs.playing import check_promises, player
from tests.constructs.prefixes import Recording


class Recorded(msgspec.Struct, frozen=True):
    """How a construct ended and what its log is; ``trouble`` when it did not end."""

    outcome: Any = None
    recording: Recording | None = None
    trouble: str = ""


async def _record(
    url: str, raw: redis.Redis, way: str, alternate: bool = False, **settings: Any
) -> dict[str, Recorded]:
    found = {}
    async with player(url, raw, **settings) as playing:
        for name, construct in CATALOGUE.items():
            try:
                played = await playing.play(construct, f"{way}-{name}", alternate=alternate)
            except Exception:
                found[name] = Recorded(trouble=traceback.format_exc())
                continue
            elements: Any = raw.lrange(playing.consumers.partition.log(played.run_id), 0, -1)
            found[name] = Recorded(played.outcome, Recording(name, played.run_id, elements, played.commits))
    check_promises(raw)
    return found


def _recorded(server: PrivateRedis, way: str, **settings: Any) -> dict[str, Recorded]:
    with redis.Redis.from_url(server.url) as raw:
        raw.flushall()
        recorded = asyncio.run(_record(server.url, raw, way, **settings))
        raw.flushall()
        return recorded


@pytest.fixture(scope="session")
def warm(redis_server: PrivateRedis) -> dict[str, Recorded]:
    """Every construct, run with bodies that stay in memory and a first step that runs inline."""
    return _recorded(redis_server, "inline")


@pytest.fixture(scope="session")
def cold(redis_server: PrivateRedis) -> dict[str, Recorded]:
    """Every construct, run with bodies that are replayed from the start for each wake."""
    return _recorded(redis_server, "inline", sticky_runs=0)


@pytest.fixture(scope="session")
def queued(redis_server: PrivateRedis) -> dict[str, Recorded]:
    """Every construct, run with all steps sent through the queue."""
    return _recorded(redis_server, "queued", max_inline_steps=0)


@pytest.fixture(scope="session")
def alternating(redis_server: PrivateRedis) -> dict[str, Recorded]:
    """Every construct, continued by two workers in turn."""
    return _recorded(redis_server, "inline", alternate=True)
