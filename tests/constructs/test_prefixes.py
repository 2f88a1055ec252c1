"""Does every prefix of every construct's log replay alike, whoever replays it?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.constructs.conftest import Recorded
from tests.constructs.everything import CATALOGUE
from tests.constructs.prefixes import cold_commands, commands_at_every_prefix, digests

SEEDS = ("0", "1", "4711")
LONG = 100
"""A log that repeats itself is replayed cold to every seventh prefix only."""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_prefix_replays_cold_and_warm_to_the_same_commands(warm: dict[str, Recorded], name: str) -> None:
    recording = warm[name].recording
    assert recording is not None, warm[name].trouble
    lengths = range(len(recording.elements) + 1)
    if len(lengths) > LONG:
        lengths = lengths[::7]
    commands = commands_at_every_prefix(recording)
    for length, cold in zip(lengths, cold_commands(recording, lengths), strict=True):
        assert cold == commands[length], f"cold and warm differ after {length} events"


def test_no_hash_seed_changes_a_command_at_any_prefix(
    warm: dict[str, Recorded], queued: dict[str, Recorded], tmp_path: Path
) -> None:
    """One process for each seed replays both logs of every construct."""
    found = [*warm.values(), *queued.values()]
    recordings = [recorded.recording for recorded in found if recorded.recording is not None]
    (tmp_path / "logs").write_bytes(msgspec.msgpack.encode(recordings))
    others = {seed: _replay(tmp_path / "logs", seed) for seed in SEEDS}
    expected = digests(recordings)
    assert len(expected) == 2 * len(CATALOGUE)
    for seed, process in others.items():
        said, trouble = process.communicate(timeout=60)
        assert process.returncode == 0, trouble
        assert msgspec.json.decode(said) == expected, f"under hash seed {seed}"


def _replay(path: Path, seed: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.constructs.prefixes", str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
