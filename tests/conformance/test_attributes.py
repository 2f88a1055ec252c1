"""Are attributes set once by a body, at once by a step and a client, and shown to whoever asks?"""

from __future__ import annotations

from typing import Any

import pytest

from redisworld import InvalidInput, RunFailed, RunGone, RunNotFound, Workflows, attributes, set_attributes
from redisworld.events import EventKind
from tests.apps import outside_app
from tests.conformance.conftest import Connect

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _forget() -> None:
    outside_app.during.clear()


async def test_a_body_sets_each_once_and_a_step_in_each_attempt(connect: Connect) -> None:
    async with connect(app=outside_app.wf) as consumers:
        run = await consumers.world.start(outside_app.attributed, 1, run_id="r")
        await consumers.wake()
        assert (await run.attributes())["stage"] == "noting"
        await consumers.drain()

        assert await run.result(timeout=5) == "done"
        assert await run.attributes() == {"stage": "done", "progress": "attempt 2"}
        events = [event for event in consumers.log("r") if event.kind is EventKind.ATTR_SET]
        told = [attributes.decode(event.payload) for event in events]
        assert [(event.id[:2], payload.changes) for event, payload in zip(events, told, strict=True)] == [
            ("a1", {"stage": "noting", "old": "x"}),
            (events[1].id[:2], {"progress": "attempt 1"}),
            (events[2].id[:2], {"progress": "attempt 2"}),
            ("a3", {"stage": "done", "old": None}),
        ]
        [step_id] = {event.id for event in consumers.log("r") if event.kind is EventKind.STEP_CREATED}
        assert [payload.writer for payload in told] == ["", step_id, step_id, ""]


@pytest.mark.parametrize("sticky", [0, 1_000])
async def test_a_replay_from_the_start_sets_nothing_again(connect: Connect, sticky: int) -> None:
    async with connect(app=outside_app.wf, sticky_runs=sticky, max_inline_steps=0) as consumers:
        run = await consumers.world.start(outside_app.attributed, 0, run_id="r")
        await consumers.drain()

        assert await run.result(timeout=5) == "done"
        assert consumers.kinds("r").count(EventKind.ATTR_SET) == 3


async def test_a_run_that_fails_keeps_what_its_body_set(connect: Connect) -> None:
    async with connect(app=outside_app.wf) as consumers:
        run = await consumers.world.start(outside_app.attributed_then_fails, run_id="r")
        await consumers.drain()

        with pytest.raises(RunFailed, match="after the attributes"):
            await run.result(timeout=5)
        assert await run.attributes() == {"stage": "failing"}


async def test_a_client_sets_and_takes_away_without_waking_the_run(connect: Connect) -> None:
    async with connect(app=outside_app.wf) as consumers:
        run = await consumers.world.start(outside_app.attributed, 0, run_id="r")
        before = await run.row()

        await run.set_attributes({"order id": "7"}, city="Berlin")
        await run.set_attributes(city=None)

        assert await run.attributes() == {"order id": "7"}
        after = await run.row()
        assert (after.woken_at, after.wake) == (before.woken_at, before.wake)
        await consumers.drain()
        assert await run.result(timeout=5) == "done"
        assert (await run.attributes())["order id"] == "7"


async def test_a_call_whose_reply_was_lost_is_one_event(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect(app=outside_app.wf) as consumers:
        run = await consumers.world.start(outside_app.attributed, 0, run_id="r")
        scripts, lost = consumers.world.connection.nodes.scripts(""), []
        call = scripts.call

        async def losing(*args: Any, timeout: float) -> Any:
            answer = await call(*args, timeout=timeout)
            if not lost:
                lost.append(answer)
                raise ConnectionError("the reply was lost")
            return answer

        monkeypatch.setattr(scripts, "call", losing)
        await run.set_attributes(city="Berlin")

        assert len(lost) == 1
        assert consumers.kinds("r").count(EventKind.ATTR_SET) == 1


async def test_after_the_end_attributes_are_refused_and_those_of_an_unknown_run_not_found(connect: Connect) -> None:
    async with connect(app=outside_app.wf) as consumers:
        run = await consumers.world.start(outside_app.attributed, 0, run_id="r")
        await consumers.drain()

        with pytest.raises(RunGone, match="run 'r' is completed") as gone:
            await run.set_attributes(stage="late")
        assert gone.value.run_id == "r"
        with pytest.raises(RunNotFound):
            await consumers.world.run("nobody").set_attributes(stage="x")
        with pytest.raises(RunNotFound):
            await consumers.world.run("nobody").attributes()


async def test_more_than_sixty_four_are_refused_and_what_was_set_stays(connect: Connect) -> None:
    async with connect(app=outside_app.wf) as consumers:
        run = await consumers.world.start(outside_app.attributed, 0, run_id="r")
        await run.set_attributes({f"k{n}": "v" for n in range(64)})

        with pytest.raises(InvalidInput, match="more than 64 attributes"):
            await run.set_attributes(one="more")

        assert len(await run.attributes()) == 64


async def test_a_body_that_lost_the_race_for_the_last_one_fails_with_the_reason(connect: Connect) -> None:
    """What others set between its load and its commit it cannot have known."""
    app = Workflows()

    @app.workflow
    async def sets_one() -> None:
        await set_attributes(mine="1")

    async with connect(app=app) as consumers:
        run = await consumers.world.start(sets_one, run_id="r")
        delivery = await consumers.take("workflows")
        assert delivery is not None
        commit = consumers.world.deliveries.commit

        async def late(*args: Any, **options: Any) -> Any:
            if not await run.attributes():
                await run.set_attributes({f"k{n}": "v" for n in range(64)})
                consumers.raw.hset(consumers.partition.run("r"), "last_at", 0)  # the first pass still fits
            return await commit(*args, **options)

        consumers.world.deliveries.commit = late  # type: ignore[method-assign]
        await consumers.process(delivery)
        await consumers.drain()

        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=5)
        assert failed.value.code == "INVALID_COMMIT"
        assert "attributes" in str(failed.value)


async def test_divergence_of_attributes_fails_the_run_naming_both(connect: Connect) -> None:
    def app_setting(value: str) -> tuple[Workflows, Any]:
        app = Workflows()

        @app.step
        async def work() -> None: ...

        @app.workflow
        async def body() -> None:
            await set_attributes(stage=value)
            await work()

        return app, body

    old, body = app_setting("old")
    new, _ = app_setting("new")
    async with connect(app=old, max_inline_steps=0) as consumers:
        run = await consumers.world.start(body, run_id="r")
        await consumers.wake()
    async with connect_again(connect, new) as consumers:
        await consumers.drain()

        with pytest.raises(RunFailed, match=r"REPLAY_DIVERGENCE.*'stage': 'old'.*'stage': 'new'"):
            await consumers.world.run(run.run_id).result(timeout=5)


def connect_again(connect: Connect, app: Workflows) -> Any:
    """The next deployment on the same Redis."""
    return connect(app=app, max_inline_steps=0)
