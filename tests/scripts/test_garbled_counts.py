"""What does a script do where somebody else has written into a counter? The same as ever; the counter begins anew."""

from __future__ import annotations

import re

import pytest

from tests.scripts.headers import COMMANDS, header
from tests.scripts.scenes import SCENES
from tests.scripts.stage import Stage, Theatre

GARBLED = ("foo", "", "1e3", "9223372036854775807")
"""No numbers, and one that cannot grow."""

NOTHING = {"look_at_runs", "stage_hook"}
"""What they include could count; in them it does not."""

COUNTING = [script for script in COMMANDS if "stats" in header(script).includes and script not in NOTHING]


def counts(stage: Stage) -> dict[str, bytes]:
    """The counters of the partition."""
    return {name.decode(): value for name, value in stage.client.hgetall(f"{stage.tag}stats").items()}


def raised_by(stage: Stage) -> dict[str, int]:
    """By how much the call raises each counter."""
    before = counts(stage)
    stage.send(stage.call.args)
    return {name: by for name, now in counts(stage).items() if (by := int(now) - int(before.get(name, 0)))}


def apart_from_counts(stage: Stage) -> dict[str, str]:
    """All that lies in Redis, as text; ids of entries tell when they were written."""
    state = {key: value for key, value in stage.state().items() if key != f"{stage.tag}stats"}
    return {key: re.sub(r"\d{13}-\d+", "an entry", repr(value)) for key, value in state.items()}


@pytest.mark.parametrize("garbled", GARBLED)
@pytest.mark.parametrize("script", COUNTING)
def test_a_garbled_counter_changes_nothing_else(script: str, garbled: str, theatre: Theatre) -> None:
    """The call failed after its writes, or half-way through them."""
    counting = 0
    for scene in (scene for scene in SCENES if scene.script == script and scene.word != "broken"):
        stage = theatre.stage(scene)
        raised = raised_by(stage)
        wanted = apart_from_counts(stage)
        for name, by in raised.items():
            stage.put_back(("HSET", f"{stage.tag}stats", name, garbled))
            word, _ = stage.outcome(stage.call.args)
            assert (scene.name, name, word) == (scene.name, name, scene.word)
            assert apart_from_counts(stage) == wanted
            assert int(counts(stage)[name]) == by
            counting += 1
    assert counting, "no scene of this script counts"
