"""Does a World reach the Redis that its URL and settings name: with a password of their own, and through Sentinels?"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest
import redis

from consumers.worker import Worker
from redisworld import Run, World
from redisworld.errors import InvalidInput, RedisUnavailable
from redisworld.settings import Settings
from redisworld.spawn import find_server, private_redis
from tests.apps.cli_app import doubled, wf
from tests.integration.cli_calls import refusal

WAIT_S = 60
AWKWARD = "p/w@d?#%41+ é"
"""Every character that means something in a URL."""


def settings(url: str, **more: str) -> Settings:
    return Settings.from_env({"REDISWORLD_URL": url} | {f"REDISWORLD_{name.upper()}": v for name, v in more.items()})


@pytest.mark.anyio
async def test_user_and_password_may_stand_beside_the_url_as_they_are() -> None:
    acl = ("--user", "worker", "on", f">{AWKWARD}", "~*", "&*", "+@all")
    with private_redis(tcp=True, allow_wheel=True, args=acl) as server:
        assert server.tcp_url is not None
        async with World.connect(settings=settings(server.tcp_url, username="worker", password=AWKWARD)) as world:
            assert await world.start(doubled, 1, run_id="one")
            client = world.connection.sync_client()  # the lease thread's
            assert client.execute_command("ACL", "WHOAMI") in ("worker", b"worker")
            client.close()


@pytest.mark.anyio
async def test_those_of_the_url_win() -> None:
    acl = ("--user", "worker", "on", ">right", "~*", "&*", "+@all")
    with private_redis(tcp=True, allow_wheel=True, args=acl) as server:
        assert server.tcp_url is not None
        url = server.tcp_url.replace("://", "://worker:right@")
        async with World.connect(settings=settings(url, username="nobody", password="wrong")):
            pass
        with pytest.raises(RedisUnavailable, match="refuses the user or password") as told:
            async with World.connect(settings=settings(server.tcp_url, username="worker", password="s3cret")):
                pass
        assert "s3cret" not in str(told.value)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("url", "missing"),
    [
        ("redis+sentinel://a:26379,b:26379", "the name of the primary is missing"),
        ("redis+sentinel:///primary/0", "every host is missing"),
        ("redis+sentinel://a:x/primary", "a Sentinel is host:port, not 'a:x'"),
        ("redis+sentinel://a/primary/zero", "the number of a database, not with 'zero'"),
        ("redis://localhost/zero", "the number of a database, not with 'zero'"),
        ("redis://localhost?db=zero", "the number of a database, not 'zero'"),
        ("redis://localhost?db=1_0", "the number of a database, not '1_0'"),
        ("unix:///nowhere?db=", "the number of a database, not ''"),
        ("redis+cluster://localhost?db=1", "a cluster has none"),
        ("redis://localhost/0/1", "the number of a database, not with '0/1'"),
        ("redis://localhost/0?decode_responses=false", "the option decode_responses"),
        ("redis://localhost/0?foo=bar", "unexpected keyword argument 'foo'"),
        ("redis://localhost/0?ssl_cert_reqs=none", "unexpected keyword argument 'ssl_cert_reqs'"),
        ("unix:///tmp/redis.sock?foo=bar", "unexpected keyword argument 'foo'"),
        ("redis://localhost/0?protocol=9", "protocol must be either 2 or 3"),
        ("redis://localhost/0?retry=3", "the option retry"),
        ("redis://localhost/0?max_connections=10", "the option max_connections"),
        ("redis://localhost/0?socket_timeout=0.5", "set REDISWORLD_REDIS_TIMEOUT_MS"),
        ("redis://localhost/0?maint_notifications_config=x", "has no attribute 'enabled'"),
        ("rediss://localhost/0?ssl_cert_reqs=maybe", "Requirements Flag: maybe"),
        ("127.0.0.1:6379", "begins with redis://"),
    ],
)
async def test_a_url_that_lacks_something_or_has_too_much_is_refused(url: str, missing: str) -> None:
    with pytest.raises(InvalidInput, match=missing):
        async with World.connect(url):
            pass


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis+sentinel://127.0.0.1:1,127.0.0.1:1/p", "No master found for 'p' .Sentinels cannot be reached"),
        ("rediss://127.0.0.1:1/0?ssl_ca_certs=/nowhere.pem", "the files of the options ssl_"),
    ],
)
@pytest.mark.anyio
async def test_what_is_not_there_is_told_in_a_line(url: str, told: str) -> None:
    """redis-py wrote out each Sentinel's client, a thousand characters, and names no file."""
    with pytest.raises(RedisUnavailable, match=told) as raised:
        async with World.connect(url):
            pass
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize("reached_by", ["tcp_url", "url"])
def test_a_database_that_redis_does_not_have_is_refused_at_once(
    reached_by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a socket it was taken for a Redis that is away, and waited for."""
    with private_redis(tcp=True, allow_wheel=True) as server:
        url: str = getattr(server, reached_by) + "?db=99"
        began = time.monotonic()
        code, line = refusal(capsys, "worker", "tests.apps.cli_app:wf", "--url", url)
    assert code == 2
    assert "refuses database 99 of this URL: DB index is out of range" in line
    assert time.monotonic() - began < Settings().retry_redis_ms / 1000


@pytest.mark.anyio
async def test_a_user_whom_redis_refuses_at_a_socket_is_not_waited_for() -> None:
    with private_redis(allow_wheel=True, args=("--user", "worker", "on", ">right", "~*", "&*", "+@all")) as server:
        named = settings(server.url, username="worker", password="wrong")
        with anyio.fail_after(WAIT_S), pytest.raises(RedisUnavailable, match="refuses the user or password"):
            async with World.connect(settings=named, patience_ms=600_000):
                pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def sentinels(primary_port: int, directory: Path, count: int = 3) -> Iterator[list[int]]:
    """Sentinels of one primary, each with a password; their ports. Ended with the block."""
    server = find_server(allow_wheel=True)
    assert server is not None
    with ExitStack() as stack:
        ports = []
        for number in range(count):
            ports.append(port := free_port())
            config = directory / f"sentinel-{number}.conf"
            config.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {directory}\nrequirepass sentinels\n"
                "sentinel sentinel-pass sentinels\n"
                f"sentinel monitor primary 127.0.0.1 {primary_port} 2\n"
                "sentinel down-after-milliseconds primary 500\nsentinel failover-timeout primary 3000\n"
            )
            process = stack.enter_context(subprocess.Popen([server, config, "--sentinel"], stdout=subprocess.DEVNULL))
            stack.callback(process.kill)
        yield ports


def wait_until_known(port: int, *, replicas: int, others: int) -> None:
    """Return when a Sentinel knows the replicas and the other Sentinels; before, it cannot fail over."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            with redis.Redis(port=port, password="sentinels", socket_timeout=5) as client:
                told = client.sentinel_master("primary")
                if told["num-slaves"] == replicas and told["num-other-sentinels"] == others:
                    return
        except (redis.RedisError, OSError):
            pass
        assert time.monotonic() < deadline, "the Sentinels never met"
        time.sleep(0.05)


async def started(world: World, run_id: str) -> Run[list[int]]:
    """A start does not wait for long by itself, and may be repeated."""
    while True:
        try:
            return await world.start(doubled, 2, run_id=run_id)
        except RedisUnavailable:
            await anyio.sleep(0.1)


@pytest.mark.anyio
async def test_a_run_goes_on_when_the_sentinels_choose_another_primary(tmp_path: Path) -> None:
    with private_redis(tcp=True, allow_wheel=True, args=("--repl-diskless-sync-delay", "0")) as primary:
        port = str(primary.tcp_url).rpartition(":")[2].partition("/")[0]
        follows = ("--replicaof", "127.0.0.1", port, "--repl-diskless-sync-delay", "0")
        with (
            private_redis(tcp=True, allow_wheel=True, args=follows) as replica,
            sentinels(int(port), tmp_path) as ports,
        ):
            for each in ports:
                wait_until_known(each, replicas=1, others=2)
            url = "redis+sentinel://127.0.0.1:1," + ",".join(f"127.0.0.1:{p}" for p in ports) + "/primary/0"
            chosen = settings(url, sentinel_password="sentinels", lease_ms="2s", retry_redis_ms="30s")
            async with World.connect(settings=chosen) as world, anyio.create_task_group() as tasks:
                worker = Worker(world, wf)
                tasks.start_soon(worker.run)
                run = await world.start(doubled, 1, run_id="before")
                with anyio.fail_after(WAIT_S):
                    assert await run.result() == [2, 2, 1]
                await world.connection.commands.wait(1, 5_000)

                primary.stop()

                with anyio.fail_after(WAIT_S):
                    assert await (await started(world, "after")).result() == [4, 4, 2]
                with redis.Redis.from_url(replica.url) as client:
                    assert client.info("replication")["role"] == "master"
                worker.stop()
