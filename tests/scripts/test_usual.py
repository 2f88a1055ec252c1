"""What the usual part of a script writes in one go is what the rest of the script would have written."""

from __future__ import annotations

import pytest

from redisworld import scripts
from tests.scripts.scenes import SCENES, Scene
from tests.scripts.stage import Stage, Theatre

USUAL = {
    "claim_many": {"usual = start_usual(clock(now), tonumber(limit))": "usual = 0"},
    "complete_many": {"usual = complete_usual(clock(now))": "usual = 0"},
    "commit_pass": {"local words = #ARGV - 15": "local words = -1", "local written = create()": "local written = nil"},
    "start_many": {"local written = start_all()": "local written = nil"},
}
"""How each script is made to look at every call closely."""

PASSES = {"inline", "did inline", "did end", "end", "step", "step step", "step inline"}
SEEN = [pytest.param(scene, id=f"{scene.script}: {scene.name}") for scene in SCENES if scene.script in USUAL]
USUAL_ANSWER = "do return {'rest'} end"


@pytest.fixture
def stage(scene: Scene, theatre: Theatre) -> Stage:
    return theatre.stage(scene)


def closely(script: str) -> str:
    """The text of a script without its usual part."""
    text = scripts.load(script).text
    for snippet, instead in USUAL[script].items():
        assert text.count(snippet) == 1
        text = text.replace(snippet, instead)
    return text


def usual_only(script: str) -> str:
    """The text of a script that answers ``rest`` where its usual part leaves a call to the rest."""
    text = scripts.load(script).text
    begins = "-- Arguments are judged before the first write"
    assert text.count(begins) == 1
    return text.replace(begins, f"{USUAL_ANSWER}\n{begins}")


@pytest.mark.parametrize("scene", SEEN)
def test_a_call_looked_at_closely_answers_and_writes_the_same(stage: Stage) -> None:
    answer, state = stage.ask(), without_entry_ids(stage)
    stage.put_back()

    assert stage.ask(text=closely(stage.call.script)) == answer
    assert without_entry_ids(stage) == state


def test_every_usual_part_writes_some_scene(theatre: Theatre) -> None:
    usual = set()
    for scene in SCENES:
        if scene.script in USUAL:
            stage = theatre.stage(scene)
            if stage.ask(text=usual_only(scene.script)) != [b"rest"]:
                usual.add((scene.script, items_of(stage) if scene.script == "commit_pass" else ""))

    assert usual == {("commit_pass", ops) for ops in PASSES} | {
        (script, "") for script in USUAL.keys() - {"commit_pass"}
    }


def items_of(stage: Stage) -> str:
    """The items of a pass, as far as they tell usual ones apart."""
    ops = [str(word) for word in stage.call.args[14:] if word in ("did", "inline", "end", "step")]
    return " ".join(ops[:2])


def without_entry_ids(stage: Stage) -> dict[str, object]:
    """The state, where the ids of new entries of streams, which are times, are left out."""
    found = stage.state()
    for key, shown in found.items():
        if isinstance(shown, tuple) and shown[0] == b"stream":
            entries, groups = shown[1]
            known = {entry[0] for entry in entries if key in stage.initial and entry in stage.initial[key][1][0]}  # type: ignore[index]
            found[key] = ([entry if entry[0] in known else entry[1] for entry in entries], groups)
    return found
