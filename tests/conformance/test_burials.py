"""What becomes of the run of a buried message, for each reason? It fails with a code, is parked, or goes on.

The table of docs/dead-letters.md, row by row, with a whole worker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest
import redis

from consumers.handback import reroute
from redisworld import messages
from redisworld.keys import GROUP
from redisworld.messages import StepMessage
from redisworld.runs import RunRow, Status
from redisworld.world.dead import REASONS, Letter
from tests.apps import conf_app
from tests.chaos.processes import eventually
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers, working

pytestmark = pytest.mark.anyio

SETTINGS: dict[str, Any] = {"refused_limit_ms": 0, "max_deliveries": 1, "recover_every_ms": 50, "max_inline_steps": 0}


async def one_step_queued(c: Consumers) -> StepMessage:
    """Run ``r`` waits for its only step, whose message is in the queue."""
    await c.world.start(conf_app.chain, 1, run_id="r")
    await c.wake()
    [message] = c.queued()
    assert isinstance(message, StepMessage)
    return message


def rewrite(raw: redis.Redis, key: str, **changes: bytes) -> None:
    """Put another entry in place of the only one of a stream."""
    [(entry, fields)] = raw.xrange(key)
    raw.xdel(key, entry)
    kept = {name: value for name, value in (fields | {k.encode(): v for k, v in changes.items()}).items() if value}
    raw.xadd(key, kept)


def deliver_again(raw: redis.Redis, key: str) -> None:
    """The only entry was delivered to a worker that died, once too often."""
    raw.xreadgroup(GROUP, "dead", {key: ">"}, count=1)
    [(entry, _)] = raw.xrange(key)
    raw.xclaim(key, GROUP, "dead", 0, [entry], idle=10**8)


async def unknown_workflow(c: Consumers) -> None:
    await c.world.create_run("r", "nobody-knows", b"\x80")


async def unknown_step(c: Consumers) -> None:
    message = await one_step_queued(c)
    c.replace_queued(msgspec.structs.replace(message, step_name="nobody-knows"))


async def newer_spec(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    rewrite(c.raw, c.partition.workflows(), spec=b"9")


async def rubbish_for_a_wake(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    rewrite(c.raw, c.partition.workflows(), msg=b"\xc1")


async def more_fields_than_a_script_can_unpack(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    rewrite(c.raw, c.partition.workflows(), msg=b"\xc1", **{f"f{number}": b"\x00,\n" for number in range(9_000)})


async def rubbish_for_a_run_that_none_can_be_called(c: Consumers) -> None:
    await c.world.start(conf_app.pair, run_id="r")
    c.raw.xadd(c.partition.steps(), {"kind": "step", "run": "two words|", "msg": b"\xc1"})


async def rubbish_for_a_step(c: Consumers) -> None:
    await one_step_queued(c)
    rewrite(c.raw, c.partition.steps(), msg=b"\xc1")


async def no_such_step(c: Consumers) -> None:
    await c.world.start(conf_app.napped, 1, run_id="r")
    stray = StepMessage(message_id="s9", run_id="r", workflow_name="napped", step_id="s9", step_name="double")
    c.put(stray)


async def delivered_too_often(c: Consumers) -> None:
    await one_step_queued(c)
    deliver_again(c.raw, c.partition.steps())


async def delivered_too_often_and_its_run_not_in_clear(c: Consumers) -> None:
    await one_step_queued(c)
    rewrite(c.raw, c.partition.steps(), run=b"")
    deliver_again(c.raw, c.partition.steps())


async def garbled_state(c: Consumers) -> None:
    await one_step_queued(c)
    garble(c)


async def garbled_while_the_body_runs(c: Consumers) -> None:
    """The completion was answered ``broken``, which nobody was told, and the body ran again after each lease."""
    await one_step_queued(c)
    _garble_in_the_body(c)


async def too_many_reroutes(c: Consumers) -> None:
    """What a worker of another deployment does at last."""
    await one_step_queued(c)
    delivery = await c.take("steps")
    assert delivery is not None
    message = messages.decode(delivery.fields["msg"])
    await reroute(c.world, delivery, message, message, deployment="blue", target="", hops=3)


def garble(c: Consumers) -> None:
    """Nobody can read the states of run ``r``'s steps any more."""
    row = c.partition.run("r")
    for field in c.raw.hkeys(row):
        if field.startswith(b"s:"):
            c.raw.hset(row, field.decode(), "rubbish")


def _garble_in_the_body(c: Consumers) -> None:
    conf_app.during.append(lambda: garble(c))


Bury = Callable[[Consumers], Awaitable[None]]
FAILED, PARKED, GOES_ON = "failed", "parked", "goes on"

BURIALS: dict[Bury, tuple[str, str, str]] = {
    unknown_workflow: ("unknown_name", PARKED, ""),
    unknown_step: ("unknown_name", PARKED, ""),
    newer_spec: ("newer_spec", PARKED, ""),
    garbled_state: ("broken", PARKED, ""),
    garbled_while_the_body_runs: ("broken", PARKED, ""),
    rubbish_for_a_wake: ("undecodable", GOES_ON, ""),
    more_fields_than_a_script_can_unpack: ("undecodable", GOES_ON, ""),
    rubbish_for_a_run_that_none_can_be_called: ("undecodable", GOES_ON, ""),
    rubbish_for_a_step: ("undecodable", GOES_ON, ""),
    no_such_step: ("missing", GOES_ON, ""),
    delivered_too_often: ("max_deliveries", FAILED, "MAX_DELIVERIES_EXCEEDED"),
    delivered_too_often_and_its_run_not_in_clear: ("max_deliveries", FAILED, "MAX_DELIVERIES_EXCEEDED"),
    too_many_reroutes: ("deployment_mismatch", FAILED, "DEPLOYMENT_MISMATCH"),
}


@pytest.mark.parametrize("bury", BURIALS)
async def test_the_run_of_a_buried_message_is_never_silently_open(
    connect: Connect, raw: redis.Redis, bury: Bury
) -> None:
    reason, outcome, code = BURIALS[bury]
    async with connect(**SETTINGS) as consumers:
        await bury(consumers)
        async with working(consumers):
            await eventually(lambda: raw.xlen(consumers.partition.dead) == 1, what="a dead letter")
            [letter] = [letter async for letter in consumers.world.dead.letters()]
            row = await _rests(consumers, outcome, letter)
    assert letter.reason == reason
    assert row.code == code
    assert raw.xlen(consumers.partition.dead) == 1, "it is not buried again and again"


async def _rests(consumers: Consumers, outcome: str, letter: Letter) -> RunRow:
    """The row of run ``r``, once it has come to that."""
    if outcome == PARKED:
        await anyio.sleep(0.4)  # several sweeps see it and leave it alone
        row = await consumers.world.row("r")
        assert (row.status.terminal, row.parked) == (False, (letter.name,))
        return row
    wanted = Status.FAILED if outcome == FAILED else Status.COMPLETED
    with anyio.fail_after(15):
        while (row := await consumers.world.row("r")).status is not wanted:  # noqa: ASYNC110 another task works
            await anyio.sleep(0.02)
    return row


async def test_the_wake_of_an_inline_step_whose_outcome_cannot_be_recorded_is_buried(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """It stayed pending, and after each lease the body ran again."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.pair, run_id="r")
        _garble_in_the_body(consumers)
        await consumers.wake()
        letter = await _only_letter(consumers)
    assert (letter.reason, letter.kind) == ("broken", "workflow")
    assert letter.detail.startswith("the completion answered broken: the state of this step")
    [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (line.levelname, letter.detail in line.getMessage()) == ("ERROR", True)


async def test_the_owner_of_an_inline_step_whose_state_cannot_be_read_is_buried(connect: Connect) -> None:
    async with connect() as consumers:
        await consumers.world.start(conf_app.chain, 1, run_id="r")
        delivery = await consumers.take("workflows")
        assert delivery is not None
        await consumers.die_in_the_body(delivery)
        garble(consumers)
        await consumers.process(await consumers.redelivered(delivery))
        letter = await _only_letter(consumers)
    assert (letter.reason, letter.kind) == ("broken", "workflow")


async def _only_letter(consumers: Consumers) -> Letter:
    """The only dead letter, for which run ``r`` is parked."""
    [letter] = [letter async for letter in consumers.world.dead.letters()]
    assert (await consumers.world.row("r")).parked == (letter.name,)
    return letter


async def test_a_message_of_a_run_that_does_not_exist_makes_no_run(connect: Connect, raw: redis.Redis) -> None:
    async with connect(**SETTINGS) as consumers, working(consumers):
        consumers.put(
            StepMessage(message_id="s1", run_id="ghost", workflow_name="pair", step_id="s1", step_name="double")
        )
        await eventually(lambda: raw.xlen(consumers.partition.dead) == 1, what="a dead letter")
        [letter] = [letter async for letter in consumers.world.dead.letters()]
    assert letter.reason == "not_found"
    assert not raw.exists(consumers.partition.run("ghost"))


def test_every_reason_is_buried_here() -> None:
    assert {reason for reason, _, _ in BURIALS.values()} | {"not_found"} == set(REASONS)
