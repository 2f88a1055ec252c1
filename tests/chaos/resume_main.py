"""What runs in a process that resumes a hook and dies? ``python -m tests.chaos.resume_main URL SETTINGS TOKEN TEXT ID``

``SETTINGS`` is JSON; ``CHAOS_KILL`` as in worker_main: its calls are 1, the look at the token, and 2, the script.
"""

from __future__ import annotations

import json
import os
import sys

import anyio

from redisworld import Settings, World
from tests.chaos.worker_main import inject


async def main(url: str, settings: str, token: str, payload: str, resume_id: str) -> None:
    """Resume once."""
    inject(os.environ["CHAOS_KILL"], "")
    async with World.connect(settings=Settings(url=url, **json.loads(settings))) as world:
        await world.resume(token, payload, resume_id=resume_id)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
