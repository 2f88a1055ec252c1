"""Which steps do the bodies of the catalogue call, and how do they take time without a clock?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from redisworld import Backoff, FatalError, RetryableError, Workflows, get_step_metadata

wf = Workflows()

MANY = 90
"""Retries of a step: each crash of its worker uses one up."""

NOW = 2_000_000_000_000
"""Where the pinned clock begins, in epoch milliseconds."""


class Clock:
    """The pinned clock that Redis and the steps share."""

    def __init__(self) -> None:
        self.ms = NOW

    def __call__(self) -> int:
        return self.ms


clock = Clock()


@dataclass
class Order:
    """What a step returns: a dataclass with a Decimal in it."""

    name: str
    total: Decimal


@wf.step(max_retries=MANY)
async def work(what: str) -> str:
    return what


@wf.step(max_retries=MANY)
async def undo(what: str) -> str:
    return f"undone {what}"


@wf.step(max_retries=MANY)
async def refuses(what: str) -> str:
    raise FatalError(what)


@wf.step(max_retries=MANY, backoff=Backoff(first_ms=1, jitter=0))
async def late(what: str, seconds: float) -> str:
    """Takes ``seconds`` by the pinned clock, counted from its first attempt, whoever dies meanwhile."""
    spent = clock.ms - get_step_metadata().step_started_at.timestamp() * 1_000
    if spent < seconds * 1_000:
        raise RetryableError("not yet", retry_after=timedelta(milliseconds=round(seconds * 1_000 - spent)))
    return what


@wf.step(max_retries=MANY)
async def greet(name: str, greeting: str = "hello", *, mark: str = "!") -> str:
    return f"{greeting} {name}{mark}"


@wf.step(max_retries=MANY)
async def price(name: str, cents: int) -> Order:
    return Order(name, Decimal(cents) / 100)


@wf.step(max_retries=MANY)
async def echo(value: Any) -> Any:
    return value
