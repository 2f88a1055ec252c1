"""What becomes of messages that cannot be processed, or not yet? (cases A08 and A19)"""

from __future__ import annotations

import json
import time
from collections import Counter

import anyio
import anyio.to_thread
import msgspec
import pytest
import redis

from redisworld import messages
from redisworld.events import EventKind
from redisworld.messages import StepMessage
from tests.apps import chaos_app
from tests.chaos import invariants, malformed
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually
from tests.chaos.watching import logged, notes, settled
from tests.integration.cli_process import command

pytestmark = pytest.mark.anyio

LEASE_MS = 500


def put(raw: redis.Redis, stream: str, message: StepMessage) -> str:
    """XADD a step message as a producer does."""
    fields = {"kind": "step", "spec": "1", "run": message.run_id, "step": message.step_id, "name": message.step_name,
              "msg": messages.encode(message)}  # fmt: skip
    return raw.xadd(stream, fields).decode()


def step_message(run_id: str, step_id: str, name: str, **fields: object) -> StepMessage:
    return StepMessage(
        message_id=step_id, run_id=run_id, workflow_name="gate_then_note", step_id=step_id, step_name=name, **fields
    )  # type: ignore[arg-type]


async def test_poison_entries_go_to_the_dead_letters_whole_and_hold_up_nobody(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A08: bytes that are no message, a map without a run, a run that does not exist; then five good runs."""
    options = {"lease_ms": 500, "max_deliveries": 4, "partitions": 1, "max_inline_steps": 0}
    async with connect(**options) as world:
        [partition] = world.partitions
        no_run = msgspec.msgpack.encode({"kind": "step", "message_id": "x", "step_id": "x", "step_name": "note"})
        ghost = step_message("ghost", "s1_ghost", "note")
        bad = {
            raw.xadd(partition.steps(), {"kind": "step", "msg": b"\xc1"}).decode(): b"\xc1",
            raw.xadd(partition.steps(), {"kind": "step", "msg": no_run}).decode(): no_run,
            raw.xadd(partition.steps(), {"other": "thing"}).decode(): None,
            put(raw, partition.steps(), ghost): None,
        }
        runs = [await world.start(chaos_app.two_notes, run_id=f"good-{number}") for number in range(5)]
        worker = workers.start(**options)
        for run in runs:
            assert await run.result(timeout=5) == ["x", "y"]
        await eventually(lambda: raw.xlen(partition.dead) == 4, timeout=15, what="four dead letters")
    await settled(raw)
    letters = [fields for _, fields in raw.xrange(partition.dead)]
    by_entry = {fields[b"entry"].decode(): fields for fields in letters}
    for entry, body in bad.items():
        if body is not None:
            assert by_entry[entry][b"original:msg"] == body
    assert {fields[b"reason"] for fields in letters} == {b"undecodable", b"not_found"}
    assert all(int(fields[b"deliveries"]) <= 4 for fields in letters)
    [late] = [fields for fields in letters if fields[b"reason"] == b"not_found"]
    decoded = messages.decode(late[b"original:msg"])
    assert (decoded.message_id, decoded.deliveries) == ("s1_ghost", 4)
    assert int(raw.hget(partition.stats, "buried") or 0) == 4
    assert worker.returncode is None
    listed = await anyio.to_thread.run_sync(command, "dead", "list", "--json", "--url", workers.url)
    assert (listed.returncode, len(json.loads(listed.stdout))) == (0, 4), listed.stderr
    assert "ghost" in worker.log()
    assert not raw.exists(partition.run("ghost"))
    invariants.check(raw, chaos_app.wf)


@pytest.mark.chaos
async def test_a_flood_of_malformed_entries_ends_in_the_dead_letters_while_good_work_goes_on(
    raw: redis.Redis, workers: Workers, connect: Connect, request: pytest.FixtureRequest, figures: list[str]
) -> None:
    """A08 by the thousand, into the streams of steps and of wakes; ``--chaos-malformed 100000`` is the long form."""
    count = request.config.getoption("--chaos-malformed")
    options = {"refused_limit_ms": 0}  # what could be a newer worker's message goes at once, too
    async with connect(**options) as world:
        both = [workers.start(**options) for _ in range(2)]
        streams = [stream for p in world.partitions for stream in (p.steps(), p.workflows())]
        put: Counter[str] = Counter()
        good = []
        began = time.monotonic()
        pipeline = raw.pipeline(transaction=False)
        for number, (kind, fields) in enumerate(malformed.entries(count, seed=5)):
            pipeline.xadd(streams[number % len(streams)], fields)
            put[kind] += 1
            if number % 500 == 499:
                pipeline.execute()
                good.append(await world.start(chaos_app.fan_out_then_join, 4, run_id=f"good-{number}"))
                await eventually(lambda: sum(raw.xlen(stream) for stream in streams) < 5_000, timeout=60)
        pipeline.execute()
        for run in good:
            assert await run.result(timeout=20) == "join 4"
        await settled(raw, timeout=30)
        took = time.monotonic() - began
    buried = sum(int(raw.hget(p.stats, "buried") or 0) for p in world.partitions)
    letters = sum(raw.xlen(p.dead) for p in world.partitions)
    assert (put.total(), buried, letters) == (count, count, count)
    for run in good:
        assert set(notes(raw, run.run_id).values()) == {1}
    for worker in both:
        assert worker.returncode is None
        assert worker.log().count("\n") < 100 + 10 * took, "it floods its log"
        assert "Traceback" not in worker.log()
    figures.append(f"malformed: {count} entries of {len(put)} kinds in {took:.0f} s: all buried; {len(good)} good runs")
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("early_ms", [300, 3 * LEASE_MS], ids=["300 ms", "3 leases"])
async def test_a_step_message_that_comes_before_its_step_runs_it_once_after_its_creation(
    raw: redis.Redis, workers: Workers, connect: Connect, early_ms: int
) -> None:
    """A19: it is handed back until then. The ids follow from the run id, so those of a rehearsal are the same."""
    async with connect(namespace="scratch") as scratch:
        raw.set("probe:gate", 1)
        rehearsal = workers.start(namespace="scratch")
        assert await (await scratch.start(chaos_app.gate_then_note, "probe:gate", run_id="early")).result(timeout=10)
        rehearsal.kill()
        second = logged(raw, "early", "scratch")[EventKind.STEP_CREATED][1][0]
        raw.delete("probe:gate", "probe:early")
    async with connect(lease_ms=LEASE_MS) as world:
        workers.start(lease_ms=LEASE_MS)
        run = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="early")
        await eventually(lambda: notes(raw, "early"))
        partition = world.partition("early")
        entry = put(raw, partition.steps(), step_message("early", second, "note"))
        await eventually(lambda: raw.zcard(partition.delayed) == 1, what="the early message goes back with a delay")
        await anyio.sleep(early_ms / 1000)
        assert raw.zcard(partition.delayed) + raw.xlen(partition.steps()) == 1, "it was taken for done"
        assert notes(raw, "early") == {"a": 1}
        raw.set("probe:gate", 1)
        assert await run.result(timeout=10) == ["a", "d"]
        await eventually(lambda: raw.zcard(partition.delayed) == 0)
    await settled(raw)
    log = [event for event in invariants.log_of(raw, partition, "early") if event.id == second]
    assert [event.kind for event in log] == [EventKind.STEP_CREATED, EventKind.STEP_STARTED, EventKind.STEP_COMPLETED]
    assert log[0].at - int(entry.partition("-")[0]) >= early_ms
    assert notes(raw, "early") == {"a": 1, "d": 1}
    assert raw.xlen(partition.dead) == 0
    invariants.check(raw, chaos_app.wf)


async def test_a_message_for_a_step_that_never_comes_is_a_dead_letter_and_its_run_is_unharmed(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A19: after its delivery limit, and the log names it."""
    async with connect(max_deliveries=3) as world:
        worker = workers.start(max_deliveries=3)
        run = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="unharmed")
        await eventually(lambda: notes(raw, "unharmed"))
        partition = world.partition("unharmed")
        put(raw, partition.steps(), step_message("unharmed", "s9_never", "note"))
        await eventually(lambda: raw.xlen(partition.dead) == 1, timeout=10)
        raw.set("probe:gate", 1)
        assert await run.result(timeout=10) == ["a", "d"]
    await settled(raw)
    [(_, letter)] = raw.xrange(partition.dead)
    assert letter[b"reason"] == b"missing"
    assert messages.decode(letter[b"original:msg"]).deliveries == 3
    assert "s9_never" in worker.log()
    invariants.check(raw, chaos_app.wf)
