"""What runs in a process that starts one run many times at once? ``python -m tests.chaos.start_main URL RUN_ID COUNT``

It says ``ready``, waits for a line, and prints the results that each start has led to.
"""

from __future__ import annotations

import json
import sys

import anyio

from redisworld import Settings, World
from tests.apps import chaos_app


async def main(url: str, run_id: str, count: str) -> None:
    """Start, and wait for the results."""
    results = []
    async with World.connect(settings=Settings(url=url)) as world:

        async def start() -> None:
            run = await world.start(chaos_app.pause_between, 0.3, run_id=run_id)
            results.append(await run.result(timeout=20))

        print("ready", flush=True)
        sys.stdin.readline()
        async with anyio.create_task_group() as tasks:
            for _ in range(int(count)):
                tasks.start_soon(start)
    print(json.dumps(results))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
