"""In which order does anyio cancel scopes that are open side by side? In that of their addresses: a known fault."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from redisworld import values
from redisworld.workflows import Workflow
from tests.constructs.steps import late, undo
from tests.unit.replay_driver import Driver

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


@pytest.mark.xfail(
    reason="anyio keeps child scopes in a set and cancels in its order, so clean-up steps get other ids in a replay: "
    "the run fails with REPLAY_DIVERGENCE. asyncio.timeout and asyncio.TaskGroup do not have this.",
    strict=True,
)
def test_clean_up_steps_of_scopes_cancelled_together_are_asked_for_in_order() -> None:
    workflow: Workflow[..., Any] = Workflow(side_by_side)
    driver = Driver(workflow)
    first_due = min(driver.store.waits, key=driver.store.waits.__getitem__)
    driver.finish(first_due)
    asked = [values.decode(given)["what"] for name, given in driver.store.open.values() if name == "undo"]
    driver.instance.close()
    assert asked == NAMES
