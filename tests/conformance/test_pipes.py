"""Which error replies among several does ``Connection.pipe`` raise, and what does it repeat?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from redisworld import RedisUnavailable, World

pytestmark = pytest.mark.anyio

NAMES = ("{redisworld:0}:a", "{redisworld:0}:b")


@pytest.fixture
def keys(raw: redis.Redis) -> Iterator[tuple[str, str]]:
    """A number, and a list in the place of one."""
    number, foreign = NAMES
    raw.set(number, 1)
    raw.rpush(foreign, "x")
    yield number, foreign
    raw.config_set("min-replicas-to-write", 0)
    raw.delete(*NAMES)


@pytest.mark.parametrize("raises", ["transient", "none"])
async def test_an_error_about_one_key_is_among_the_replies_or_raised(
    redis_url: str, keys: tuple[str, str], raises: Any
) -> None:
    async with World.connect(redis_url) as world:

        def read(pipe: Any) -> None:
            for key in keys:
                pipe.get(key)

        number, error = await world.connection.pipe("read", read, raises=raises)
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            await world.connection.pipe("read", read)

    assert number == b"1"
    assert "WRONGTYPE" in str(error)


@pytest.mark.parametrize("raises", ["all", "transient"])
async def test_a_refusal_for_now_is_repeated_with_a_new_pipeline(
    redis_url: str, raw: redis.Redis, keys: tuple[str, str], raises: Any
) -> None:
    async with World.connect(redis_url) as world:
        filled: list[int] = []

        def write(pipe: Any) -> None:
            raw.config_set("min-replicas-to-write", 0 if filled else 1)
            pipe.get(keys[0])
            pipe.set(keys[0], 2)
            filled.append(len(pipe))

        replies = await world.connection.pipe("write", write, raises=raises, patience_ms=10_000)

    assert (filled, replies) == ([2, 2], [b"1", True])


async def test_a_refusal_for_now_is_unavailability_unless_the_caller_takes_it_as_a_reply(
    redis_url: str, raw: redis.Redis, keys: tuple[str, str]
) -> None:
    async with World.connect(redis_url) as world:
        raw.config_set("min-replicas-to-write", 1)

        def write(pipe: Any) -> None:
            pipe.set(keys[0], 2)

        (refusal,) = await world.connection.pipe("write", write, raises="none")
        with pytest.raises(RedisUnavailable):
            await world.connection.pipe("write", write, raises="transient", patience_ms=0)

    assert "NOREPLICAS" in str(refusal)
