"""What does a step cost, in counts and in Redis time, and what does a finished run weigh?

    python -m tests.bench.measure fanout 256 15      # branches, rounds
    python -m tests.bench.measure sequence 200 3     # steps, rounds
    python -m tests.bench.measure memory 2000        # runs of 5 steps

On a private redis-server. The floor is one bare XADD, XREADGROUP, XACK, XDEL cycle through the same server.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import anyio
import redis

from consumers.worker import Worker
from redisworld import Settings, Workflows, World
from redisworld.spawn import private_redis

wf = Workflows()
_FLOOR = ("xadd", "xreadgroup", "xack", "xdel")


@wf.step
async def noop(number: int) -> int:
    return number


@wf.workflow
async def fanout(n: int) -> int:
    return len(await asyncio.gather(*(noop(i) for i in range(n))))


@wf.workflow
async def sequence(n: int) -> int:
    for number in range(n):
        await noop(number)
    return n


def floor_us(raw: redis.Redis, messages: int = 5120, batch: int = 64) -> float:
    """Redis microseconds of one bare cycle."""
    raw.xgroup_create("floor", "g", "0", mkstream=True)
    raw.config_resetstat()
    for _ in range(messages // batch):
        with raw.pipeline(transaction=False) as pipe:
            for number in range(batch):
                pipe.xadd("floor", {"kind": "step", "run": "run_x", "step": f"s{number}", "msg": b"x" * 150})
            pipe.execute()
        reply: Any = raw.xreadgroup("g", "c", {"floor": ">"}, count=batch)
        entries = next(iter(reply.values()))[0] if isinstance(reply, dict) else reply[0][1]
        with raw.pipeline(transaction=False) as pipe:
            for entry, _ in entries:
                pipe.xack("floor", "g", entry)
                pipe.xdel("floor", entry)
            pipe.execute()
    stats: Any = raw.info("commandstats")
    raw.delete("floor")
    return sum(stats[f"cmdstat_{name}"]["usec"] for name in _FLOOR) / messages


async def _runs(world: World, raw: redis.Redis, name: str, size: int, rounds: int) -> None:
    await (await world.start(wf.workflows[name], 3)).result(timeout=30)
    floor = floor_us(raw)
    raw.config_resetstat()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        await (await world.start(wf.workflows[name], size)).result(timeout=300)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    stats: Any = raw.info("commandstats")
    steps, scripts, reads = size * rounds, stats["cmdstat_evalsha"], stats["cmdstat_xreadgroup"]
    redis_us = (scripts["usec"] + reads["usec"]) / steps
    print(
        f"{name} {size} x {rounds}: {steps / took:.0f} steps/s, client cpu {cpu / steps * 1e6:.0f} us/step, "
        f"redis {redis_us:.1f} us/step (floor {floor:.1f}, ratio {redis_us / floor:.1f}), "
        f"scripts/step {scripts['calls'] / steps:.3f}, reads/step {reads['calls'] / steps:.3f}"
    )


async def _memory(world: World, raw: redis.Redis, count: int) -> None:
    await (await world.start(fanout, 5)).result(timeout=30)
    before: Any = raw.info("memory")
    runs = [await world.start(fanout, 5) for _ in range(count)]
    for run in runs:
        await run.result(timeout=300)
    after: Any = raw.info("memory")
    print(f"memory: {(after['used_memory'] - before['used_memory']) / count:.0f} bytes per finished run of 5 steps")


async def main(arguments: list[str]) -> None:
    what, *numbers = arguments or ["fanout", "256", "15"]
    with private_redis(allow_wheel=True) as server, redis.Redis.from_url(server.url) as raw:
        async with World.connect(settings=Settings(url=server.url)) as world, anyio.create_task_group() as tasks:
            worker = Worker(world, wf)
            tasks.start_soon(worker.run)
            if what == "memory":
                await _memory(world, raw, int(numbers[0]))
            else:
                await _runs(world, raw, what, int(numbers[0]), int(numbers[1]))
            worker.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
