"""How does a workflow body continue from its event log? Pure: no Redis, no clock, no I/O.

``engine`` feeds events to a ``body``, which runs on its own asyncio ``loop``; ``calls`` and ``tasks`` are what user
code awaits, ``groups`` sees what it observes, ``ledger`` compares it with the log, ``commands`` is what comes out.
"""

from redisworld.replay.commands import (
    Assign,
    Cancelled,
    CancelWait,
    Completed,
    CreateStep,
    CreateWait,
    Failed,
    Outcome,
    Pass,
    SealGroup,
)
from redisworld.replay.context import current, now, random, sleep, uuid4
from redisworld.replay.engine import Instance

__all__ = [
    "Assign",
    "CancelWait",
    "Cancelled",
    "Completed",
    "CreateStep",
    "CreateWait",
    "Failed",
    "Instance",
    "Outcome",
    "Pass",
    "SealGroup",
    "current",
    "now",
    "random",
    "sleep",
    "uuid4",
]
