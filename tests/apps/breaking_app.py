"""The chaos application in a process whose reading or decoding breaks while a key says so (case A42)."""

from __future__ import annotations

from typing import Any

import redisworld.world.world as world_module
from redisworld.world import queue
from tests.apps.chaos_app import client, wf

__all__ = ["wf"]

_fields_of = queue.fields_of


def _broken(pairs: Any) -> dict[str, bytes]:
    if client().exists("probe:break-reading"):
        raise RuntimeError("reading is broken")
    return _fields_of(pairs)


queue.fields_of = _broken
world_module.fields_of = _broken  # type: ignore[attr-defined]
