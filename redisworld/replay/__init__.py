"""How does a workflow body continue from its event log? Pure: no Redis, no clock, no I/O.

``engine`` feeds events to a ``body``, which runs on its own asyncio ``loop``; ``calls`` and ``tasks`` are what user
code awaits, ``groups`` sees what it observes, ``ledger`` compares it with the log, ``commands`` is what comes out.
``guard`` keeps bodies from clocks and chance (``ambient``) and from what blocks or reaches outside (``blocking``).
"""

from redisworld.replay.commands import (
    Assign,
    Cancelled,
    CancelWait,
    Completed,
    CreateHook,
    CreateStep,
    CreateWait,
    DisposeHook,
    Failed,
    Outcome,
    Pass,
    SealGroup,
    SetAttributes,
)
from redisworld.replay.context import current, hook, now, patched, random, sleep, uuid4
from redisworld.replay.engine import Instance
from redisworld.replay.guard import install
from redisworld.replay.hooks import Hook

__all__ = [
    "Assign",
    "CancelWait",
    "Cancelled",
    "Completed",
    "CreateHook",
    "CreateStep",
    "CreateWait",
    "DisposeHook",
    "Failed",
    "Hook",
    "Instance",
    "Outcome",
    "Pass",
    "SealGroup",
    "SetAttributes",
    "current",
    "hook",
    "install",
    "now",
    "patched",
    "random",
    "sleep",
    "uuid4",
]
