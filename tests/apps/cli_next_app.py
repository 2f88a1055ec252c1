"""Which code does the application of the command line's tests become? ``patient`` is changed without a gate."""

from __future__ import annotations

import asyncio

from redisworld import Workflows, patched, sleep
from tests.apps import cli_app

wf = Workflows()
wf.steps |= cli_app.wf.steps


@wf.workflow
async def doubled(n: int, times: int = 2) -> list[int]:
    print("a body may print")
    return await asyncio.gather(*(cli_app.double(n) for _ in range(times)), cli_app.flaky(n))


@wf.workflow
async def patient() -> None:
    await cli_app.slow(0.1)
    await sleep("1h")


gated = Workflows()
gated.steps |= cli_app.wf.steps


@gated.workflow(name="patient")
async def patient_gated() -> None:
    if patched("slow-first"):
        await cli_app.slow(0.1)
    await sleep("1h")
