"""What is left in output streams and attributes when a worker dies while its step writes? (promises 1 and 4)"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
import redis

from redisworld import attributes
from redisworld.events import EventKind
from tests.apps import outside_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually
from tests.chaos.taking_over import taking_over

pytestmark = pytest.mark.anyio

APP = "tests.apps.outside_app:wf"


async def write_and_die(kill: str, raw: redis.Redis, workers: Workers, connect: Connect, directory: Path) -> list[str]:
    """One run whose first worker dies at ``kill``; the calls that worker made."""
    namespace = f"outputs-{kill.replace(':', '-') or 'none'}"
    trace = directory / f"{namespace}.trace"
    options = {"namespace": namespace, "lease_ms": 500, "partitions": 1}
    doomed = workers.start(app=APP, kill=kill, trace=trace, ready=False, **options)
    async with connect(**options) as world:
        await eventually(lambda: "worker started" in doomed.log(), what="worker started")
        run = await world.start(outside_app.spelling, run_id="r")
        read = []

        async def follow() -> None:
            read.extend([chunk async for chunk in run.stream(type=str)])

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                over = f"rw:{{{namespace}:0}}:index:status:completed"
                await eventually(lambda: doomed.returncode is not None or raw.zcard(over), what=kill)
                async with taking_over(world, outside_app.wf):
                    assert await run.result(timeout=20) == "abc"
        doomed.end()

        chunks = [chunk async for chunk in run.stream(type=str)]
        places = [(chunk.attempt, chunk.index) for chunk in chunks]
        assert len(set(places)) == len(places), f"{kill}: {places}"
        last = max(chunk.attempt for chunk in chunks)
        assert "".join(chunk.value for chunk in chunks if chunk.attempt == last) == "abc", kill
        assert all("abc".startswith("".join(c.value for c in chunks if c.attempt == n)) for n in range(1, last + 1))
        assert [chunk.number for chunk in chunks] == list(range(1, len(chunks) + 1))
        # whoever reads along sees the same, up to a close that a later attempt takes back
        assert read == chunks[: len(read)], kill
        assert await run.attributes() == {"stage": "written", "written": "abc"}
        told = [attributes.decode(e.payload) async for e in run.events() if e.kind is EventKind.ATTR_SET]
        assert [change.changes["stage"] for change in told if not change.writer] == ["writing", "written"], kill
    invariants.check(raw, outside_app.wf, namespace)
    return trace.read_text().splitlines()


async def test_a_worker_killed_while_its_step_writes_leaves_each_chunk_once_for_each_attempt(
    raw: redis.Redis, workers: Workers, connect: Connect, tmp_path: Path
) -> None:
    """SIGKILL after each call to Redis that the worker makes; before the first write, between two, after the close."""
    calls = await write_and_die("", raw, workers, connect, tmp_path)
    assert sum("write_output" in call for call in calls) == 4
    broken: list[str] = []
    at_once = anyio.CapacityLimiter(8)

    async def attempt(kill: str) -> None:
        async with at_once:
            try:
                await write_and_die(kill, raw, workers, connect, tmp_path)
            except Exception as error:
                broken.append(f"{kill}: {type(error).__name__}: {error}")

    async with anyio.create_task_group() as tasks:
        for number in range(1, len(calls) + 1):
            tasks.start_soon(attempt, f"after:{number}")

    assert not broken, "\n\n".join(broken)
