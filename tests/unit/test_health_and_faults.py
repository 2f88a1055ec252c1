"""Who says that a worker is not ready, and how often is a fault logged? (A13, A42)"""

from __future__ import annotations

import logging
import socket
import struct
import time

import anyio
import pytest
from redis.exceptions import ResponseError

from consumers import server as http_server
from consumers.health import Health
from consumers.pauses import Pauses
from consumers.server import Server
from redisworld.errors import RedisUnavailable
from redisworld.observe import LoopMoved, Observation, Reading, observing
from redisworld.settings import Settings
from redisworld.world import FaultLog


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_a_loop_that_reads_does_not_speak_for_one_that_fails(clock: Clock) -> None:
    health = Health(blocked_limit_s=60)
    steps, workflows = health.loop("steps"), health.loop("workflows")
    steps.read_done()
    workflows.read_done()
    assert health.ready() is None

    steps.read_failed(RedisUnavailable("gone"))
    workflows.read_done()

    assert health.ready() == "cannot read steps: gone"
    assert health.alive() is None
    steps.read_done()
    assert health.ready() is None


def test_a_loop_that_hangs_is_seen_after_five_seconds_and_a_longer_block_time_is_no_hang(clock: Clock) -> None:
    """A42, second test: hung for 30 s, red within 10."""
    health, patient = Health(blocked_limit_s=60), Health(blocked_limit_s=60, block_s=30)
    loops = [health.loop("steps"), patient.loop("steps")]
    for loop in loops:
        loop.read_done()
    clock.now += 6

    assert health.ready() == "steps has not been read for 5 s"
    assert patient.ready() is None
    clock.now += 30
    assert patient.ready() is not None


def test_with_default_settings_a_silent_redis_turns_readiness_red_after_nine_seconds(clock: Clock) -> None:
    """docs/kubernetes.md says so."""
    health = Health(blocked_limit_s=60, block_s=Settings().block_ms / 1000)
    loop = health.loop("steps")
    loop.read_done()
    clock.now += 8.9
    assert health.ready() is None
    clock.now += 0.2
    assert health.ready() == "steps has not been read for 9 s"


def test_the_first_read_does_not_wait_and_those_after_a_failure_wait_less(clock: Clock) -> None:
    """A worker of which nobody sends anything is ready at once, and soon again after an outage."""
    loop = Health(blocked_limit_s=60).loop("steps")
    assert loop.block_ms(5_000) == 1
    loop.read_done()
    assert loop.block_ms(5_000) == 5_000
    loop.read_failed(RedisUnavailable("gone"))
    assert loop.block_ms(5_000) == 2_000
    assert loop.block_ms(500) == 500
    loop.read_done()
    assert loop.block_ms(5_000) == 5_000
    clock.now += 60  # a read that hung
    assert loop.block_ms(5_000) == 2_000


@pytest.mark.anyio
async def test_the_event_loops_lag_is_told_with_each_tick() -> None:
    ticks, seen, health = 0, list[Observation](), Health(blocked_limit_s=60)

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    with observing(seen.append):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(health.run, tick)
            with anyio.fail_after(10):
                while not seen:  # noqa: ASYNC110  # an observer is no coroutine
                    await anyio.sleep(0.01)
            time.sleep(0.3)  # noqa: ASYNC251  # it blocks the event loop
            with anyio.fail_after(10):
                while len(seen) < 2:  # noqa: ASYNC110  # likewise
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    late = [observation.late_s for observation in seen if isinstance(observation, LoopMoved)]
    assert len(late) == len(seen) >= 2
    assert max(late) >= 0.2
    assert ticks >= 2


def test_a_loop_that_may_be_silent_is_judged_by_its_failures_only(clock: Clock) -> None:
    health = Health(blocked_limit_s=60)
    sweep = health.loop("pending", may_be_silent=True)
    clock.now += 1_000
    assert health.ready() is None
    sweep.read_failed(ValueError("no"))
    assert health.ready() == "cannot read pending: no"


def test_observers_hear_of_the_change_and_not_of_each_failure() -> None:
    seen: list[Observation] = []
    loop = Health(blocked_limit_s=60).loop("steps")
    with observing(seen.append):
        for _ in range(3):
            loop.read_failed(RedisUnavailable("gone"))
        for _ in range(3):
            loop.read_done()
    assert seen == [Reading("steps", False), Reading("steps", True)]


def test_a_fault_has_one_line_a_second_that_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    faults = FaultLog(clock)
    with caplog.at_level(logging.WARNING, "redisworld"):
        for tenth in range(25):
            clock.now = 100 + tenth / 10
            faults.warn("redis", "gone", at=tenth)
            faults.warn("dead letter", "dead letter", entry=f"{tenth}-0", error="not a message")
    assert [record.getMessage() for record in caplog.records] == [
        "gone: at=0",
        'dead letter: entry=0-0 error="not a message"',
        "gone: at=10 more=9",
        'dead letter: entry=10-0 error="not a message" more=9',
        "gone: at=20 more=9",
        'dead letter: entry=20-0 error="not a message" more=9',
    ]


def test_faults_that_never_repeat_fill_no_memory() -> None:
    faults = FaultLog()
    for number in range(1_000):
        faults.warn(f"fault {number}", "text", level=logging.DEBUG)
    assert len(faults._seen) <= 32


@pytest.mark.anyio
async def test_the_pauses_of_a_loop_stay_finite_and_short_however_often_it_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A13: 1,100 failed connects do not end the loop."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    pauses = Pauses(FaultLog())
    for _ in range(1_100):
        await pauses.after("cannot read", RedisUnavailable("gone"))
    pauses.over()
    await pauses.after("cannot read", RedisUnavailable("gone"))

    assert all(0 < pause <= 1 for pause in slept)
    assert min(slept[10:-1]) >= 0.5
    assert slept[-1] <= 0.1


@pytest.mark.anyio
async def test_the_line_of_an_error_that_nobody_expected_says_what_redis_has_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The repr of redis-py 8 is ``server:ResponseError``."""
    await Pauses(FaultLog()).after("sweep failed", ResponseError("unknown command 'XPENDING'"))
    assert "ResponseError: unknown command 'XPENDING'" in caplog.records[0].message


class Unready:
    """Alive, and not ready."""

    def alive(self) -> str | None:
        return None

    def ready(self) -> str | None:
        return "no answer from Redis"


def answered(method: str, port: int, path: str) -> tuple[str, bytes]:
    """Status line and headers, without the date; and all bytes behind them."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"{method} {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = b"".join(iter(lambda: connection.recv(65_536), b"")).partition(b"\r\n\r\n")
    return "\n".join(line for line in head.decode().splitlines() if not line.startswith("Date:")), body


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics", 200), ("/healthz", 200), ("/readyz", 503), ("/readyz?verbose", 503), ("/no", 404)]
)
def test_head_is_answered_like_get_without_the_body(path: str, status: int) -> None:
    """It was answered 501, and some load balancers probe by HEAD."""
    with Server("127.0.0.1", 0, exposition=lambda: b"metrics\n", health=Unready()) as server:
        head, body = answered("GET", server.port, path)
        assert head.split()[1] == str(status)
        assert body
        assert answered("HEAD", server.port, path) == (head, b"")


def test_who_breaks_a_connection_off_is_no_news_and_who_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A balancer that looks whether the port is open left a traceback each time, past the log's format."""
    monkeypatch.setattr(http_server, "_SILENT_S", 0.1)
    with Server("127.0.0.1", 0, exposition=lambda: b"metrics\n", health=Unready()) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
            silent.sendall(b"GET /heal")
            assert silent.recv(1) == b"", "the server has closed it"
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as broken:
                broken.sendall(b"GET /metrics HTTP/1.0\r\n")
                broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no FIN
        assert answered("GET", server.port, "/metrics")[1] == b"metrics\n"

    assert (capfd.readouterr().err, caplog.records) == ("", [])


@pytest.mark.parametrize("host", ["::", "::1", "127.0.0.1", "localhost"])
def test_it_is_served_where_it_is_told_to_be_and_dns_is_not_asked(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster of IPv6 alone nobody could probe a worker, which served on IPv4 and took no other address."""
    monkeypatch.setattr(socket, "getfqdn", lambda name="": pytest.fail("asks DNS"))
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    reached = {"::": ["127.0.0.1", "::1"]}.get(host, [host])

    with Server(host, 0, exposition=lambda: b"metrics\n", health=Unready()) as server:
        assert server.url == f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
        for address in reached:
            socket.create_connection((address, server.port), timeout=10).close()


def test_every_address_is_that_of_ipv4_where_there_is_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)

    with Server("::", 0, exposition=lambda: b"metrics\n", health=Unready()) as server:
        assert server.url == f"http://0.0.0.0:{server.port}"
        assert answered("GET", server.port, "/metrics")[1] == b"metrics\n"


def test_a_request_that_fails_is_a_fact_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> bytes:
        raise ValueError("no numbers")

    with Server("127.0.0.1", 0, exposition=broken, health=Unready()) as server:
        assert answered("GET", server.port, "/metrics") == ("", b"")

    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["request failed"]
