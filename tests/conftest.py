"""Which fixtures do all tests share?

- ``redis_server``: one private server for the whole session. A test that kills or pauses starts its own.
- ``redis_url``: the URL of that server, emptied for this test.
- ``raw``: a plain client of it, bytes in and out.
- ``a`` and ``b``: two Worlds that only call scripts, each with connections of its own, on one namespace and clock.

After each test that uses ``redis_url`` its keys are checked; see ``tests/leaks.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from redisworld.spawn import PrivateRedis, private_redis
from tests import leaks
from tests.scripts.driver import Consumer, consumers

# The same examples on every machine and no clock in the verdict: a red build is about the change, not about the day.
settings.register_profile(
    "redisworld", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("redisworld")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the long forms of the chaos tests are; the defaults are CI's."""
    group = parser.getgroup("chaos", "chaos tests (-m chaos)")
    group.addoption("--chaos-runs", type=int, default=200, help="runs at work while workers are killed")
    group.addoption("--chaos-kills", type=int, default=12, help="workers killed meanwhile")
    group.addoption("--chaos-malformed", type=int, default=2_000, help="malformed entries thrown at the streams")
    parser.addoption("--helm-outage", type=float, default=8.0, help="seconds without Redis for a pod (A48: 60)")
    group.addoption("--chaos-finished", type=int, default=300, help="runs that come and go for the housekeeping test")


FIGURES = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What the chaos tests have counted, and what any test recorded as a ``figure``, also in another process."""
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(line)
    for report in terminalreporter.stats.get("passed", []):
        for name, line in report.user_properties:
            if name == "figure":
                terminalreporter.write_line(str(line))


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines that are shown at the end of the session."""
    return request.config.stash.setdefault(FIGURES, [])


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """``@pytest.mark.anyio`` tests run on asyncio: the library does, for it replays on an asyncio loop of its own."""
    return "asyncio"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[PrivateRedis]:
    """One private server for the session, on a unix socket and on a loopback port."""
    with private_redis(tcp=True, allow_wheel=True) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: PrivateRedis) -> str:
    """URL of an empty database."""
    with _client(redis_server.url) as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def raw(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client: what a test looks at Redis with, independent of the code under test."""
    with _client(redis_url) as client:
        yield client


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


@pytest.fixture(autouse=True)
def _no_leaked_keys(request: pytest.FixtureRequest) -> Iterator[None]:
    if "redis_url" not in request.fixturenames:
        yield
        return
    client: redis.Redis = request.getfixturevalue("raw")
    yield
    found = leaks.problems(client)
    if found:
        pytest.fail("keys left behind:\n" + "\n".join(found), pytrace=False)


def _client(url: str) -> redis.Redis:
    # No retries: a dead server fails the test at once, not after redis-py's back-off.
    return redis.Redis.from_url(url, decode_responses=False, socket_timeout=10, retry=Retry(NoBackoff(), 0))
