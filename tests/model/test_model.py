"""Does the store do what the model says, whatever happens in whatever order? And would the machine see a fault?

A longer run, with other games each time unless told: ``python -m tests.model --games 5000 --seed 7``.
"""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from redisworld import scripts
from tests.model.play import play
from tests.model.stage import stage

GAMES, STEPS = range(150), 80


def test_redis_and_the_model_agree_after_every_step(redis_url: str) -> None:
    with stage(redis_url) as found:
        play(found, GAMES, STEPS)


FAULTS = {
    "a commit forgets that there is news": ("commit_pass", "if again then return go_again(held) end", ""),
    "a copy of a message starts a running step": (
        "claim_many",
        "return step.entry ~= name and entry_lives(step.entry)",
        "return false",
    ),
    "a completion is taken under any token": ("complete_many", "if step.token ~= token then return {'stale'} end", ""),
    "a drain is charged to the retry budget": ("complete_many", "step.uncharged = tonumber(step.uncharged) + 1", ""),
}
"""Name -> script, what its text says, what it says in the broken one."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_machine_finds(redis_url: str, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    # given a script with a fault
    name, right, wrong = FAULTS[fault]
    load = scripts.load
    text = load(name).text
    assert text.count(right) == 1, f"{name}.lua does not say {right!r} any more: break something else"
    broken = text.replace(right, wrong)
    sha = hashlib.sha1(broken.encode(), usedforsecurity=False).hexdigest()
    other = msgspec.structs.replace(load(name), text=broken, sha=sha)
    monkeypatch.setattr(scripts, "load", lambda asked: other if asked == name else load(asked))

    # when the machine plays with it
    # then it does not get through
    with stage(redis_url) as found, pytest.raises(AssertionError, match=r"Redis answers|after "):
        play(found, GAMES, STEPS, short=False)
