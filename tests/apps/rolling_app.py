"""Two versions of one application in a rolling deploy (case A45): the old one knows neither step b nor the workflow."""

from __future__ import annotations

from redisworld import Workflows, get_step_metadata
from tests.apps.chaos_app import noted

old = Workflows()
new = Workflows()


async def a(number: int) -> int:
    noted(f"a:{get_step_metadata().attempt}")
    return number


old.step(a)
step_a = new.step(a)


@new.step(max_retries=0)
async def b(number: int) -> int:
    noted(f"b:{get_step_metadata().attempt}")
    return number + 1


@new.workflow
async def a_then_b(number: int) -> int:
    return await b(await step_a(number))
