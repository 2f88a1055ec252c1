"""Does what a step writes to an output stream arrive once, in order, at once, and end when it is over?"""

from __future__ import annotations

import gc
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import redis

from redisworld import (
    InvalidInput,
    InvalidValue,
    MalformedMessage,
    OutputClosed,
    OutputInfo,
    RunGone,
    RunNotFound,
    StaleAttempt,
    Writable,
)
from redisworld.settings import Settings
from redisworld.world import OwnRun, World
from tests.apps import outside_app
from tests.apps.outside_app import Token
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers, monitored

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _forget() -> None:
    outside_app.seen.clear()
    outside_app.during.clear()


def consumers_of(connect: Connect, **settings: Any) -> Any:
    return connect(app=outside_app.wf, **settings)


async def values_of(consumers: Consumers, run_id: str, name: str = "default", **options: Any) -> list[Any]:
    return [chunk.value async for chunk in consumers.world.run(run_id).stream(name, **options)]


async def test_a_reader_gets_each_value_while_the_step_that_writes_it_runs(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        # given a step that goes on only when its last value has been read
        run = await consumers.world.start(outside_app.talk, 5, run_id="r")
        read: list[Any] = []
        arrived = [anyio.Event() for _ in range(5)]
        outside_app.during.extend(event.wait for event in arrived)

        # when somebody reads along
        async def follow() -> None:
            async for token in run.read(type=Token):
                read.append(token)
                arrived[token.n].set()

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await consumers.drain()

        # then each value has come, as its type, and the reader has ended with the close
        assert read == [Token(f"t{n}", n) for n in range(5)]


async def test_a_reader_from_a_chunk_on_gets_what_came_after_it(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        await consumers.world.start(outside_app.talk, 5, run_id="r")
        await consumers.drain()

        chunks = [chunk async for chunk in consumers.world.run("r").stream()]

        assert [chunk.value["n"] for chunk in chunks] == [0, 1, 2, 3, 4]  # no type: a dataclass is its contents
        assert [chunk.number for chunk in chunks] == [1, 2, 3, 4, 5]
        assert {(chunk.attempt, chunk.step_id[0]) for chunk in chunks} == {(1, "s")}
        assert [value["n"] for value in await values_of(consumers, "r", after=chunks[2].id)] == [3, 4]
        assert [token async for token in consumers.world.run("r").read(type=Token, after=chunks[3].id)] == [
            Token("t4", 4)
        ]
        assert await values_of(consumers, "r", after=chunks[4].id) == []


async def test_what_an_attempt_wrote_that_is_tried_again_comes_again_with_the_next_attempt(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.stumbling, 2, run_id="r")
        await consumers.drain()

        chunks = [chunk async for chunk in run.stream("progress")]

        assert await run.result(timeout=5) == 3
        assert [(chunk.attempt, chunk.index, chunk.value) for chunk in chunks] == [
            *((1, 0, "1a"), (1, 1, "1b"), (2, 0, "2a"), (2, 1, "2b"), (3, 0, "3a"), (3, 1, "3b"))
        ]
        assert len({chunk.step_id for chunk in chunks}) == 1
        assert await run.outputs() == [OutputInfo("progress", 6, True)]


async def test_steps_write_to_a_stream_that_their_body_hands_them_and_one_closes_it(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.shared, 4, run_id="r")
        await consumers.drain()

        assert sorted([value async for value in run.read("shared")]) == [f"part {n}" for n in range(4)]
        assert await run.outputs() == [OutputInfo("shared", 4, True)]


async def test_a_step_of_another_run_writes_to_a_stream_that_was_handed_over(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        parent = await consumers.world.start(outside_app.talk, 0, run_id="parent")
        await consumers.world.start(outside_app.forwarded, Writable("parent", "forwarded"), run_id="child")
        delivery = await consumers.take("workflows")
        assert delivery is not None
        first, second = delivery, await consumers.take("workflows")
        assert second is not None
        await consumers.process(second)  # the child
        await consumers.process(first)

        [chunk] = [chunk async for chunk in parent.stream("forwarded")]

        assert (chunk.value, chunk.attempt) == ("from another run", 1)


async def test_a_stream_that_nobody_closes_ends_with_its_run(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        await consumers.world.start(outside_app.talk, 0, run_id="other")
        run = await consumers.world.start(outside_app.talk, 1, run_id="r")
        read: list[Any] = []

        async def follow(name: str) -> None:
            read.append((name, [value async for value in run.read(name)]))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow, "never-written")
                await consumers.drain()

        assert read == [("never-written", [])]


async def test_one_that_does_not_follow_ends_where_there_is_no_more_now(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        await consumers.world.start(outside_app.talk, 1, run_id="r")  # and nobody works

        assert await values_of(consumers, "r", follow=False) == []


async def test_concurrent_writes_of_a_step_are_each_written_once_in_one_order(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.counting, run_id="r")
        await consumers.drain()

        chunks = [chunk async for chunk in run.stream("numbers", type=int)]

        assert [chunk.value for chunk in chunks] == list(range(10))
        assert [chunk.index for chunk in chunks] == list(range(10))


async def test_a_sync_step_writes_through_anyio_from_thread(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.threaded, "hi", run_id="r")
        await consumers.drain()

        assert [value async for value in run.read()] == ["hi"]
        assert await run.attributes() == {"written": "hi"}


@pytest.mark.parametrize(
    ("kind", "complaint"), [("lock", "output stream 'default'"), ("big", "65,536 of output_chunk_bytes")]
)
async def test_a_value_that_cannot_be_a_chunk_is_refused_where_it_is_written(
    connect: Connect, kind: str, complaint: str
) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.says_badly, kind, run_id="r")
        await consumers.drain()

        assert complaint in await run.result(timeout=5)
        assert await run.outputs() == []


async def test_a_body_that_writes_itself_is_told_to_hand_the_writable_to_a_step(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.writes_itself, run_id="r")
        await consumers.drain()

        with pytest.raises(Exception, match="hand the writable to a step"):
            await run.result(timeout=5)


async def test_a_stream_keeps_its_newest_chunks_and_the_numbers_show_what_went(connect: Connect) -> None:
    async with consumers_of(connect, output_length=3) as consumers:
        run = await consumers.world.start(outside_app.talk, 10, run_id="r")
        await consumers.drain()

        assert [chunk.number async for chunk in run.stream()] == [8, 9, 10]


# -- the fences of a write


class Writing:
    """A step in flight whose attempt writes by hand."""

    def __init__(self, world: World, step_id: str, token: str, attempt: int = 1) -> None:
        self.own_run = OwnRun(world, run_id="r", step_id=step_id, attempt=attempt, token=token)

    async def __call__(self, *chunks: bytes, close: bool = False) -> None:
        await self.own_run.write("r", "default", list(chunks), close=close)


async def in_flight(consumers: Consumers) -> Writing:
    """The step of a run, claimed by somebody who now writes."""
    await consumers.world.start(outside_app.talk, 1, run_id="r")
    await consumers.wake()
    [message] = consumers.queued()
    claimed = await consumers.claimed(message)  # type: ignore[arg-type]
    return Writing(consumers.world, claimed.step_id, claimed.token)


async def test_a_chunk_whose_reply_was_lost_is_written_once(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async with consumers_of(connect, max_inline_steps=0) as consumers:
        write = await in_flight(consumers)
        scripts, lost = consumers.world.connection.nodes.scripts(""), []
        call = scripts.call

        async def losing(*args: Any, timeout: float) -> Any:
            answer = await call(*args, timeout=timeout)
            if len(lost) < 2:
                lost.append(answer)
                raise ConnectionError("the reply was lost")
            return answer

        monkeypatch.setattr(scripts, "call", losing)
        await write(b"\x01", b"\x02")
        await write(b"\x03")

        assert len(lost) == 2
        assert await values_of(consumers, "r", follow=False) == [1, 2, 3]


async def test_an_attempt_that_is_not_the_running_one_writes_nothing(connect: Connect) -> None:
    async with consumers_of(connect, max_inline_steps=0) as consumers:
        write = await in_flight(consumers)
        await write(b"\x01")
        zombie = Writing(consumers.world, write.own_run.step_id, "another.1")

        with pytest.raises(StaleAttempt, match=r"attempt 1 of step s1_.* is not the running one") as stale:
            await zombie(b"\x02")
        assert vars(stale.value) == {"run_id": "r", "step_id": write.own_run.step_id, "attempt": 1}

        assert await values_of(consumers, "r", follow=False) == [1]


async def test_a_closed_stream_takes_no_more_and_names_who_closed_it(connect: Connect) -> None:
    async with consumers_of(connect, max_inline_steps=0) as consumers:
        write = await in_flight(consumers)
        await write(b"\x01", close=True)
        await write(close=True)  # a repeat

        with pytest.raises(OutputClosed, match=f"closed by step {write.own_run.step_id}") as closed:
            await write(b"\x02")
        assert vars(closed.value) == {"run_id": "r", "name": "default", "closed_by": write.own_run.step_id}

        assert await values_of(consumers, "r") == [1]


async def test_after_the_end_of_the_run_nothing_is_written(connect: Connect) -> None:
    async with consumers_of(connect, max_inline_steps=0) as consumers:
        write = await in_flight(consumers)
        await write(b"\x01")
        await consumers.world.run("r").terminate()

        with pytest.raises(RunGone, match="run 'r' is cancelled") as gone:
            await write(b"\x02")
        assert gone.value.run_id == "r"

        assert await values_of(consumers, "r") == [1]


async def test_output_streams_go_with_their_run(connect: Connect, raw: redis.Redis) -> None:
    async with consumers_of(connect, retention_ms=0) as consumers:
        run = await consumers.world.start(outside_app.talk, 3, run_id="r")
        await consumers.drain()
        assert raw.exists(consumers.partition.output("r", "default"), consumers.partition.outs("r")) == 2

        await consumers.world.upkeep.reap(consumers.partition, 10)

        assert list(raw.scan_iter(match="*run:r*")) == []
        with pytest.raises(RunNotFound):
            await values_of(consumers, "r")
        with pytest.raises(RunNotFound):
            await run.attributes()


@pytest.mark.parametrize("name", ["", "a b", "a:b", "x" * 65, "-a", 7])
async def test_a_name_that_cannot_be_one_is_refused_by_name(connect: Connect, name: Any) -> None:
    async with consumers_of(connect) as consumers:
        await consumers.world.start(outside_app.talk, 1, run_id="r")

        with pytest.raises(InvalidInput, match=r"output stream .*1 to 64"):
            await values_of(consumers, "r", name)


async def test_what_is_no_id_of_a_chunk_is_refused(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        await consumers.world.start(outside_app.talk, 1, run_id="r")

        with pytest.raises(InvalidInput, match="'5' is no id of a chunk"):
            await values_of(consumers, "r", after="5")


async def test_a_value_that_does_not_fit_the_type_asked_for_is_refused(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        await consumers.world.start(outside_app.talk, 1, run_id="r")
        await consumers.drain()

        with pytest.raises(InvalidValue, match="a chunk of output stream 'default'"):
            await values_of(consumers, "r", type=int)


async def test_a_reader_waits_without_a_place_of_the_commands(connect: Connect) -> None:
    """Forty readers wait on connections of their own; the run they follow goes on."""
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.talk, 2, run_id="r")
        ended = []

        async def follow() -> None:
            ended.append([value["n"] async for value in run.read()])

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(40):
                    tasks.start_soon(follow)
                await consumers.drain()

        assert ended == [[0, 1]] * 40


async def test_streams_work_in_the_embedded_mode() -> None:
    settings = Settings(url="redisworld://embedded?outputs")
    async with World.connect(settings=settings) as world:
        from consumers.worker import Worker

        worker = Worker(world, outside_app.wf)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.run)
                run = await world.start(outside_app.talk, 3, run_id="r")
                assert [token.n async for token in run.read(type=Token)] == [0, 1, 2]
                worker.stop()


async def test_a_reader_that_stops_in_the_middle_leaves_nothing_behind(connect: Connect) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.talk, 3, run_id="r")
        await consumers.drain()

        async for value in run.read():
            assert value["n"] == 0
            break

        gc.collect()
        for _ in range(10):  # the loop closes what was left, in a task of its own
            await anyio.lowlevel.checkpoint()
        assert consumers.world.endings._waiting == {}


async def test_a_chunk_costs_one_call_to_write_and_one_to_read(
    connect: Connect, raw: redis.Redis, redis_url: str
) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.talk, 50, run_id="r")
        arrived = [anyio.Event() for _ in range(50)]
        outside_app.during.extend(event.wait for event in arrived)

        async def follow() -> None:
            async for token in run.read(type=Token):
                arrived[token.n].set()

        with monitored(redis_url) as calls, anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await consumers.drain()

    assert calls.clients.count("write_output") == 51  # and the close
    assert 51 <= calls.clients.count("XREAD") <= 54
    assert calls.clients.count("HMGET") <= 3  # the row, before and after


@pytest.mark.parametrize("follow", [False, True])
async def test_a_key_of_another_type_in_the_place_of_a_stream_is_named_to_its_reader(
    connect: Connect, raw: redis.Redis, follow: bool
) -> None:
    async with consumers_of(connect) as consumers:
        await consumers.world.start(outside_app.talk, 1, run_id="r")
        raw.set(consumers.world.partition("r").output("r", "default"), "not ours")

        with pytest.raises(
            MalformedMessage, match="output stream 'default' of run 'r' cannot be read: a key is not ours"
        ):
            await values_of(consumers, "r", follow=follow)


@pytest.mark.parametrize("entry", [{"theirs": "1"}, {"msg": "\x01"}, {"msg": "\x01", "number": "x", "step": "s"}])
async def test_an_entry_that_no_step_has_written_is_named_to_its_reader(
    connect: Connect, raw: redis.Redis, entry: dict[str, str]
) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.talk, 1, run_id="r")
        await consumers.drain()
        id = raw.xadd(consumers.world.partition("r").output("r", "default"), entry).decode()

        told = f"entry {id} of output stream 'default' of run 'r' is no chunk"
        with pytest.raises(MalformedMessage, match=told):
            await values_of(consumers, "r", follow=False)
        with pytest.raises(MalformedMessage, match=told):
            [value async for value in run.read(type=Token)]


async def test_a_damaged_list_of_output_streams_is_told(connect: Connect, raw: redis.Redis) -> None:
    async with consumers_of(connect) as consumers:
        run = await consumers.world.start(outside_app.talk, 1, run_id="r")
        await consumers.drain()
        raw.hset(consumers.world.partition("r").outs("r"), "s:default", "many|")

        with pytest.raises(MalformedMessage, match=r"output stream 'default' of run 'r' has the state 'many\|'"):
            await run.outputs()
