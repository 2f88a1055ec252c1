"""Where is the door to Redis? ``World``; nothing outside this package speaks to Redis."""

from redisworld.world.addresses import redacted
from redisworld.world.batching import MOST_ITEMS
from redisworld.world.dead import Letter
from redisworld.world.deliveries import (
    Answer,
    Claim,
    ClaimItem,
    Committed,
    Completion,
    Delivery,
    Loaded,
    Outgoing,
    Recorded,
    Sweep,
)
from redisworld.world.embedded import EMBEDDED_URL
from redisworld.world.faults import FaultLog
from redisworld.world.handle import Run
from redisworld.world.heartbeats import BEAT_S
from redisworld.world.hook_info import HookInfo
from redisworld.world.listing_runs import ListedRun, RunPage
from redisworld.world.outputs import Chunk, OutputInfo
from redisworld.world.own_run import OwnRun, current_run
from redisworld.world.queue import Stream
from redisworld.world.reading_state import StateReader, read_state
from redisworld.world.renewal import Renewal, Renewed
from redisworld.world.world import World

__all__ = [
    "BEAT_S",
    "EMBEDDED_URL",
    "MOST_ITEMS",
    "Answer",
    "Chunk",
    "Claim",
    "ClaimItem",
    "Committed",
    "Completion",
    "Delivery",
    "FaultLog",
    "HookInfo",
    "Letter",
    "ListedRun",
    "Loaded",
    "Outgoing",
    "OutputInfo",
    "OwnRun",
    "Recorded",
    "Renewal",
    "Renewed",
    "Run",
    "RunPage",
    "StateReader",
    "Stream",
    "Sweep",
    "World",
    "current_run",
    "read_state",
    "redacted",
]
