"""Does every script keep what its header promises: words, keys, and the same state when it is asked again?"""

from __future__ import annotations

import re

import pytest
from redis.exceptions import ResponseError

from redisworld import scripts
from tests.scripts.headers import COMMANDS, header
from tests.scripts.scenes import SCENES, Scene
from tests.scripts.shim import NAMES, declared, names_of, shimmed
from tests.scripts.stage import Reply, Stage, Theatre

EVERY_SCENE = [pytest.param(scene, id=f"{scene.script}: {scene.name}") for scene in SCENES]

TIMES = {
    ("claim_many", "started"): 4,
    ("claim_many", "too_early"): 1,
    ("commit_pass", "chunk"): 2,
    ("reclaim_stale", "busy"): 1,
    ("promote_due", "promoted"): 1,
}
"""Where an answer tells the time of the call: there a later repeat differs."""


@pytest.fixture
def stage(scene: Scene, theatre: Theatre) -> Stage:
    return theatre.stage(scene)


def scenes_of(script: str) -> list[Scene]:
    return [scene for scene in SCENES if scene.script == script]


# -- words


@pytest.mark.parametrize("script", COMMANDS)
def test_every_answer_in_a_header_has_a_scene_and_no_scene_another(script: str) -> None:
    promised = header(script).answers
    details = {word for word, detail in promised if detail}

    assert {(s.word, s.detail if s.word in details else "") for s in scenes_of(script)} == promised


def test_the_names_of_scenes_are_unique() -> None:
    names = [scene.name for scene in SCENES]

    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("scene", EVERY_SCENE)
def test_the_call_of_a_scene_answers_its_words(stage: Stage) -> None:
    word, detail = stage.answer(stage.ask())

    assert word == stage.scene.word
    assert detail == stage.scene.detail or not stage.scene.detail


# -- a lost reply


@pytest.mark.parametrize("scene", EVERY_SCENE)
@pytest.mark.parametrize("later_ms", [0, 5])
def test_a_call_asked_again_answers_as_documented_and_changes_nothing(stage: Stage, later_ms: int) -> None:
    check_repeat(stage, later_ms=later_ms)


def check_repeat(stage: Stage, *, later_ms: int = 0, text: str = "") -> None:
    first = stage.ask(text=text)
    before = stage.state()

    again = stage.ask(later_ms=later_ms, text=text)

    assert stage.state() == before
    if stage.scene.again:
        assert " ".join(stage.answer(again)).startswith(stage.scene.again)
    else:
        assert timeless(stage, again) == timeless(stage, first)


def timeless(stage: Stage, reply: Reply) -> Reply:
    found = list(reply[0] if isinstance(reply[0], list) else reply)
    at = TIMES.get((stage.scene.script, stage.scene.word))
    return found[:at] + found[at + 1 :] if at else found


# -- keys


@pytest.mark.parametrize("script", COMMANDS)
def test_the_names_of_keys_in_a_header_are_words_of_the_vocabulary(script: str) -> None:
    assert set(declared(script)) - set(NAMES) == set()


@pytest.mark.parametrize("scene", EVERY_SCENE)
def test_a_script_touches_only_keys_that_its_header_declares(stage: Stage) -> None:
    assert names_of(stage.touched) <= set(declared(stage.call.script))


@pytest.mark.parametrize("script", COMMANDS)
def test_every_key_that_a_header_declares_is_touched_in_some_scene(script: str, theatre: Theatre) -> None:
    touched = {key for scene in scenes_of(script) for key in theatre.stage(scene).touched}

    assert header(script).derived - names_of(touched) == set()


# -- the checks can fail

SETTLED = next(scene for scene in SCENES if scene.script == "settle_message")


def wrong(line: str) -> str:
    """The text of settle_message with one more line."""
    text = scripts.load("settle_message").text
    assert "save_deliveries()\nreturn" in text
    return text.replace("save_deliveries()\nreturn", f"save_deliveries()\n{line}\nreturn")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("redis.call('GET', TAG .. 'delayed')", "touches rw:{test:0}:delayed, which its header does not declare"),
        ("redis.pcall('GET', TAG .. 'delayed')", "touches rw:{test:0}:delayed, which its header does not declare"),
        ("redis.call('UNLINK', TAG .. 'steps', TAG .. 'dead')", "touches rw:{test:0}:dead"),
        ("redis.call('XLEN', 'rw:{test:1}:steps')", "touches rw:{test:1}:steps"),
        ("redis.call('SORT', TAG .. 'steps')", "the shim does not know where the keys of SORT are"),
    ],
)
def test_the_shim_fails_a_script_that_touches_what_it_does_not_declare(
    theatre: Theatre, line: str, complaint: str
) -> None:
    stage = theatre.stage(SETTLED)

    with pytest.raises(ResponseError, match=re.escape(complaint)):
        stage.ask(text=shimmed("settle_message", wrong(line)))


@pytest.mark.parametrize(
    "line",
    [
        "redis.call('HINCRBY', TAG .. 'stats', 'settled', 1)",
        "redis.call('XADD', TAG .. 'steps', '*', 'kind', 'step')",
        "redis.call('SET', TAG .. 'steps:x', redis.call('INCR', TAG .. 'steps:y'))",
        "word = redis.call('INCR', TAG .. 'steps:y') > 1 and 'again' or word",
    ],
)
def test_the_check_of_repeats_fails_a_script_that_does_more_the_second_time(theatre: Theatre, line: str) -> None:
    stage = theatre.stage(SETTLED)

    with pytest.raises(AssertionError):
        check_repeat(stage, text=wrong(line))
