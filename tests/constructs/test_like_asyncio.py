"""Does a body see what it would see on asyncio's own loop, with steps that are coroutines?

The same random bodies run on both, in virtual time, and every prefix of what they leave in the log replays alike.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redisworld import hook, values
from redisworld.replay import install
from redisworld.workflows import Workflow
from tests.constructs.random_anyio import AnyioPlayer, random_body_with_anyio
from tests.constructs.random_bodies import LONGEST_MS, Node, Player, random_body
from tests.constructs.random_hooks import HookPlayer, QueueHook, random_body_with_hooks
from tests.constructs.virtual_time import on_asyncio, on_ours, work
from tests.unit.replay_driver import Driver

install()


class ThereWithHooks(HookPlayer):
    """Hooks on asyncio."""

    make_hook = QueueHook


class HereWithHooks(HookPlayer):
    """Hooks of ours."""

    @staticmethod
    def make_hook(token: str) -> Any:
        """A hook."""
        return hook(int, token=token)


@pytest.mark.parametrize("size", [3, 6, 12, 25])
@settings(max_examples=500)
@given(seed=st.integers(0, 2**32))
def test_a_random_body_sees_on_ours_what_it_sees_on_asyncio(size: int, seed: int) -> None:
    chance = Random(seed)
    body, cancel_ms = random_body(chance, size), chance.choice([None, None, chance.randint(1, LONGEST_MS)])

    there, began_there = on_asyncio(body, cancel_ms)
    here, began_here, _ = on_ours(body, cancel_ms)

    in_order = not body.holds("group")  # which cancels its tasks in the order of a set
    assert here.seen(in_order=in_order) == there.seen(in_order=in_order)
    assert began_here <= began_there  # what a body gives up in the piece in which it asks for it never begins


@pytest.mark.parametrize("size", [3, 6, 12, 25])
@settings(max_examples=250)
@given(seed=st.integers(0, 2**32))
def test_a_random_body_with_anyio_sees_on_ours_what_it_sees_on_asyncio(size: int, seed: int) -> None:
    chance = Random(seed)
    body = random_body_with_anyio(chance, size)
    cancel_ms = chance.choice([None, None, chance.randint(1, LONGEST_MS)])

    here, began_here, _ = on_ours(body, cancel_ms, AnyioPlayer)

    seen, began_there = _seen_there(body, cancel_ms, AnyioPlayer, here)
    assert here.seen(in_order=False) == seen
    assert began_here <= began_there


@pytest.mark.parametrize("size", [3, 6, 12, 25])
@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_a_random_body_with_hooks_sees_on_ours_what_it_sees_on_asyncio_and_its_log_replays_at_every_prefix(
    size: int, seed: int
) -> None:
    chance = Random(seed)
    body, cancel_ms = random_body_with_hooks(chance, size), chance.choice([None, None, chance.randint(1, LONGEST_MS)])

    here, began_here, driver = on_ours(body, cancel_ms, HereWithHooks)

    seen, began_there = _seen_there(body, cancel_ms, ThereWithHooks, here)
    assert here.seen(in_order=False) == seen
    assert began_here <= began_there
    driver.check_every_prefix()


def _seen_there(
    body: Node, cancel_ms: int | None, play: type[Player], here: Player
) -> tuple[list[tuple[Any, ...]], set[int]]:
    """What the body saw on asyncio, where scopes and groups cancel in the order of a set, by address.

    More than one thing may come out: if possible, what ``here`` saw.
    """
    for _ in range(50):
        there, began = on_asyncio(body, cancel_ms, play)
        if there.seen(in_order=False) == here.seen(in_order=False):
            break
    return there.seen(in_order=False), began


def test_a_step_whose_task_is_cancelled_before_it_begins_never_begins() -> None:
    async def body() -> str:
        task = asyncio.create_task(work(1, 1, False))  # type: ignore[arg-type]
        task.cancel("changed my mind")
        try:
            await task
        except asyncio.CancelledError as error:
            await work(2, 1, False)
            return f"{error}, {task.cancelled()}"
        return "?"

    driver = Driver(Workflow(body))

    assert [values.decode(data)["label"] for _, data in driver.store.open.values()] == [2]
    assert driver.run() == "changed my mind, True"
    driver.check_every_prefix()
