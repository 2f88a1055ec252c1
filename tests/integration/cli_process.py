"""How do tests run the command line as a process of its own?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
APP = "tests.apps.cli_app"
WAIT_S = 60


def environment(**variables: str) -> dict[str, str]:
    """This process's environment with these ``REDISWORLD_*`` variables and no others."""
    return {name: value for name, value in os.environ.items() if not name.startswith("REDISWORLD_")} | variables


def command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "redisworld", *arguments],
        cwd=ROOT,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def demo(*arguments: str, **variables: str) -> dict[str, Any]:
    """The one JSON object of a demo that succeeds; ``json.loads`` refuses anything more on stdout."""
    done = command("demo", "--json", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check_counts(report: dict[str, Any], branches: int) -> None:
    """What holds for every demo: exact counts, not times."""
    assert report["status"] == "completed"
    assert report["branches"] == branches
    assert report["step_bodies"] == branches + 3
    assert report["retries"] == 2
    assert report["lazy_run_fetches"] == 1
    assert report["prologue"] == {"run_context": report["queued_steps_started"], "runs_get": 0}
    assert report["inline_steps"] == 2
    assert report["recorded"] == {"completed": branches + 1, "failed": 0}
    assert report["result"]["pictures"] == branches


class WorkerProcess:
    """A ``redisworld worker`` that has told where it serves."""

    def __init__(self, process: subprocess.Popen[str], first_line: str) -> None:
        self.process = process
        self.first_line = first_line
        self.address = first_line.rpartition(" on ")[2].strip().rstrip('"}')

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a GET."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextmanager
def worker(url: str, *arguments: str, app: str = APP, **variables: str) -> Iterator[WorkerProcess]:
    """A worker of a test application, killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "redisworld", "worker", app, "--url", url,
         "--metrics-port", "0", "--metrics-host", "127.0.0.1", *arguments],
        cwd=ROOT, env=environment(**variables), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stderr is not None
            yield WorkerProcess(process, process.stderr.readline())
        finally:
            process.kill()


def eventually(true: Callable[[], bool]) -> None:
    """Return when it is true; another process can only be asked again and again."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.05)
