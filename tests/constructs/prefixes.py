"""Does every prefix of a log replay to the same commands, cold and warm, in this process and in any other?"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import msgspec

from redisworld import events
from redisworld.events import EventKind, RunCreated
from redisworld.replay import Instance
from redisworld.workflows import Workflow
from tests.constructs.everything import CATALOGUE


class Recording(msgspec.Struct, frozen=True):
    """The log of a run as Redis holds it, and how much of it each committed pass had consumed."""

    name: str
    run_id: str
    elements: list[bytes]
    commits: list[int]


class _Log:
    """A log, and instances that are fed from it."""

    def __init__(self, recording: Recording) -> None:
        self.events = [events.parse(element) for element in recording.elements]
        self.commits = recording.commits
        self._run_id = recording.run_id
        self._workflow: Workflow[..., Any] = CATALOGUE[recording.name].workflow
        self._input = msgspec.msgpack.decode(self.events[0].payload, type=RunCreated).input
        self._started = next(event.at for event in self.events if event.kind is EventKind.RUN_STARTED)

    def instance(self) -> Instance:
        found = Instance(run_id=self._run_id, workflow=self._workflow, input=self._input, at=self._started)
        found.start()
        return found

    def cold(self, length: int) -> str:
        """What a body asks for that is replayed up to ``length``, by a worker that takes over there."""
        instance, last = self.instance(), max((at for at in self.commits if at < length), default=0)
        for event in self.events[:length]:
            instance.deliver(event)
            if instance.consumed == last:
                instance.committed()
        asked = _shown(instance)
        instance.close()
        return asked


def commands_at_every_prefix(recording: Recording) -> list[str]:
    """What a body that stays in memory asks for after each event."""
    log = _Log(recording)
    warm, found = log.instance(), []
    for length in range(len(log.events) + 1):
        if length:
            warm.deliver(log.events[length - 1])
        found.append(_shown(warm))
        if length in log.commits:
            warm.committed()
    warm.close()
    return found


def cold_commands(recording: Recording, lengths: range) -> list[str]:
    """What a body asks for that is replayed from the start, up to each of these prefixes."""
    log = _Log(recording)
    return [log.cold(length) for length in lengths]


def digests(recordings: list[Recording]) -> dict[str, str]:
    """By construct, a digest of the commands at every prefix."""
    return {
        recording.run_id: hashlib.sha256("\n".join(commands_at_every_prefix(recording)).encode()).hexdigest()
        for recording in recordings
    }


def _shown(instance: Instance) -> str:
    return repr((instance.now_ms, instance.commands()))


if __name__ == "__main__":
    given = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=list[Recording])
    sys.stdout.write(msgspec.json.encode(digests(given)).decode())
