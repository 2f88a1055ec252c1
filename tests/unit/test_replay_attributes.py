"""Does a body that sets attributes set the same ones in every replay, once, and hear of what cannot be?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redisworld import set_attributes
from redisworld.errors import InvalidInput, ReplayDivergence
from redisworld.events import EventKind
from redisworld.workflows import Workflow, Workflows
from tests.unit.replay_driver import Driver

wf = Workflows()


@wf.step
async def work(x: Any) -> str:
    return str(x)


def drive(body: Any, *args: Any, **options: Any) -> Driver:
    workflow: Workflow[..., Any] = Workflow(body)
    return Driver(workflow, *args, **options)


def attr_events(driver: Driver) -> list[str]:
    return [event.id for event in driver.store.log if event.kind is EventKind.ATTR_SET]


def test_attributes_are_recorded_with_what_the_body_asks_for_next() -> None:
    async def body() -> str:
        await set_attributes(stage="working")
        done = await work(1)
        await set_attributes({"stage": None, "result": done})
        return done

    driver = drive(body)
    [asked] = [asked for _, asked in driver.store.passes]
    assert [change.changes for change in asked.attributes] == [{"stage": "working"}]
    assert len(asked.steps) == 1

    assert driver.run() == "work:1"
    driver.check_every_prefix()
    assert driver.store.attributes == {"result": "work:1"}
    assert len(attr_events(driver)) == 2


def test_what_is_set_just_before_the_end_is_in_the_commit_of_the_end() -> None:
    async def body() -> None:
        await set_attributes(stage="over")

    driver = drive(body)

    [(_, asked)] = driver.store.passes
    assert asked.outcome is not None
    assert [change.changes for change in asked.attributes] == [{"stage": "over"}]


def test_branches_set_their_own_in_one_order() -> None:
    async def branch(n: int) -> None:
        await work(n)
        await set_attributes({f"branch{n}": "done"})

    async def body() -> None:
        await asyncio.gather(*(branch(n) for n in range(3)))

    driver = drive(body)
    driver.run(lambda count: count - 1)

    driver.check_every_prefix()
    assert driver.store.attributes == {"branch0": "done", "branch1": "done", "branch2": "done"}


def test_other_attributes_than_the_log_has_are_divergence_that_names_both() -> None:
    def setting(value: str) -> Any:
        async def body() -> None:
            await set_attributes(stage=value)
            await work(1)

        return body

    driver = drive(setting("old"))

    driver.workflow = Workflow(setting("new"))
    with pytest.raises(ReplayDivergence, match=r"the log has attr_set a1_.* \{'stage': 'old'\}.* \{'stage': 'new'\}"):
        driver.cold(len(driver.store.log), None)


def test_a_step_where_the_log_has_attributes_is_divergence_that_names_both() -> None:
    async def before() -> None:
        await set_attributes(stage="x")
        await work(1)

    async def after() -> None:
        await work(1)

    driver = drive(before)

    driver.workflow = Workflow(after)
    with pytest.raises(ReplayDivergence, match=r"the log has attr_set a1_.*asked for step 'work'"):
        driver.cold(len(driver.store.log), None)


@pytest.mark.parametrize("id", ["", "tok.17", "a1_another", "attr_01H"])
def test_what_others_set_is_no_divergence(id: str) -> None:
    async def body() -> str:
        await set_attributes(mine="1")
        return await work(1)

    driver = drive(body)
    driver.store.set_attributes(id, theirs="2")

    driver.check_every_prefix()
    assert driver.run() == "work:1"


def test_one_too_many_is_refused_where_the_body_sets_it_and_can_be_caught() -> None:
    async def body() -> list[str]:
        await set_attributes({f"k{n}": "v" for n in range(60)})
        await work(1)
        told = []
        try:
            await set_attributes({f"more{n}": "v" for n in range(4)})
        except InvalidInput as error:
            told.append(str(error))
        await set_attributes({"k0": None, "k1": None}, more="v")
        return told

    driver = drive(body)
    driver.store.set_attributes(theirs="1")

    [told] = driver.run()
    driver.check_every_prefix()
    assert "65 attributes, at most 64" in told
    assert len(driver.store.attributes) == 60


def test_what_is_no_attribute_is_refused_in_the_body() -> None:
    async def body() -> str:
        try:
            await set_attributes(progress=42)  # type: ignore[arg-type]
        except InvalidInput as error:
            return str(error)
        return "accepted"

    assert "values are texts" in drive(body).run()


def test_outside_a_run_they_are_refused_with_what_to_use() -> None:
    with pytest.raises(InvalidInput, match=r"run\.set_attributes"):
        asyncio.run(set_attributes(stage="x"))
