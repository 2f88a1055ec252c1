"""What goes along when the runs of a deployment are moved to another one, and what of those that are at work?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import redis

from redisworld import DeploymentBusy, InvalidInput
from redisworld.keys import GROUP
from redisworld.messages import StepMessage, WorkflowMessage
from redisworld.observe import MessageMoved, RunFetched
from redisworld.runs import Status
from redisworld.state import WorkerState
from redisworld.world.moving import Mover
from redisworld.world.pinned import Pinned
from tests.apps import conf_app
from tests.chaos import invariants
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers

pytestmark = pytest.mark.anyio

BLUE: dict[str, Any] = {"deployment": "blue", "affinity": True, "max_inline_steps": 0}
GREEN: dict[str, Any] = {**BLUE, "deployment": "green"}


class Killed(BaseException):
    """The process ends here."""


@asynccontextmanager
async def blue_and_green(connect: Connect) -> AsyncIterator[tuple[Consumers, Consumers]]:
    async with connect(**BLUE) as blue, connect(**GREEN) as green:
        yield blue, green


async def lives(consumers: Consumers) -> None:
    """Say that this worker lives, as its heartbeat does."""
    world = consumers.world
    streams = (f"steps@{world.settings.deployment}", f"workflows@{world.settings.deployment}")
    beat = WorkerState(consumer=world.consumer, state="ready", streams=streams, beat_at=world.now_ms())
    await world.heartbeats.beat(beat, streams)


def unread(raw: redis.Redis, consumers: Consumers, kind: str) -> tuple[int, int | None]:
    """Length and lag of a stream."""
    key = consumers.partition.tag + kind
    (group,) = raw.xinfo_groups(key)
    return raw.xlen(key), group["lag"]


async def test_a_run_goes_on_at_the_other_deployment_with_all_that_waits(raw: redis.Redis, connect: Connect) -> None:
    async with blue_and_green(connect) as (blue, green):
        await blue.world.start(conf_app.wide, 5, run_id="steps")
        await blue.wake()
        await blue.world.start(conf_app.pair, run_id="wake")
        await blue.world.start(conf_app.pair, run_id="later", delay="1h")
        blue.seen.clear()
        green.seen.clear()

        would = await green.world.deployments.look("blue", "green")
        moved = await green.world.deployments.move("blue", "green")

        assert (would.done, moved.done) == (False, True)
        for told in (would, moved):
            assert (told.runs, told.messages, told.delayed, told.held) == (3, 6, 1, {})
        assert blue.queued("steps@blue") == blue.queued("workflows@blue") == []
        assert unread(raw, blue, "steps@blue") == unread(raw, blue, "workflows@blue") == (0, 0)
        assert {m.run_context.deployment_id for m in green.queued("steps@green") if isinstance(m, StepMessage)} == {
            "green"
        }
        (first,) = (m for m in green.queued("workflows@green") if m.run_id == "wake")
        assert isinstance(first, WorkflowMessage)
        assert first.run_input is not None
        assert first.run_input.deployment_id == "green"
        await green.drain()
        for run_id in ("steps", "wake", "later"):
            row = await green.world.row(run_id)
            assert (row.status, row.deployment, row.moved_from) == (Status.COMPLETED, "green", "blue")
        assert set(green.paths()) == {"run_context"}, "a moved message says where its run belongs"
        assert green.saw(MessageMoved) == []
        assert conf_app.executions("double") == 9
        invariants.check(raw, conf_app.wf)


async def test_a_second_move_finds_nothing(raw: redis.Redis, connect: Connect) -> None:
    async with blue_and_green(connect) as (blue, green):
        await blue.world.start(conf_app.pair, run_id="r")
        await green.world.deployments.move("blue", "green")
        before = raw.hgetall(blue.partition.run("r")), raw.xrange(green.partition.workflows("green"))

        again = await green.world.deployments.move("blue", "green")

        assert (again.runs, again.messages, again.delayed) == (0, 0, 0)
        assert (raw.hgetall(blue.partition.run("r")), raw.xrange(green.partition.workflows("green"))) == before


async def test_runs_may_be_moved_to_no_deployment_and_back(raw: redis.Redis, connect: Connect) -> None:
    async with blue_and_green(connect) as (blue, green), connect() as anybody:
        await blue.world.start(conf_app.pair, run_id="r")

        await blue.world.deployments.move("blue")

        assert [m.run_id for m in anybody.queued("workflows")] == ["r"]
        assert raw.hmget(blue.partition.run("r"), "deployment", "pin") == [None, None]
        await anybody.drain()
        assert await anybody.world.run("r").result(timeout=5) == [2, 4]
        with pytest.raises(InvalidInput):
            await green.world.deployments.move("", "green")
        with pytest.raises(InvalidInput):
            await green.world.deployments.move("green", "green")
        with pytest.raises(InvalidInput):
            await green.world.deployments.move("blue", "a@b")
    invariants.check(raw, conf_app.wf)


async def test_what_a_dead_worker_held_is_taken_over_and_its_attempt_counts(raw: redis.Redis, connect: Connect) -> None:
    async with blue_and_green(connect) as (blue, green):
        await blue.world.start(conf_app.one, "double", 3, run_id="r")
        await blue.wake()
        (message,) = blue.queued("steps@blue")
        assert isinstance(message, StepMessage)
        await blue.claimed(message)

        moved = await green.world.deployments.move("blue", "green")
        await green.drain()

        assert (moved.messages, moved.held) == (1, {})
        assert await green.world.run("r").result(timeout=5) == 6
        assert green.state("r", message.step_id).attempt == 2
    invariants.check(raw, conf_app.wf)


async def test_an_inline_step_goes_with_the_message_that_owns_it(raw: redis.Redis, connect: Connect) -> None:
    inline = {"max_inline_steps": 1}
    async with connect(**{**BLUE, **inline}) as blue, connect(**{**GREEN, **inline}) as green:
        await blue.world.start(conf_app.pair, run_id="r")
        delivery = await blue.take("workflows")
        assert delivery is not None

        # its worker dies while the inline step runs: nobody completes it
        async def dies(*_: object) -> Any:
            raise Killed

        blue.world.deliveries.complete = dies  # type: ignore[method-assign]
        with pytest.raises(Killed):
            await blue.process(delivery)
        assert raw.xpending(blue.partition.workflows("blue"), GROUP)["pending"] == 1

        await green.world.deployments.move("blue", "green")
        await green.drain()

        assert await green.world.run("r").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


async def test_what_live_workers_hold_is_moved_only_when_that_is_allowed_and_stays_with_them(
    raw: redis.Redis, connect: Connect
) -> None:
    async with blue_and_green(connect) as (blue, green):
        await lives(blue)
        await blue.world.start(conf_app.chain, 2, run_id="held")
        delivery = await blue.take("workflows")
        assert delivery is not None
        await blue.world.start(conf_app.pair, run_id="waits")

        with pytest.raises(DeploymentBusy, match="hold 1 messages of deployment 'blue'"):
            await green.world.deployments.move("blue", "green")
        assert (await green.world.row("waits")).deployment == "blue"
        moved = await green.world.deployments.move("blue", "green", leave_held=True)

        assert (moved.runs, moved.messages, moved.held) == (2, 1, {blue.world.consumer: 1})
        await blue.process(delivery)
        assert blue.queued("steps@blue") == [], "what comes of it goes where the run belongs"
        assert [m.run_id for m in green.queued("steps@green")] == ["held"]
        await green.drain()
        assert await green.world.run("held").result(timeout=5) == 2
        assert await green.world.run("waits").result(timeout=5) == [2, 4]
        assert "reroute" not in {seen.reason for seen in green.saw(MessageMoved)}
    invariants.check(raw, conf_app.wf)


@pytest.mark.parametrize("name", ["fails", "asks_for_time", "stumbles"])
async def test_a_body_at_work_when_its_run_is_moved_is_tried_again_at_the_other_deployment(
    raw: redis.Redis, connect: Connect, name: str
) -> None:
    async with blue_and_green(connect) as (blue, green):
        await lives(blue)
        await blue.world.start(conf_app.caught, name, 2, run_id="r")
        await blue.wake()
        delivery = await blue.take("steps")
        assert delivery is not None
        await green.world.deployments.move("blue", "green", leave_held=True)

        await blue.process(delivery)

        delayed = raw.hvals(blue.partition.delayed_body)
        assert delayed, "it is to be tried again"
        assert raw.xlen(blue.partition.steps("", "blue")) == 0
        assert all(body.startswith(b"steps@green ") for body in delayed)
        await green.drain()
        assert (await green.world.row("r")).status is Status.COMPLETED
    invariants.check(raw, conf_app.wf)


async def test_a_message_that_was_sent_before_the_move_is_not_re_routed_back(
    raw: redis.Redis, connect: Connect
) -> None:
    async with blue_and_green(connect) as (blue, green):
        await blue.world.start(conf_app.one, "double", 1, run_id="r")
        await blue.wake()
        (old,) = blue.queued("steps@blue")
        assert isinstance(old, StepMessage)
        await blue.world.deployments.move("blue", "green")
        raw.delete(green.partition.steps("", "green"))
        green.put(old, kind="steps@green")
        await green.world.queue.ensure_groups([green.stream("steps")])
        green.seen.clear()

        await green.step()

        assert green.paths() == ["run_context"]
        assert [seen.reason for seen in green.saw(RunFetched)][:1] == ["moved"]
        assert green.saw(MessageMoved) == []
        assert await green.world.run("r").result(timeout=5) == 2
    invariants.check(raw, conf_app.wf)


@pytest.mark.parametrize("method", ["_move_run", "_move_delayed", "_move_message"])
@pytest.mark.parametrize("calls", [0, 1, 2])
async def test_a_move_that_was_killed_is_repeated_and_nothing_is_lost_or_doubled(
    raw: redis.Redis, connect: Connect, monkeypatch: pytest.MonkeyPatch, method: str, calls: int
) -> None:
    done = 0
    act = getattr(Mover, method)

    async def until_killed(mover: Mover, item: Any) -> bool:
        nonlocal done
        if done == calls:
            raise Killed
        done += 1
        moved: bool = await act(mover, item)
        return moved

    async with blue_and_green(connect) as (blue, green):
        for number in range(3):
            await blue.world.start(conf_app.wide, 3, run_id=f"begun-{number}")
            await blue.wake()
            await blue.world.start(conf_app.pair, run_id=f"new-{number}")
            await blue.world.start(conf_app.pair, run_id=f"later-{number}", delay="1h")
        async with connect(**GREEN) as killed:
            monkeypatch.setattr(Mover, method, until_killed)
            with pytest.raises(Killed):
                await killed.world.deployments.move("blue", "green")
            monkeypatch.undo()

        # what was due between the two goes where it can be found
        blue.world.clock = lambda: raw.time()[0] * 1_000 + 3_700_000
        await blue.world.upkeep.promote(blue.partition)
        await green.world.deployments.move("blue", "green")
        await green.drain()

        for name, result in (("begun", 6), ("new", [2, 4]), ("later", [2, 4])):
            for number in range(3):
                found = await green.world.run(f"{name}-{number}").result(timeout=5)
                assert found == result
        assert conf_app.executions("double") == 3 * (3 + 2 + 2)
        assert unread(raw, blue, "steps@blue") == unread(raw, blue, "workflows@blue") == (0, 0)
    invariants.check(raw, conf_app.wf)


async def test_what_nobody_can_read_and_what_is_nobodys_goes_along_too(raw: redis.Redis, connect: Connect) -> None:
    async with blue_and_green(connect) as (blue, green):
        raw.xadd(blue.partition.steps("", "blue"), {"kind": "step", "run": "none", "msg": b"\xff"})
        raw.xadd(blue.partition.workflows("blue"), {"who": "knows"})
        raw.zadd("rw:{default}:streams", {"steps": 1, "workflows": 1})
        raw.hset(blue.partition.delayed_body, "step none s1", "steps@blue nonsense")
        raw.zadd(blue.partition.delayed, {"step none s1": 1, "rubbish": 2, "wait r w1": 3})

        moved = await green.world.deployments.move("blue", "green")

        assert (moved.runs, moved.messages, moved.delayed) == (0, 2, 0)
        assert raw.xlen(green.partition.steps("", "green")) == 1
        assert raw.xlen(green.partition.workflows("green")) == 1


async def test_an_entry_that_its_owner_renews_meanwhile_is_left_to_it(raw: redis.Redis, connect: Connect) -> None:
    async with blue_and_green(connect) as (blue, green):
        await blue.world.start(conf_app.pair, run_id="r")
        delivery = await blue.take("workflows")
        assert delivery is not None
        key = blue.partition.workflows("blue")
        raw.xclaim(key, GROUP, blue.world.consumer, 0, [delivery.entry_id], idle=60_000, justid=True)
        (pending,) = raw.xpending_range(key, GROUP, "-", "+", 10)
        raw.xclaim(key, GROUP, blue.world.consumer, 0, [delivery.entry_id], justid=True)

        pinned = Pinned(green.world, "blue")

        assert await pinned._take_over(blue.stream("workflows"), [pending]) == []


async def test_a_third_deployment_sends_a_message_from_before_the_move_to_where_the_run_is_now(
    raw: redis.Redis, connect: Connect
) -> None:
    async with blue_and_green(connect) as (blue, green), connect(**{**BLUE, "deployment": "red"}) as red:
        await blue.world.start(conf_app.one, "double", 1, run_id="r")
        await blue.wake()
        (old,) = blue.queued("steps@blue")
        await blue.world.deployments.move("blue", "green")
        raw.delete(green.partition.steps("", "green"))
        red.put(old, kind="steps@red")

        await red.step()

        ((_, sent),) = red.delayed()
        assert raw.hvals(red.partition.delayed_body)[0].startswith(b"steps@green ")
        assert sent == msgspec.structs.replace(old, deliveries=2, deployment_mismatch_retry_count=1)
        await green.drain()
        assert await green.world.run("r").result(timeout=5) == 2
    invariants.check(raw, conf_app.wf)
