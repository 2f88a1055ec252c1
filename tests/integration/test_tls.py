"""Does all of a run go over TLS to a Redis that takes nothing else, and to none whose certificate is another's?"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from consumers.worker import Worker
from redisworld import World
from redisworld.errors import RedisUnavailable
from redisworld.settings import Settings
from redisworld.spawn import private_redis
from tests.apps.cli_app import doubled, wf

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_port(authority: trustme.CA, tmp_path: Path) -> Iterator[int]:
    """A server that speaks TLS; skips where the server on this machine was built without."""
    certificate = authority.issue_cert("localhost")
    key, chain, ca = tmp_path / "key.pem", tmp_path / "chain.pem", tmp_path / "ca.pem"
    certificate.private_key_pem.write_to_path(key)
    for number, pem in enumerate(certificate.cert_chain_pems):
        pem.write_to_path(chain, append=number > 0)
    authority.cert_pem.write_to_path(ca)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    args = [f"--tls-port {port}", f"--tls-cert-file {chain}", f"--tls-key-file {key}", f"--tls-ca-cert-file {ca}"]
    try:
        with private_redis(allow_wheel=True, args=" ".join([*args, "--tls-auth-clients no"]).split()):
            yield port
    except RedisUnavailable as error:
        if "Failed finding TLS support" in str(error) or "FATAL CONFIG FILE ERROR" in str(error):
            pytest.skip("this redis-server was built without TLS")
        raise


@pytest.fixture
def redis_port() -> Iterator[int]:
    """A server that does not."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with private_redis(allow_wheel=True, args=["--port", str(port)]):
        yield port


def settings_of(port: int, ca: Path) -> Settings:
    return Settings(url=f"rediss://localhost:{port}?ssl_ca_certs={ca}", redis_timeout_ms=2_000)


async def test_a_run_goes_over_tls(tls_port: int, tmp_path: Path) -> None:
    async with World.connect(settings=settings_of(tls_port, tmp_path / "ca.pem")) as world:
        run = await world.start(doubled, 21)
        worker = asyncio.ensure_future(Worker(world, wf).run())
        assert await run.result(timeout=20) == [42, 42, 21]
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_a_certificate_of_somebody_else_is_refused(tls_port: int, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    with pytest.raises(RedisUnavailable, match="certificate"):
        async with World.connect(settings=settings_of(tls_port, tmp_path / "other.pem")):
            pass


async def test_where_only_one_side_speaks_tls_the_error_says_so(tls_port: int, tmp_path: Path, redis_port: int) -> None:
    with pytest.raises(RedisUnavailable, match="it may want TLS \\(rediss://\\)"):
        async with World.connect(settings=Settings(url=f"redis://localhost:{tls_port}", redis_timeout_ms=1_000)):
            pass
    plain = Settings(url=f"rediss://localhost:{redis_port}?ssl_cert_reqs=none", redis_timeout_ms=1_000)
    with pytest.raises(RedisUnavailable, match="it may not speak TLS at this port"):
        async with World.connect(settings=plain):
            pass
