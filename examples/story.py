"""A step that writes while it works, and a reader that sees each word at once."""

import asyncio
import sys
from collections.abc import AsyncIterator

from redisworld import Workflows, World, get_writable, set_attributes

wf = Workflows()


async def model(prompt: str) -> AsyncIterator[str]:
    for word in f"Once upon a time there was {prompt} .".split():
        await asyncio.sleep(0.05)
        yield word


@wf.step
async def tell(prompt: str) -> int:
    words = 0
    async with get_writable() as out:  # closed at the end, unless the step fails
        async for word in model(prompt):
            await out.write(word)
            words += 1
    return words


@wf.workflow
async def story(prompt: str) -> int:
    await set_attributes(prompt=prompt, stage="telling")
    words = await tell(prompt)
    await set_attributes(stage="told")
    return words


async def main(url: str) -> None:
    async with World.connect(url) as world:
        run = await world.start(story, "a cat", run_id="story-1")
        async for word in run.read(type=str):
            print(word, end=" ", flush=True)
        print(f"({await run.result()} words)")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "redis://localhost:6379/0"))
