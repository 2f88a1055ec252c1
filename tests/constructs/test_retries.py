"""Does a step that fails a thousand times go on to be tried, with delays that stay within their cap? (A13)"""

from __future__ import annotations

import itertools

import pytest
import redis

from redisworld import Backoff, get_step_metadata
from redisworld.events import EventKind
from tests.constructs.catalogue import Construct
from tests.constructs.playing import player
from tests.constructs.steps import NOW, wf

pytestmark = pytest.mark.anyio

FAILURES = 1_200
CAP_MS = 60_000


@wf.step(max_retries=FAILURES, backoff=Backoff(factor=10, cap_ms=CAP_MS))
async def stubborn() -> int:
    if (attempt := get_step_metadata().attempt) <= FAILURES:
        raise ValueError("not yet")
    return attempt


@wf.workflow
async def insists() -> int:
    return await stubborn()


async def test_a_step_that_fails_1200_times_and_then_succeeds_completes_its_run(
    redis_url: str, raw: redis.Redis
) -> None:
    """By the pinned clock: no power overflows, and no retry is lost or later than the cap."""
    async with player(redis_url, raw) as playing:
        played = await playing.play(Construct(insists, FAILURES + 1), "r")

    assert played.outcome == FAILURES + 1
    kinds = [event.kind for event in played.log]
    assert kinds.count(EventKind.STEP_STARTED) == FAILURES + 1
    assert kinds.count(EventKind.STEP_RETRYING) == FAILURES
    starts = [event.at for event in played.log if event.kind is EventKind.STEP_STARTED]
    delays = [after - before for before, after in itertools.pairwise(starts)]
    assert 0 < min(delays) <= max(delays) <= CAP_MS
    assert starts[-1] - NOW > FAILURES * CAP_MS // 4
