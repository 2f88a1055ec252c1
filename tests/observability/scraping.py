"""How does a test start a real Prometheus, and ask it?"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.processes import until

NAMESPACE = "team-x"
"""What everything scraped is labelled with, as a Prometheus in Kubernetes does."""

missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
needs_prometheus = pytest.mark.skipif(
    bool(missing), reason=f"not on PATH: {', '.join(missing)} (Debian's package prometheus has both)"
)


class Prometheus:
    """The HTTP API of one."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: Any) -> Any:
        """The data of an answer. Raises AssertionError with what Prometheus says is wrong."""
        query = urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is starting
                raise
            with error:
                raise AssertionError(f"{parameters}: {json.load(error).get('error')}") from None

    def samples(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series, now."""
        found = self.get("query", query=expression)
        series = [({}, found["result"])] if found["resultType"] == "scalar" else [
            (one["metric"], one["value"]) for one in found["result"]
        ]  # fmt: skip
        return [(labels, float(value[1])) for labels, value in series]

    def value(self, expression: str) -> float:
        """The sum of all series, now; 0 where there is none."""
        return sum(value for _, value in self.samples(expression))

    def up(self) -> int:
        """How many targets were reached at their last scrape."""
        return sum(target["health"] == "up" for target in self.get("targets")["activeTargets"])


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def scraping(directory: Path, jobs: Mapping[str, list[str]], rules: list[Path]) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these targets each second, and works out rules as often; it ends with the context."""
    quick = directory / "rules"
    quick.mkdir()
    for path in rules:
        (quick / path.name).write_text(path.read_text().replace("interval: 30s", "interval: 1s"))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(quick / "*.yaml")],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [{"targets": targets, "labels": {"namespace": NAMESPACE, "cluster": "eu-1"}}],
            }
            for job, targets in jobs.items()
        ],
    }
    (directory / "prometheus.json").write_text(json.dumps(config))  # JSON is YAML
    port, log = free_port(), directory / "prometheus.log"
    command = [
        "prometheus",
        f"--config.file={directory / 'prometheus.json'}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
    ]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    prometheus = Prometheus(f"http://127.0.0.1:{port}")

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return prometheus.up() == sum(map(len, jobs.values()))
        except OSError:
            return False

    try:
        until(answers, timeout=30, what="every target scraped")
        yield prometheus
    finally:
        process.terminate()
        process.wait(20)
