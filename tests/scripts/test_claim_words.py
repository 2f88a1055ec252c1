"""Has every refusal of a claim a word of its own, and does it mean what it says? (case A19)

The bug report: a step that did not exist yet was refused with the word for one that was over, and its message dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from redisworld.world import Delivery
from tests.scripts.driver import Consumer
from tests.scripts.test_fences import put, put_step

pytestmark = pytest.mark.anyio


async def run_terminal(a: Consumer) -> Delivery:
    attempt = await put_step(a, "pending")
    await put(a, "cancelled")
    return attempt.delivery


async def step_terminal(a: Consumer) -> Delivery:
    return await a.duplicate((await put_step(a, "completed")).delivery)


async def step_unknown(a: Consumer) -> Delivery:
    return (await put_step(a, "missing")).delivery


async def not_due_yet(a: Consumer) -> Delivery:
    return await a.duplicate((await put_step(a, "delayed")).delivery)


async def stale_attempt(a: Consumer) -> Delivery:
    return await a.duplicate((await put_step(a, "running")).delivery)


REFUSALS: dict[Callable[[Consumer], Awaitable[Delivery]], str] = {
    run_terminal: "gone",
    step_terminal: "skipped",
    step_unknown: "missing",
    not_due_yet: "too_early",
    stale_attempt: "stale",
}


@pytest.mark.parametrize("situation", REFUSALS, ids=lambda build: build.__name__)
async def test_a_claim_that_is_refused_says_why_and_acknowledges_only_what_is_over(
    a: Consumer, situation: Callable[[Consumer], Awaitable[Delivery]]
) -> None:
    """A19: what may still come, a missing step or a later retry, stays pending."""
    delivery = await situation(a)
    before = await a.written()

    answer = await a.claim(delivery)

    assert answer.outcome == REFUSALS[situation]
    assert await a.written() == before
    assert await a.holds(delivery) == (answer.outcome in ("missing", "too_early"))


def test_no_two_refusals_share_a_word() -> None:
    """A19."""
    assert len(set(REFUSALS.values())) == len(REFUSALS)
