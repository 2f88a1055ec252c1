"""What do hooks give that are awaited, iterated over, raced and shared?"""

from __future__ import annotations

import asyncio

from redisworld import Hook, get_workflow_metadata, hook, sleep
from tests.constructs.catalogue import cancel, gives, let_time_pass, resume
from tests.constructs.steps import late, work


def mine(token: str) -> Hook[str]:
    """A hook of this run's own."""
    return hook(str, token=f"{token}:{get_workflow_metadata().run_id}")


@gives(["before", "yes"], resume("one", "yes"))
async def hook_awaited() -> list[str]:
    answer = mine("one")
    return [await work("before"), await answer]


@gives(["a", "b", "stop"], resume("all", "a"), resume("all", "b"), resume("all", "stop"))
async def hook_iterated() -> list[str]:
    out = []
    async with mine("all") as messages:
        async for message in messages:
            out.append(await work(message))
            if message == "stop":
                break
    return out


@gives(["timer", "yes"], let_time_pass, resume("race", "yes"))
async def hook_raced_with_a_timer_that_wins() -> list[str]:
    answer = asyncio.ensure_future(_payload(mine("race")))
    done, _ = await asyncio.wait([answer, asyncio.ensure_future(sleep(5))], return_when=asyncio.FIRST_COMPLETED)
    return ["hook" if answer in done else "timer", await answer]


@gives(["hook", "yes"], resume("race", "yes"))
async def hook_raced_with_a_timer_that_loses() -> list[str]:
    return ["hook", await asyncio.wait_for(_payload(mine("race")), 3_600)]


@gives(["1", "2"], resume("kept", "1"), resume("kept", "2"))
async def hook_resumed_while_nobody_awaits() -> list[str]:
    messages = mine("kept")
    await late("x", 5)
    return [await messages, await messages]


@gives(["a2", "b1"], resume("b", "b1"), resume("a", "a2"))
async def hooks_awaited_together() -> list[str]:
    return list(await asyncio.gather(_payload(mine("a")), _payload(mine("b"))))


@gives("cancelled", resume("c", "1"), cancel)
async def hook_cancelled() -> str:
    messages = mine("c")
    try:
        await messages
        return await messages
    finally:
        await work("clean")


@gives([None, "fresh"], resume("again", "fresh"))
async def hook_disposed_and_made_again() -> list[str | None]:
    async with mine("again") as first:
        conflict = await first.get_conflict()
    return [conflict, await mine("again")]


async def _payload(answer: Hook[str]) -> str:
    return await work(await answer)
