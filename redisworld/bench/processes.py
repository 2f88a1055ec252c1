"""How does a bench start the processes it measures, stop them, and see what they take?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from redisworld.bench.marks import VARIABLE, NotMeasured

_STOP_S = 30.0
_LAST_WORDS = 600


class Process:
    """A worker, or the floor's; ``check`` raises when it has ended by itself."""

    def __init__(self, arguments: Sequence[str], *, marks: Path, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.PIPE,  # the tether: see there
                stdout=output,
                stderr=output,
                env={**_without_settings(), VARIABLE: str(marks), **environment},
                start_new_session=True,  # Ctrl-C is the bench's to handle
            )

    def check(self) -> None:
        """Raises NotMeasured with the last words of a process that is gone."""
        if (code := self._process.poll()) is not None:
            said = self._log.read_text(errors="replace")[-_LAST_WORDS:].strip()
            raise NotMeasured(f"the measured process ended with code {code}; its last words: {said or '(none)'}")

    def terminate(self) -> None:
        """SIGTERM, so that it drains."""
        self._process.terminate()

    def wait(self) -> None:
        """Return when it has ended; SIGKILL if that takes too long."""
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def rss_mib(self) -> float | None:
        """Resident memory now; None where there is no /proc."""
        try:
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        except OSError:
            return None
        kib = next((line.split()[1] for line in lines if line.startswith("VmRSS:")), None)
        return None if kib is None else round(int(kib) / 1024, 1)

    def cpu_s(self) -> float | None:
        """User and system time so far; None where there is no /proc."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(processes: list[Process]) -> Iterator[list[Process]]:
    """Processes for the length of the ``with`` block."""
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _without_settings() -> dict[str, str]:
    """This environment without ``REDISWORLD_*``: a bench measures what it says, not what a shell happens to set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("REDISWORLD_")}
