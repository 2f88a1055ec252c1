"""Does the check after each test find the keys it is there to find?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from redisworld.keys import Partition
from redisworld.spawn import private_redis
from tests import leaks

TEST = Partition(namespace="test", number=0)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[redis.Redis]:
    """A server of our own: what these tests leave behind on purpose would fail them on the shared one."""
    with private_redis(allow_wheel=True) as server, redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def raw(elsewhere: redis.Redis) -> redis.Redis:
    elsewhere.flushall()
    return elsewhere


def a_run(raw: redis.Redis, run_id: str, status: str) -> None:
    raw.hset(TEST.run(run_id), "status", status)
    raw.rpush(TEST.log(run_id), "run_created - - 1\n")


def test_our_keys_and_probes_are_fine(raw: redis.Redis) -> None:
    a_run(raw, "r1", "running")
    raw.set("probe:calls", 3)
    raw.set(TEST.reclaim_ticket("steps"), "w1", ex=5)

    assert leaks.problems(raw) == []


def test_a_key_of_another_name_is_found(raw: redis.Redis) -> None:
    raw.set("stray", 1)

    assert leaks.problems(raw) == ["key 'stray' begins with neither 'rw:' nor 'probe:'"]


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_key_of_an_open_run_that_expires_is_found(raw: redis.Redis, status: str) -> None:
    a_run(raw, "r1", status)
    raw.expire(TEST.log("r1"), 100)

    (problem,) = leaks.problems(raw)

    assert TEST.log("r1") in problem
    assert "TTL" in problem


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_keys_of_a_finished_run_may_expire(raw: redis.Redis, status: str) -> None:
    a_run(raw, "r1", status)
    raw.expire(TEST.log("r1"), 100)

    assert leaks.problems(raw) == []


def test_a_finished_run_whose_id_begins_like_an_open_one_may_expire(raw: redis.Redis) -> None:
    a_run(raw, "r1", "running")
    a_run(raw, "r1:child", "completed")
    raw.expire(TEST.log("r1:child"), 100)

    assert leaks.problems(raw) == []
