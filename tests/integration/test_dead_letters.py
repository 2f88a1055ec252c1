"""Can people list, look at, redrive and drop dead letters, and do the runs go on? (design section 11, case A08)"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from typing import Any

import anyio
import msgspec
import pytest
import redis

from redisworld import LetterNotFound, RunGone, Settings, World, messages
from redisworld.messages import RunContext, StepMessage
from tests.apps import conf_app
from tests.chaos import invariants
from tests.conformance.harness import Consumers, connected
from tests.integration.cli_calls import answer_json, called
from tests.integration.cli_process import ROOT, environment
from tests.integration.planting import PARTITION, bury_rubbish, bury_step, bury_wake, drained, plant, status_of

QUEUED = {"max_inline_steps": 0}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)


def names(capsys: pytest.CaptureFixture[str], url: str, *filters: str) -> list[str]:
    """The names of the letters that fit."""
    return [letter["letter"] for letter in answer_json(capsys, "dead", "list", "--url", url, *filters)]


# -- list and show


def test_letters_of_every_kind_are_listed_without_crashing(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def some(consumers: Consumers) -> None:
        await bury_step(consumers)
        await bury_wake(consumers, "r2")
        await bury_rubbish(consumers)
        raw.xadd(PARTITION.dead, {"what": "somebody else's"})

    plant(redis_url, raw, some, **QUEUED)

    code, out, err = called(capsys, "dead", "list", "--url", redis_url)

    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", 5)
    assert lines[0].split() == ["LETTER", "AT", "REASON", "KIND", "RUN", "NAME", "DELIVERIES"]
    assert [line.split()[2:5] for line in lines[1:4]] == [
        ["unknown_name", "step", "r1"],
        ["unknown_name", "workflow", "r2"],
        ["undecodable", "step", "-"],
    ]


@pytest.mark.parametrize(
    "number", ["\u00b2", "\u0663", "-1", "x", "9" * 5_000], ids=["superscript", "arabic", "negative", "word", "long"]
)
def test_numbers_of_a_stranger_in_a_letter_hide_no_letter(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, number: str
) -> None:
    """A superscript two passes for a digit in Python, and is no number: one such letter used to end every list."""

    async def some(consumers: Consumers) -> None:
        await bury_step(consumers)
        theirs = {"reason": "undecodable", "deliveries": number, "at": number}
        original = {"original:spec": number, "original:at": number, "original:kind": "step", "original:msg": "x"}
        raw.xadd(PARTITION.dead, theirs | original)

    plant(redis_url, raw, some, **QUEUED)
    found = names(capsys, redis_url)

    assert len(found) == 2
    shown = answer_json(capsys, "dead", "show", found[1], "--url", redis_url)
    assert (shown["deliveries"], shown["at"], shown["message"]) == (0, 0, None)
    assert called(capsys, "dead", "redrive", found[1], "--url", redis_url)[0] == 1
    assert called(capsys, "dead", "redrive", found[0], "--url", redis_url)[0] == 0


@pytest.mark.parametrize("name", ["0/\u0663-\u0661", "\u0660/1-1", f"0/{2**64}-0", f"0/1-{2**64}", "0/1", "7"])
@pytest.mark.parametrize("verb", [["show"], ["redrive"], ["drop", "--yes"], ["list", "--after"]])
def test_what_cannot_be_the_name_of_a_letter_is_refused(
    capsys: pytest.CaptureFixture[str], redis_url: str, verb: list[str], name: str
) -> None:
    async def make() -> None:
        async with World.connect(redis_url):
            pass

    anyio.run(make)

    code, out, err = called(capsys, "dead", *verb, name, "--url", redis_url)

    assert (code, out) == (2, "")
    assert f"{name!r} is no dead letter" in err


def test_a_list_is_filtered_and_paged(capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis) -> None:
    async def some(consumers: Consumers) -> None:
        for number in range(3):
            await bury_step(consumers, f"r{number}")
        await bury_wake(consumers, "r9")
        await bury_rubbish(consumers)

    plant(redis_url, raw, some, **QUEUED)
    every = names(capsys, redis_url)

    assert len(every) == 5
    assert names(capsys, redis_url, "--reason", "undecodable") == every[4:]
    assert names(capsys, redis_url, "--run", "r1") == every[1:2]
    assert names(capsys, redis_url, "--kind", "workflow") == every[3:4]
    code, out, err = called(capsys, "dead", "list", "--limit", "2", "--json", "--url", redis_url)
    assert (code, [letter["letter"] for letter in json.loads(out)]) == (0, every[:2])
    assert err == f"(more: --after {every[1]})\n"
    assert names(capsys, redis_url, "--after", every[1]) == every[2:]
    assert (
        called(capsys, "dead", "list", "--run", "nobody", "--url", redis_url)[1] == "none of the 5 dead letters fits\n"
    )


def test_letters_of_all_partitions_are_listed_in_pages(redis_url: str, raw: redis.Redis) -> None:
    async def run() -> None:
        async with World.connect(settings=Settings(url=redis_url, partitions=3)) as world:
            for partition in world.partitions:
                for number in range(150):
                    raw.xadd(partition.dead, {"reason": "undecodable", "original:run": f"r{number}"})
            found = [letter async for letter in world.dead.letters()]
            assert len({letter.name for letter in found}) == len(found) == await world.dead.count() == 450
            after = [letter async for letter in world.dead.letters(after=found[160].name)]
            assert after == found[161:]

    anyio.run(run)


def test_a_letter_is_shown_with_its_message_and_gives_its_bytes_back(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    plant(redis_url, raw, bury_step, **QUEUED)
    [(_, fields)] = raw.xrange(PARTITION.dead)
    [name] = names(capsys, redis_url)

    code, text, _ = called(capsys, "dead", "show", name, "--url", redis_url)
    told = answer_json(capsys, "dead", "show", name, "--url", redis_url)
    show = [sys.executable, "-m", "redisworld", "dead", "show", name, "--raw", "--url", redis_url]
    done = subprocess.run(show, cwd=ROOT, env=environment(), capture_output=True, timeout=60, check=True)

    assert code == 0
    assert "unknown_name: no worker knew the name" in text
    assert "step_name" in text
    assert told["message"]["step_name"] == "double"
    assert told["message"]["run_context"]["root_run_id"] == "r1"
    assert told["message"]["step_input"] == {"number": 0}
    assert base64.b64decode(told["original"]["msg"]) == fields[b"original:msg"]
    assert (told["stream"], told["entry"]) == (PARTITION.steps(), fields[b"entry"].decode())
    assert done.stdout == fields[b"original:msg"]


def test_bytes_that_are_no_message_are_shown_and_their_redrive_is_refused(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    plant(redis_url, raw, bury_rubbish)
    [name] = names(capsys, redis_url)

    _, text, _ = called(capsys, "dead", "show", name, "--url", redis_url)
    code, out, err = called(capsys, "dead", "redrive", name, "--url", redis_url)

    assert r"no message: b'\xc1'" in text
    assert (code, out) == (1, "")
    assert f"{name}  refused  the bytes of dead letter '{name}' are no message, so it cannot be sent again" in err
    assert raw.xlen(PARTITION.dead) == 1


# -- redrive


@pytest.mark.parametrize("bury", [bury_step, bury_wake])
def test_a_parked_run_goes_on_when_its_letter_is_redriven(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, bury: Any
) -> None:
    plant(redis_url, raw, bury, **QUEUED)
    [name] = names(capsys, redis_url)
    assert f"parked      dead letter {name}" in called(capsys, "run", "show", "r1", "--url", redis_url)[1]

    told = answer_json(capsys, "dead", "redrive", name, "--url", redis_url)

    assert (told["redriven"], told["refused"]) == (1, 0)
    assert names(capsys, redis_url) == []
    assert "parked" not in called(capsys, "run", "show", "r1", "--url", redis_url)[1]
    drained(redis_url, raw)
    assert status_of(redis_url, "r1") == "completed"
    invariants.check(raw, conf_app.wf)


def test_a_redriven_message_is_the_original_as_new(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    """Its id, input and context stay; what counted its refusals is gone; a context it never had is stamped."""

    async def old(consumers: Consumers) -> None:
        await consumers.world.start(conf_app.chain, 1, run_id="r1")
        await consumers.wake()
        [message] = consumers.queued()
        assert isinstance(message, StepMessage)
        consumers.replace_queued(
            msgspec.structs.replace(
                message, run_context=None, deliveries=7, first_refused_at=5, deployment_mismatch_retry_count=2
            )
        )
        delivery = await consumers.take("steps")
        assert delivery is not None
        await consumers.world.deliveries.bury(delivery, run_id="r1", reason="unknown_name", detail="")

    plant(redis_url, raw, old, **QUEUED)
    [(_, letter)] = raw.xrange(PARTITION.dead)

    answer_json(capsys, "dead", "redrive", "--all", "--url", redis_url)

    [(_, fields)] = raw.xrange(PARTITION.steps())
    before, after = messages.decode(letter[b"original:msg"]), messages.decode(fields[b"msg"])
    assert isinstance(after, StepMessage)
    assert isinstance(after.run_context, RunContext)
    assert (after.run_context.root_run_id, after.deliveries, after.first_refused_at) == ("r1", 1, None)
    assert after.deployment_mismatch_retry_count == 0
    kept = ("message_id", "run_id", "step_id", "step_name", "step_input", "requested_at")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert {name: fields[name] for name in (b"kind", b"run", b"step", b"name", b"spec")} == {
        name: letter[b"original:" + name] for name in (b"kind", b"run", b"step", b"name", b"spec")
    }


def test_a_message_of_a_newer_version_keeps_the_fields_that_this_one_does_not_know(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def newer(consumers: Consumers) -> None:
        await consumers.world.start(conf_app.pair, run_id="r1")
        body = {"kind": "telegram", "message_id": "m1", "run_id": "r1", "to": [1, {"a": b"\xff"}], "deliveries": 9}
        fields = {"kind": "telegram", "spec": "7", "run": "r1", "msg": msgspec.msgpack.encode(body)}
        raw.xadd(PARTITION.steps(), fields)
        delivery = await consumers.take("steps")
        assert delivery is not None
        await consumers.world.deliveries.bury(delivery, run_id="r1", reason="newer_spec", detail="")

    plant(redis_url, raw, newer)

    answer_json(capsys, "dead", "redrive", "--all", "--url", redis_url)

    [(_, fields)] = raw.xrange(PARTITION.steps())
    assert (fields[b"kind"], fields[b"spec"]) == (b"telegram", b"7")
    assert msgspec.msgpack.decode(fields[b"msg"])["to"] == [1, {"a": b"\xff"}]
    assert "deliveries" not in msgspec.msgpack.decode(fields[b"msg"])


@pytest.mark.parametrize(
    ("ending", "told"),
    [("fail", "run 'r1' is failed: nothing starts on a finished run"), ("vanish", "there is no run 'r1'")],
)
def test_the_redrive_of_a_letter_of_a_run_that_is_over_is_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, ending: str, told: str
) -> None:
    async def over(consumers: Consumers) -> None:
        await bury_wake(consumers, reason="max_deliveries", code="MAX_DELIVERIES_EXCEEDED")
        if ending == "vanish":
            raw.delete(PARTITION.run("r1"), PARTITION.log("r1"))

    plant(redis_url, raw, over)
    [name] = names(capsys, redis_url)

    code, out, err = called(capsys, "dead", "redrive", name, "--url", redis_url)

    assert (code, out) == (1, "")
    assert told in err
    assert names(capsys, redis_url) == [name]
    assert raw.xlen(PARTITION.workflows()) == 0


def test_a_second_redrive_says_that_the_letter_is_gone(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    plant(redis_url, raw, bury_wake)
    [name] = names(capsys, redis_url)
    answer_json(capsys, "dead", "redrive", name, "--url", redis_url)

    code, _, err = called(capsys, "dead", "redrive", name, "--url", redis_url)

    assert code == 1
    assert f"there is no dead letter '{name}': it was redriven or dropped already" in err
    assert raw.xlen(PARTITION.workflows()) == 1


def test_of_many_letters_those_that_can_be_are_redriven(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def some(consumers: Consumers) -> None:
        await bury_wake(consumers, "r1")
        await bury_rubbish(consumers)
        await bury_wake(consumers, "r2")

    plant(redis_url, raw, some)

    code, out, err = called(capsys, "dead", "redrive", "--all", "--url", redis_url)

    assert (code, out.count("redriven"), err.count("refused")) == (1, 2, 1)
    drained(redis_url, raw)
    assert [status_of(redis_url, run_id) for run_id in ("r1", "r2")] == ["completed", "completed"]


def test_a_redriven_message_that_nobody_knows_becomes_a_letter_again_and_not_twice(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def unknown(consumers: Consumers) -> None:
        await bury_wake(consumers, "r1")
        [name] = [letter.name async for letter in consumers.world.dead.letters()]
        await consumers.world.dead.redrive(name)
        delivery = await consumers.take("workflows")
        assert delivery is not None
        await consumers.world.deliveries.bury(delivery, run_id="r1", reason="unknown_name", detail="again")
        row = await consumers.world.row("r1")
        [again] = [letter.name async for letter in consumers.world.dead.letters()]
        assert row.parked == (again,)
        assert again != name

    plant(redis_url, raw, unknown)


# -- drop and refusals


def test_drop_needs_yes_and_deletes(capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis) -> None:
    plant(redis_url, raw, bury_rubbish)
    [name] = names(capsys, redis_url)

    refused = called(capsys, "dead", "drop", name, "--url", redis_url)
    dropped = called(capsys, "dead", "drop", name, "--yes", "--url", redis_url)
    again = called(capsys, "dead", "drop", name, "--yes", "--url", redis_url)

    assert refused[0] == 2
    assert "add --yes" in refused[2]
    assert dropped[:2] == (0, f"{name}  dropped\n")
    assert again[0] == 1
    assert raw.xlen(PARTITION.dead) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["dead", "lst"], 2, "invalid choice: 'lst'"),
        (["dead", "redrive"], 2, "name the letters, or choose them with --all, --reason, --run or --kind"),
        (["dead", "redrive", "0/1-1", "--all"], 2, "name the letters, or choose them"),
        (["dead", "drop", "--all"], 2, "add --yes"),
        (["dead", "show", "0/1-1"], 1, "there is no dead letter '0/1-1'"),
        (["dead", "show", "1-1"], 2, "'1-1' is no dead letter: its name is a partition from 0 to 0 and an entry id"),
        (["dead", "show", "7/1-1"], 2, "its name is a partition from 0 to 0"),
        (["dead", "list", "--reason", "bad_luck"], 2, "must be one of undecodable, unknown_name"),
        (["dead", "list", "--limit", "0"], 2, "--limit: must be a whole number from 1"),
        (["dead", "list", "--after", "x"], 2, "'x' is no dead letter"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, arguments: list[str], code: int, told: str
) -> None:
    async def nothing(_: Consumers) -> None:
        """Only makes the namespace."""

    plant(redis_url, raw, nothing)

    found, out, err = called(capsys, *arguments, *(["--url", redis_url] if len(arguments) > 1 else []))

    assert (found, out) == (code, "")
    assert told in err
    assert err.count("\n") == 1


def test_the_world_raises_what_a_caller_can_decide_by(redis_url: str, raw: redis.Redis) -> None:
    async def run() -> None:
        async with connected(redis_url, raw) as consumers:
            await bury_wake(consumers)
            world = consumers.world
            [name] = [letter.name async for letter in world.dead.letters()]
            await world.cancel("r1", terminate=True)
            with pytest.raises(RunGone, match="is cancelled") as gone:
                await world.dead.redrive(name)
            assert gone.value.run_id == "r1"
            await world.dead.drop(name)
            with pytest.raises(LetterNotFound):
                await world.dead.drop(name)

    anyio.run(run)
