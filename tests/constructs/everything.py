"""Where do all bodies register themselves?"""

from __future__ import annotations

from redisworld.replay import install
from tests.constructs import (
    bodies_anyio,
    bodies_hooks,
    bodies_joins,
    bodies_python,
    bodies_real,
    bodies_sync,
    bodies_time,
)
from tests.constructs.catalogue import CATALOGUE, Construct

install()

BODIES = (bodies_joins, bodies_time, bodies_sync, bodies_python, bodies_hooks, bodies_anyio, bodies_real)

__all__ = ["BODIES", "CATALOGUE", "Construct"]
