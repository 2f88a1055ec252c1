"""The chaos application in a process whose reading breaks, or hangs, while a key says so (case A42)."""

from __future__ import annotations

import asyncio
from typing import Any

from redisworld.world import consuming, queue
from tests.apps.chaos_app import client, wf

__all__ = ["wf"]

_fields_of = queue.fields_of


def _broken(pairs: Any) -> dict[str, bytes]:
    if client().exists("probe:break-reading"):
        raise RuntimeError("reading is broken")
    return _fields_of(pairs)


queue.fields_of = _broken
consuming.fields_of = _broken

_read = queue.Queue.read


async def _hanging(self: queue.Queue, *args: Any, **options: Any) -> Any:
    while client().exists("probe:hang-reading"):  # noqa: ASYNC110 the key is the test's
        await asyncio.sleep(0.2)
    return await _read(self, *args, **options)


queue.Queue.read = _hanging  # type: ignore[method-assign]
