"""What does a script do where somebody else has written over what it reads? It answers, and does not fail half-way.

A script that fails in the middle keeps what it has written until then, and the same call fails for ever. Each field of
each hash, each element of each log and each score that lies there when a script is called is damaged in turn.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripts.headers import COMMANDS
from tests.scripts.scenes import SCENES
from tests.scripts.stage import Stage, Theatre

GARBLED = ("x", "", "inf", "12\n", "9" * 30, "|" * 12)
SCORES = ("-inf", "inf", "1e300")


def damages(stage: Stage) -> Iterator[tuple[str | int | bytes, ...]]:
    """Commands, each of which damages one thing."""
    client = stage.client
    for key in client.keys("*"):
        match client.type(key):
            case b"hash":
                for field in client.hkeys(key):
                    yield from (("HSET", key, field, text) for text in GARBLED)
                    yield "HDEL", key, field
            case b"list":
                length = client.llen(key)
                yield from (("LSET", key, place, text) for place in range(length) for text in GARBLED)
                yield from (("LTRIM", key, 0, place) for place in range(length - 1))
            case b"zset":
                for member in client.zrange(key, 0, -1):
                    yield from (("ZADD", key, score, member) for score in SCORES)
                    yield "ZREM", key, member
                yield from (("ZADD", key, 1, text) for text in GARBLED)


@pytest.mark.parametrize("script", COMMANDS)
def test_a_script_answers_whatever_it_finds(script: str, theatre: Theatre) -> None:
    failed = []
    for scene in (scene for scene in SCENES if scene.script == script):
        stage = theatre.stage(scene)
        for damage in list(damages(stage)):
            stage.put_back(damage)
            word, detail = stage.outcome(stage.call.args)
            if word == "error":
                failed.append((scene.name, damage, detail))
    assert not failed, f"{len(failed)} calls failed, such as {failed[:3]}"
