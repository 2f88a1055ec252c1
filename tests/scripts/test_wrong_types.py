"""What does a script do when another program has overwritten a key that it touches? It says so and writes nothing.

Every scene is played with every key that its call touches (the shim has seen which) replaced by every other type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.scripts.headers import COMMANDS, header
from tests.scripts.scenes import SCENES
from tests.scripts.shim import is_a
from tests.scripts.stage import Stage, Theatre

FOREIGN: dict[str, tuple[str | int, ...]] = {
    "string": ("SET", "foreign"),
    "list": ("RPUSH", "foreign"),
    "hash": ("HSET", "foreign", "1"),
    "set": ("SADD", "foreign"),
}
"""How another program makes a key of each type."""

TYPES = {
    "row": "hash",
    "log": "list",
    "hooks": "hash",
    "resumes": "hash",
    "outs": "hash",
    "outputs": "stream",
    "token": "hash",
    "releases": "hash",
    "streams": "stream",
    "delayed": "zset",
    "bodies": "hash",
    "nudge": "stream",
    "dead": "stream",
    "indexes": "zset",
    "expiring": "zset",
    "reclaim": "string",
    "stats": "hash",
}
"""The type that each key of ours has."""


AS_IF_GONE = {
    ("bury_message", "row"): "a message that poisons workers must go, whatever became of its run",
    ("bury_message", "log"): "a message that poisons workers must go, whatever became of its run",
    ("drop_letter", "row"): "a letter can be dropped, whatever became of its run",
    ("drop_letter", "log"): "a letter can be dropped, whatever became of its run",
    ("look_at_runs", "row"): "a run that cannot be read is told with the others, and hides none",
    ("look_at_runs", "log"): "a run that cannot be read is told with the others, and hides none",
    ("reap_expired", "row"): "the keys of a run go, whatever they hold",
    ("reap_expired", "log"): "the keys of a run go, whatever they hold",
    ("reap_expired", "hooks"): "the keys of a run go, whatever they hold",
    ("reap_expired", "resumes"): "the keys of a run go, whatever they hold",
    ("reap_expired", "outs"): "the keys of a run go, whatever they hold",
    ("reap_expired", "outputs"): "the keys of a run go, whatever they hold",
    ("start_many", "outputs"): "what an earlier run has left goes, whatever it holds",
    ("start_many", "outs"): "a run that exists is handed back, whatever it has beside its row",
    ("renew_leases", "row"): "the leases of the other deliveries go on",
    **{
        (script, "resumes"): "the end of a run only lets them expire"
        for script in COMMANDS
        if "finish" in header(script).includes
    },
    **{
        (script, "streams"): "a stream that is gone holds nothing: the delivery is lost"
        for script in COMMANDS
        if "delivery" in header(script).includes
    },
}
"""Where a key that is not ours may count as no key at all, and why."""

BURIED = {("promote_due", "row"), ("promote_due", "log"), ("promote_due", "streams")}
"""Where what cannot be done goes to the dead letters, whose detail names the key: other timers do not wait for it."""


def complaint(stage: Stage, name: str, key: str, kind: str) -> str:
    """What is wrong with the answer to the call when this key is overwritten, or ``""``."""
    command, *value = FOREIGN[kind]
    stage.put_back(("DEL", stage.tag + key), (command, stage.tag + key, *value))
    (word, why), written = stage.play(stage.call.args)
    named = key in why.split() or stage.scene.word == "broken"  # the scene has a fault of its own
    if word == "broken" and named and not written:
        return ""
    place = (stage.call.script, name)
    if place in BURIED and is_buried(stage, key, written):
        return ""
    if place in AS_IF_GONE and (word, why, written - {key}) == without(stage, key, why):
        return ""
    return f"{stage.scene.name}: with {key} a {kind} it answers {word} {why} and writes {sorted(written) or 'nothing'}"


def is_buried(stage: Stage, key: str, written: set[str]) -> bool:
    """Whether nothing was written but a dead letter that names the key, in place of what was due."""
    _, letter = (stage.client.xrevrange(f"{stage.tag}dead", count=1) or [(b"", {b"detail": b""})])[0]
    return written <= {"dead", "delayed", "delayed:body", "stats"} and key in letter[b"detail"].decode().split()


def without(stage: Stage, key: str, why: str) -> tuple[str, str, set[str]]:
    """Word, detail and written keys of the same call where the key is gone."""
    whole = stage.call.script in ("bury_message", "drop_letter")
    gone = key.removesuffix(":log") if whole else key  # the run or none of it
    stage.put_back(("DEL", stage.tag + gone))
    (word, detail), written = stage.play(stage.call.args)
    return word, why if word == "buried" else detail, written - {key}  # the id of a letter differs


def complaints(stage: Stage, name: str) -> list[str]:
    """What is wrong with the answers when the keys of this name are overwritten, one after another."""
    keys = [key for key in stage.touched if is_a(name, key)]
    found = [complaint(stage, name, key, kind) for key in keys for kind in FOREIGN if kind != TYPES[name]]
    return [text for text in found if text]


def pairs() -> Iterator[Any]:
    for script in COMMANDS:
        for name in sorted(header(script).derived | header(script).keys):
            yield pytest.param(script, name, id=f"{script}-{name}")


@pytest.mark.parametrize(("script", "name"), list(pairs()))
def test_a_key_of_another_type_is_named_and_nothing_is_written(script: str, name: str, theatre: Theatre) -> None:
    scenes = [scene for scene in SCENES if scene.script == script]

    assert [text for scene in scenes for text in complaints(theatre.stage(scene), name)] == []
