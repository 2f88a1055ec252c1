"""What does a type checker infer of hooks? mypy reads this file (test_types.py); nothing runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import msgspec

from redisworld import BaseHook, Hook, HookInfo, Run, World, hook


@dataclass
class Approval(BaseHook):
    by: str


class Order(BaseHook, msgspec.Struct):
    item: str


async def body() -> None:
    assert_type(hook(Approval), Hook[Approval])
    assert_type(await hook(Approval, token="t", metadata=1), Approval)
    assert_type(await hook(int), int)
    assert_type(await hook(list[int]), list[int])
    assert_type(await hook(int | None), Any)  # no type of a class: a checker cannot know more
    assert_type(await hook(token="t"), Any)

    assert_type(Approval.wait(), Hook[Approval])
    assert_type(await Approval.wait(token="t"), Approval)
    async with Order.wait(token="t") as orders:
        assert_type(orders, Hook[Order])
        async for order in orders:
            assert_type(order, Order)
        assert_type(await orders.get_conflict(), str | None)


async def client(world: World) -> None:
    assert_type(await world.resume("t", Approval("kim"), resume_id="mail-7"), Run[Any])
    assert_type(await world.hook("t"), HookInfo)


def wrong() -> None:
    hook(Approval, "t")  # type: ignore[call-overload]  # a token goes by name
    Approval.wait("t")  # type: ignore[call-arg]
