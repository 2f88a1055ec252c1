"""Does a step late in a long run cost what an early one costs?"""

from __future__ import annotations

import asyncio

import pytest
import redis

from tests.constructs.length import Measured, measure

MOST = 1.2


@pytest.mark.parametrize(("inline", "steps"), [(1, 2_000), (0, 300)])
def test_a_step_at_the_end_of_a_sequential_run_costs_what_the_tenth_did(
    redis_url: str, raw: redis.Redis, inline: int, steps: int
) -> None:
    """10,000: ``python -m tests.constructs --steps 10000``."""
    found = asyncio.run(measure(redis_url, raw, "sequential", steps, steps=steps, max_inline_steps=inline))
    assert found.result == sum(range(1_000_000, 1_000_000 + steps))
    _check(found)


def test_a_thousand_steps_in_ten_parallel_chains_cost_the_same_throughout(redis_url: str, raw: redis.Redis) -> None:
    found = asyncio.run(measure(redis_url, raw, "in_chains", 10, 100, steps=1_000))
    assert found.result == sum(range(1_000_000, 1_001_000))
    _check(found)


def _check(found: Measured) -> None:
    assert found.late.calls <= MOST * found.early.calls
    assert found.late.bytes <= MOST * found.early.bytes
