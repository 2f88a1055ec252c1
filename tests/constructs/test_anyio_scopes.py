"""In which order does anyio cancel scopes that are open side by side? In a set's, which repeats in a body."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from redisworld import values
from redisworld.replay import install
from redisworld.workflows import Workflow
from tests.constructs.steps import late, undo
from tests.unit.replay_driver import Driver

install()

NAMES = list("abcdefgh")


async def side_by_side() -> None:
    async def branch(name: str) -> None:
        with anyio.move_on_after(1_000):
            try:
                await late(name, 100)
            finally:
                with anyio.CancelScope(shield=True):
                    await undo(name)

    with anyio.move_on_after(5):
        async with anyio.create_task_group() as group:
            for name in NAMES:
                group.start_soon(branch, name)


def test_clean_up_steps_of_scopes_cancelled_together_are_asked_for_alike_in_every_replay() -> None:
    workflow: Workflow[..., Any] = Workflow(side_by_side)
    orders = []

    for _ in range(5):
        driver = Driver(workflow)
        first_due = min(driver.store.waits, key=driver.store.waits.__getitem__)
        driver.finish(first_due)
        orders.append([values.decode(given)["what"] for name, given in driver.store.open.values() if name == "undo"])

        driver.check_every_prefix()
        driver.instance.close()
    assert sorted(orders[0]) == NAMES
    assert all(order == orders[0] for order in orders)


@pytest.mark.anyio
async def test_outside_of_bodies_a_scope_hashes_as_ever() -> None:
    with anyio.CancelScope() as one, anyio.CancelScope() as other:
        await anyio.lowlevel.checkpoint()
        assert {one: 1, other: 2}[one] == 1
        assert type(one).__name__ == "CancelScope"


async def waits_for_clean_up() -> bool:
    async def child() -> None:
        try:
            await late("a", 100)
        finally:
            with anyio.CancelScope(shield=True):
                await undo("a")

    with anyio.move_on_after(5) as scope:
        async with asyncio.TaskGroup() as group:  # its host takes every cancellation, and waits on
            group.create_task(child())
    return scope.cancelled_caught


def test_a_scope_does_not_spin_while_a_clean_up_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redisworld.replay.loop.MAX_HANDLES", 1_000)
    driver = Driver(Workflow(waits_for_clean_up))

    driver.finish(min(driver.store.waits, key=driver.store.waits.__getitem__))
    assert [name for name, _ in driver.store.open.values()] == ["late", "undo"]
    assert driver.run() is True
    driver.check_every_prefix()


async def swallows(times: int) -> int:
    swallowed = 0
    with anyio.CancelScope() as scope:
        scope.cancel()
        for _ in range(times):
            try:
                await late("a", 100)
            except asyncio.CancelledError:
                swallowed += 1
        await anyio.sleep_forever()
    return swallowed


def test_a_scope_cancels_again_what_goes_on() -> None:
    driver = Driver(Workflow(swallows), 20)

    assert driver.run() == 20
    driver.check_every_prefix()
