"""What does a step cost at the end of a run of 10,000? ``python -m tests.constructs --steps 10000``"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import redis

from redisworld.spawn import private_redis
from tests.constructs.length import measure


def main() -> int:
    """Print the costs; 1 when the last steps cost more than 1.2 times what the tenth did."""
    parser = argparse.ArgumentParser(prog="python -m tests.constructs", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--inline", type=int, default=1, choices=(0, 1))
    given = parser.parse_args()
    with private_redis(tcp=True, allow_wheel=True) as server, redis.Redis.from_url(server.url) as raw:
        began = time.monotonic()
        found = asyncio.run(
            measure(server.url, raw, "sequential", given.steps, steps=given.steps, max_inline_steps=given.inline)
        )
    seconds = time.monotonic() - began
    sys.stdout.write(f"{given.steps} steps in {seconds:.1f} s; per step early {found.early}, late {found.late}\n")
    return int(found.late.calls > 1.2 * found.early.calls or found.late.bytes > 1.2 * found.early.bytes)


if __name__ == "__main__":
    sys.exit(main())
