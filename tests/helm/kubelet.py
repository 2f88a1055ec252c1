"""What would a kubelet do with a rendered container? It runs the command, asks the probes, and ends it with SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.helm.rendering import Document, environment
from tests.integration.cli_process import ROOT

WAIT_S = 60
POLL_S = 0.1


class RunningContainer:
    """A container's command as a process of this machine. Ports of the pod are mapped to a free one here."""

    def __init__(self, spec: Document, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self._spec = spec
        self._port = port
        self._log = log

    def asks(self, probe: str) -> bool:
        """One round of a probe, as the kubelet judges it."""
        wanted = self._spec[probe]
        named = {port["name"]: port["containerPort"] for port in self._spec["ports"]}
        assert str(named[wanted["httpGet"]["port"]]) == environment(self._spec)["REDISWORLD_METRICS_PORT"]
        url = f"http://127.0.0.1:{self._port}{wanted['httpGet']['path']}"
        try:
            with urllib.request.urlopen(url, timeout=wanted.get("timeoutSeconds", 1)) as answer:
                return 200 <= answer.status < 400
        except (urllib.error.URLError, OSError):
            return False

    def becomes(self, probe: str, verdict: bool) -> None:
        """Return when a probe answers like this."""
        deadline = time.monotonic() + WAIT_S
        while self.asks(probe) is not verdict:
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, f"{probe} never became {verdict}:\n{self.log()}"
            time.sleep(POLL_S)

    def terminate(self, grace_s: float) -> int:
        """SIGTERM, and the exit code; SIGKILL when the grace is over, as exit code -9."""
        self.process.terminate()
        try:
            return self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(WAIT_S)

    def log(self) -> str:
        """What it has written to stderr."""
        return self._log.read_text()


@contextmanager
def running(
    spec: Document, *, secrets: Mapping[str, str] | None = None, directory: Path = ROOT, **instead: str
) -> Iterator[RunningContainer]:
    """A container while the block runs. ``secrets`` by ``name/key``; ``instead`` are variables of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = environment(spec)
    for variable in spec["env"]:
        if "valueFrom" in variable:
            variables[variable["name"]] = (secrets or {})[variables[variable["name"]]]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REDISWORLD_")}
    line = [*spec["command"], *spec.get("args", [])]
    assert line[0] == "redisworld", line
    with tempfile.TemporaryDirectory() as scratch, open(log := Path(scratch) / "log", "wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", *line],
            cwd=directory,
            env=inherited | {"PYTHONPATH": str(ROOT)} | variables | {"REDISWORLD_METRICS_PORT": str(port)} | instead,
            stderr=written,
        )
        with process:
            try:
                yield RunningContainer(spec, process, port, log)
            finally:
                process.send_signal(signal.SIGCONT)  # a stopped process is not killed before it goes on
                process.kill()


@contextmanager
def paused(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Another process stands still while the block runs."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
