"""How does a chaos test start real worker processes, hurt them, and surely end them?

Only processes started here are ever signalled, by their handle.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio

APP = "tests.apps.chaos_app:wf"
ROOT = Path(__file__).parents[2]

START_S = 20.0
"""A worker needs half a second; a loaded CI machine has been seen to need many times that."""


def until(condition: Callable[[], Any], *, timeout: float = 20.0, what: str = "") -> Any:
    """Wait for an observation, at most ``timeout`` seconds; what it gave, once that is true."""
    deadline = time.monotonic() + timeout
    while not (seen := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen within {timeout:g} s: {what or condition}")
        time.sleep(0.01)
    return seen


async def eventually(condition: Callable[[], Any], *, timeout: float = 20.0, what: str = "") -> Any:
    """``until`` for a test whose own event loop must go on meanwhile."""
    deadline = time.monotonic() + timeout
    while not (seen := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen within {timeout:g} s: {what or condition}")
        await anyio.sleep(0.01)
    return seen


class WorkerProcess:
    """One worker in a process of its own; its log is a file."""

    def __init__(self, command: list[str], env: dict[str, str], log_path: Path) -> None:
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Its process id; the consumer's name holds it."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it lives."""
        return self._process.poll()

    def log(self) -> str:
        """All it has written."""
        return self.log_path.read_text(errors="replace")

    def wait_ready(self) -> WorkerProcess:
        """Return when it reads its streams."""

        def started() -> bool:
            assert self.returncode is None, f"worker ended with {self.returncode}:\n{self.log()[-3000:]}"
            return "worker started" in self.log()

        until(started, timeout=START_S, what=f"'worker started' in {self.log_path}")
        return self

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM: begin to drain."""
        self._process.terminate()

    def interrupt(self) -> None:
        """SIGINT: begin to drain, or end at once where that has begun."""
        self._process.send_signal(signal.SIGINT)

    def freeze(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def wait(self, timeout: float) -> int:
        """Its exit code; AssertionError with its log when it does not end in time."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"worker did not end within {timeout:g} s:\n{self.log()[-3000:]}") from None

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self._process.poll() is None:
            self.thaw()
            self.kill()


class Workers:
    """Starts worker processes against one Redis and namespace."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.started: list[WorkerProcess] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.started:
            worker.end()
        if error is not None:  # pytest shows it with the failure
            for number, worker in enumerate(self.started):
                print(
                    f"--- log of worker {number}, pid {worker.pid}, exit {worker.returncode}:\n{worker.log()[-6000:]}"
                )

    def start(
        self,
        *,
        app: str = APP,
        kill: str = "",
        trace: Path | None = None,
        ready: bool = True,
        env: dict[str, str] | None = None,
        lease_ms: int = 1_000,
        **settings: Any,
    ) -> WorkerProcess:
        """Start one; ``kill`` is CHAOS_KILL of worker_main, ``settings`` are those of redisworld."""
        options = {
            "lease_ms": lease_ms,
            "reclaim_every_ms": 200,
            "block_ms": 500,
            "partitions": 2,
            "timer_poll_ms": 500,
        } | settings
        command = [sys.executable, "-m", "tests.chaos.worker_main", app, self.url, json.dumps(options)]
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("REDISWORLD_", "CHAOS_"))}
        environ |= {"CHAOS_KILL": kill, "CHAOS_TRACE": str(trace or ""), "CHAOS_REDIS": self.url}
        environ |= env or {}
        log_path = self.directory / f"worker-{len(self.started)}.log"
        worker = WorkerProcess(command, environ, log_path)
        self.started.append(worker)
        return worker.wait_ready() if ready else worker


@contextmanager
def running(url: str, directory: Path) -> Iterator[Workers]:
    """Workers that end with the ``with`` block."""
    with Workers(url, directory) as workers:
        yield workers
