"""Does each construct end well wherever its worker dies, with every step recorded once? (promises 1 to 3)"""

from __future__ import annotations

import pytest
import redis

from tests.constructs.everything import CATALOGUE
from tests.constructs.playing import check_promises, player

pytestmark = pytest.mark.anyio

CALLS = (*range(1, 24), *range(24, 60, 4), *range(60, 500, 29))
"""Where a worker dies; a long run repeats itself."""


@pytest.mark.parametrize("name", CATALOGUE)
async def test_it_ends_well_wherever_its_worker_dies(redis_url: str, raw: redis.Redis, name: str) -> None:
    """A25, A26: the worker dies before its first script call, before its second one, and so on to the last."""
    construct = CATALOGUE[name]
    async with player(redis_url, raw) as playing:
        for number in CALLS:
            played = await playing.play(construct, f"run-{number}", die_before=number)
            assert played.outcome == construct.expected, f"died before call {number}"
            if not played.died:
                break
        else:
            raise AssertionError("it never ends")
    assert number > 2
    check_promises(raw)
