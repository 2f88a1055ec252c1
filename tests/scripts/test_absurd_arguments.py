"""What does a script do with arguments that make no sense? It names the argument and writes nothing.

In Lua ``tonumber('x')`` is nil and raises later: after the first writes, unless arguments are judged before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.scripts.absurd import ITEMS, RETRY_ONLY, absurd, item_fields, named
from tests.scripts.headers import COMMANDS, header
from tests.scripts.scenes import SCENES, Scene
from tests.scripts.stage import Stage, Theatre

SILENT = {"broken", "stale", "not_found", "missing", "conflict", "held", "kept", "diverged", "invalid", "fits", "lives",
          "changed", "parked", "unsure", "stranded", "no_letter"}  # fmt: skip
"""Words of scenes that write nothing as they are: they say nothing about arguments."""

UNREAD = {"gone", "full", "lost"}
"""Words of scenes whose items are not looked at."""


def writing(script: str) -> list[Scene]:
    """The scenes of a script that write something."""
    return [scene for scene in SCENES if scene.script == script and scene.word not in SILENT]


def places(stage: Stage) -> Iterator[tuple[str, int]]:
    """Every argument of the call by its name, and where it stands."""
    script, args = stage.call.script, stage.call.args
    names = header(script).args
    yield from ((f"{script}.{name}", i) for i, name in enumerate(names))
    if script in ITEMS:
        for i, name in enumerate(ITEMS[script].split()):
            if script != "complete_many" or stage.scene.word == "retrying" or name not in RETRY_ONLY:
                yield f"{script}.{name}", len(names) + i
        return
    at = len(names)
    while header(script).items and stage.scene.word not in UNREAD and at < len(args):
        fields = item_fields()[args[at]]
        yield from ((f"{script}.{args[at]}.{name}", at + 1 + i) for i, name in enumerate(fields))
        at += 1 + len(fields)


def arguments() -> Iterator[Any]:
    for script in COMMANDS:
        names = [f"{script}.{name}" for name in (*header(script).args, *ITEMS.get(script, "").split())]
        if script in ("commit_pass", "create_event"):
            alone = script == "create_event"
            ops = sorted(item_fields().keys() - ({"did", "inline", "seal", "assign"} if alone else {"waited", "start"}))
            names += [f"{script}.{op}.{field}" for op in ops for field in item_fields()[op]]
        yield from (name for name in dict.fromkeys(names) if absurd(name))


def complaint(stage: Stage, args: Sequence[Any], wanted: str) -> str:
    """What is wrong with the answer to these arguments, whose sentence must match, or ``""``. Nothing stays written."""
    word, why = stage.outcome(args)
    if stage.state() != stage.initial:
        stage.put_back()
        return f"{stage.scene.name}: answers {word} {why} and writes"
    return "" if word == "broken" and re.search(wanted, why) else f"{stage.scene.name}: answers {word} {why}"


@pytest.mark.parametrize("argument", list(arguments()))
def test_an_absurd_argument_is_named_and_nothing_is_written(argument: str, theatre: Theatre) -> None:
    found, tried = [], 0
    for scene in writing(argument.partition(".")[0]):
        stage = theatre.stage(scene)
        for place in [at for name, at in places(stage) if name == argument][:1]:
            for value in absurd(argument):
                args = [*stage.call.args]
                args[place] = value
                found.append(complaint(stage, args, f"argument {named(argument)} "))
                tried += 1

    assert tried
    assert [text for text in found if text] == []


@pytest.mark.parametrize("script", COMMANDS)
def test_a_call_with_too_few_or_too_many_arguments_is_refused(script: str, theatre: Theatre) -> None:
    found = []
    for scene in writing(script):
        if header(script).items and scene.word in UNREAD:
            continue
        stage = theatre.stage(scene)
        args = list(stage.call.args)
        wrong = [args[:-1], [*args, "one more"], []]
        if header(script).items:
            wrong.append(args[: len(header(script).args) - 1])
        found += [complaint(stage, given, "argument|item") for given in wrong]

    assert [text for text in found if text] == []


@pytest.mark.parametrize("script", sorted(ITEMS))
def test_a_batch_without_items_is_refused(script: str, theatre: Theatre) -> None:
    stage = theatre.stage(writing(script)[0])

    assert complaint(stage, stage.call.args[: len(header(script).args)], "arguments") == ""


@pytest.mark.parametrize("word", ["", "x", "step "])
@pytest.mark.parametrize("script", ["commit_pass", "create_event"])
def test_an_unknown_item_is_refused_with_the_good_ones_before_it(script: str, word: str, theatre: Theatre) -> None:
    stage = theatre.stage(writing(script)[0])
    args = list(stage.call.args)
    wrong = [*args, word] if script == "commit_pass" else [*args[: len(header(script).args)], word]

    assert complaint(stage, wrong, "item") == ""


@pytest.mark.parametrize("script", ["claim_many", "complete_many"])
def test_a_bad_item_of_a_batch_is_broken_in_its_slot_and_costs_its_neighbours_nothing(
    script: str, theatre: Theatre
) -> None:
    for scene in writing(script):
        stage = theatre.stage(scene)
        _, written = stage.play(stage.call.args)
        first = len(header(script).args)
        good = list(stage.call.args[first:])
        for at, name in enumerate(ITEMS[script].split()):
            if name not in RETRY_ONLY and absurd(f"{script}.{name}"):
                bad = [*good[:at], absurd(f"{script}.{name}")[0], *good[at + 1 :]]
                stage.put_back()
                answers = stage.send([*stage.call.args[:first], *bad, *good, *bad])

                assert [answer[0] for answer in answers] == [b"broken", stage.scene.word.encode(), b"broken"]
                assert stage.changed(stage.initial) == written, (scene.name, name)
