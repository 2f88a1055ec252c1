"""Workflows whose bodies are put together at random; the seed that a run is started with names its body."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from redisworld import FatalError, RetryableError, Workflows, get_step_metadata, now
from tests.constructs.random_anyio import AnyioPlayer, random_body_with_anyio
from tests.constructs.random_bodies import Node

LONGEST_MS = 300

wf = Workflows()


@wf.step(max_retries=50)
async def work(label: int, delay_ms: int, fails: bool) -> int:
    """Takes so long; one in five asks for a retry first."""
    await asyncio.sleep(delay_ms / 1_000)
    if delay_ms % 5 == 0 and get_step_metadata().attempt == 1:
        raise RetryableError("once more", retry_after=delay_ms / 1_000)
    if fails:
        raise FatalError(f"{label} failed")
    return label


def quick(body: Node) -> Node:
    """The same body, in tenths of a second."""
    return body._replace(delay_ms=body.delay_ms % LONGEST_MS, inside=tuple(map(quick, body.inside)))


@wf.workflow
async def play(seed: int, size: int) -> list[Any]:
    """What the body has seen."""
    player = AnyioPlayer(work, lambda: int(now().timestamp() * 1_000))
    await player.play(quick(random_body_with_anyio(Random(seed), size)))
    return [entry[1:] for entry in player.seen(in_order=True)]
