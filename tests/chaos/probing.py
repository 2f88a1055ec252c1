"""How does a test run a worker as users do, with its probes and metrics on a free port?"""

from __future__ import annotations

import os
import re
import sys
import urllib.error
import urllib.request
from collections import Counter
from datetime import datetime

from tests.chaos.processes import WorkerProcess, Workers


def cli_worker(
    workers: Workers,
    app: str,
    *options: str,
    url: str | None = None,
    ready: bool = True,
    env: dict[str, str] | None = None,
) -> WorkerProcess:
    """``redisworld worker APP OPTIONS``, serving on loopback; ``env`` is what else it finds in its environment."""
    command = [sys.executable, "-m", "redisworld", "worker", app, "--url", url or workers.url]
    command += ["--metrics-host", "127.0.0.1", "--metrics-port", "0", *options]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("REDISWORLD_", "CHAOS_"))}
    environ |= {"CHAOS_REDIS": workers.url} | (env or {})
    worker = WorkerProcess(command, environ, workers.directory / f"cli-{len(workers.started)}.log")
    workers.started.append(worker)
    return worker.wait_ready() if ready else worker


def get(worker: WorkerProcess, path: str) -> tuple[int, str]:
    """Status and text of a page that the worker serves."""
    base = re.search(r"on (http://\S+:\d+)", worker.log())
    assert base is not None, worker.log()
    try:
        with urllib.request.urlopen(base[1] + path, timeout=5) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def probe(worker: WorkerProcess, path: str) -> int:
    """The status of a probe."""
    return get(worker, path)[0]


def metric(worker: WorkerProcess, name: str, **labels: str) -> float:
    """The sum of a metric over all its series that have these labels."""
    total = 0.0
    for line in get(worker, "/metrics")[1].splitlines():
        series, _, value = line.rpartition(" ")
        if re.fullmatch(rf"redisworld_{name}(\{{.*\}})?", series) and all(
            f'{k}="{v}"' in series for k, v in labels.items()
        ):
            total += float(value)
    return total


def most_warnings_a_second(worker: WorkerProcess) -> int:
    """The most warnings and errors a second that a worker has written, by its own clock.

    Over three seconds in a row: lines a second apart may be stamped within one.
    """
    stamps = re.findall(
        r"^(\d{4}\S+?)[T ](\d\d:\d\d:\d\d)\S* +(?:WARNING|ERROR|warning|error)", worker.log(), re.MULTILINE
    )
    written = Counter(int(datetime.fromisoformat(f"{day}T{time}").timestamp()) for day, time in stamps)
    return max((sum(written[second + more] for more in range(3)) // 3 for second in written), default=0)
