"""Which moments reach every answer of every script? (``SCENES``; each module holds those of some scripts)"""

from __future__ import annotations

from tests.scripts.scenes import (
    deliveries,
    deployments,
    events,
    hooks,
    letters,
    outputs,
    passes,
    recovery,
    runs,
    steps,
    timers,
)
from tests.scripts.scenes.scene import SCENES, Call, Scene

__all__ = [
    "SCENES",
    "Call",
    "Scene",
    "deliveries",
    "deployments",
    "events",
    "hooks",
    "letters",
    "outputs",
    "passes",
    "recovery",
    "runs",
    "steps",
    "timers",
]
