"""A run that waits for a person, for a week at most. Needs a Redis: see docs/hooks.md."""

import asyncio
import sys
from dataclasses import dataclass

from redisworld import BaseHook, Workflows, World

wf = Workflows()


@dataclass
class Approval(BaseHook):
    by: str
    ok: bool = True


@wf.step
def ship(order: str, by: str) -> str:
    return f"order {order} shipped, approved by {by}"


@wf.workflow
async def fulfil(order: str) -> str:
    try:
        async with asyncio.timeout(7 * 24 * 3600):  # durable, like the hook: no process waits
            approval = await Approval.wait(token=f"order:{order}", metadata={"asks": "sales"})
    except TimeoutError:
        return f"order {order} was never approved"
    return await ship(order, approval.by) if approval.ok else f"order {order} refused by {approval.by}"


async def main(url: str) -> None:
    async with World.connect(url) as world:
        run = await world.start(fulfil, "42", run_id="fulfil-42")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "redis://localhost:6379/0"))
