"""What lies in Redis that no listing names? Only a scan of all keys can tell, so it is asked for by ``--deep``."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from redisworld.keys import Partition
from redisworld.runs import OPEN
from redisworld.world.examine_runs import examine_listing
from redisworld.world.findings import Finding
from redisworld.world.replies import text_of
from redisworld.world.scanning import scan

if TYPE_CHECKING:
    from redisworld.world.world import World

_RUN = re.compile(r"run:([^:]+)")


async def examine_keys(
    world: World, partition: Partition, *, fix: bool, tick: Callable[[int], None]
) -> AsyncIterator[Finding]:
    """Runs that are not listed, and tokens that point to a hook which is over."""
    async for names in scan(world.connection, partition, "scan_keys"):
        tick(len(names))
        for run_id in [found[1] for name in names if (found := _RUN.fullmatch(name))]:
            async for finding in examine_listing(world, partition, run_id, fix=fix):
                yield finding
        for token in [name.removeprefix("hook:") for name in names if name.startswith("hook:")]:
            if (dangling := await _pointer(world, partition, token, fix=fix)) is not None:
                yield dangling


async def _pointer(world: World, partition: Partition, token: str, *, fix: bool) -> Finding | None:
    """A pointer that nothing will ever release. One that expires, or stands in the releases, goes by itself."""
    key = partition.hook(token)
    (run, hook), left_ms = await world.connection.pipe(
        "look_at_pointer", lambda pipe: (pipe.hmget(key, "run", "hook"), pipe.pttl(key))
    )
    if run is None or left_ms >= 0:
        return None
    run_id, hook_id = text_of(run), text_of(hook or b"")
    home = world.partition(run_id)
    (status, state), released = await world.connection.pipe(
        "look_at_holder",
        lambda pipe: (
            pipe.hmget(home.run(run_id), "status", f"h:{hook_id}"),
            pipe.hexists(home.releases, f"{run_id} {hook_id}"),
        ),
    )
    if released or (text_of(status) in OPEN and state in (b"open", b"claiming")):
        return None
    mended = ""
    if fix:
        keep = world.settings.retention_ms
        await world.call("release_token", partition, token, run_id, hook_id, keep)
        mended = "let it go after the retention"
    what = f"token {token!r} points to hook {hook_id} of run {run_id}, which is over"
    return Finding(code="dangling_pointer", what=what, where=(key,), mended=mended)
