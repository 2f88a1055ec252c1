"""Who hears of it when a member of the delayed set is due and cannot be promoted?"""

from __future__ import annotations

import logging

from redisworld.observe import DelayedLost, MessageBuried, observe
from redisworld.world.deliveries import known_kind
from redisworld.world.faults import FaultLog


def tell_trouble(faults: FaultLog, trouble: str, member: str) -> None:
    """``lost``: its body was deleted, and it is gone. ``buried``: what is left of it is a dead letter."""
    kind = known_kind(member.partition(" ")[0])
    if trouble == "lost":
        observe(DelayedLost(kind))
        what = "a delayed message was due and its body is gone, recovery looks for who waits for it"
        faults.warn("delayed lost", what, level=logging.ERROR, member=member)
    else:
        observe(MessageBuried(kind, "undecodable", "0-0"))
        faults.warn("delayed buried", "dead letter", level=logging.ERROR, reason="undecodable", member=member)
