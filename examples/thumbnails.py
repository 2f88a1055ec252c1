"""A durable fan-out with a durable sleep. Needs a Redis: see README.md, "Thirty lines"."""

import asyncio
import sys

from redisworld import Workflows, World, get_step_metadata, sleep

wf = Workflows()


@wf.step(max_retries=5, timeout="2m")
async def thumbnail(image: str, width: int) -> str:
    # The same in every attempt: what other systems take to recognise a repeat.
    key = get_step_metadata().step_id
    return f"{image}@{width} ({key})"


@wf.step
def notify(thumbs: list[str]) -> int:  # plain functions run in a thread
    return len(thumbs)


@wf.workflow
async def publish(image: str) -> list[str]:
    thumbs = await asyncio.gather(*(thumbnail(image, width) for width in (64, 256, 1024)))
    await sleep("10s")  # durable: no process has to live that long
    await notify(thumbs)
    return thumbs


async def main(url: str) -> None:
    async with World.connect(url) as world:
        run = await world.start(publish, "cat.png", run_id="publish-cat")  # once per run id
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "redis://localhost:6379/0"))
