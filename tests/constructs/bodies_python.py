"""What do generators, context managers, context variables, loops and values give?"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from decimal import Decimal
from typing import Any

from redisworld import FatalError, random, uuid4
from tests.constructs.catalogue import gives
from tests.constructs.steps import Order, echo, greet, late, price, refuses, undo, work

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


async def numbers(count: int) -> AsyncIterator[str]:
    """A generator that calls a step for each item, and one when it is closed."""
    try:
        for number in range(count):
            yield await work(str(number))
    finally:
        await undo("generator")


@asynccontextmanager
async def rented(name: str, out: list[str]) -> AsyncIterator[str]:
    """A resource that steps open and close."""
    yield await work(name)
    out.append(await undo(name))


@gives(["0", "1", "2"])
async def async_generator() -> list[str]:
    return [await echo(number) async for number in numbers(3)]


@gives(["0", "1", "end"])
async def async_generator_left_early() -> list[str]:
    out = []
    async with aclosing(numbers(10)) as items:  # type: ignore[type-var]  # AsyncIterator by annotation, a generator
        async for number in items:
            out.append(number)
            if number == "1":
                break
    return [*out, await work("end")]


@gives(["0"])
async def async_generator_dropped() -> list[str]:
    async for number in numbers(10):
        return [number]
    return []


@gives(["car", "undone car"])
async def async_context_manager() -> list[str]:
    out: list[str] = []
    async with rented("car", out) as car:
        out.append(await echo(car))
    return out


@gives(["in use", "undone b", "undone a"])
async def async_exit_stack() -> list[str]:
    out: list[str] = []
    async with AsyncExitStack() as stack:
        for name in "ab":
            await stack.enter_async_context(rented(name, out))
        out.append(await work("in use"))
    return out


@gives(["a a", "b b", "main main"])
async def context_variables() -> list[str]:
    tenant.set("main")

    async def branch(name: str) -> str:
        tenant.set(name)
        before = tenant.get()
        await late(name, 1)
        return f"{before} {tenant.get()}"

    found = list(await asyncio.gather(branch("a"), branch("b")))
    before = tenant.get()
    await work("x")
    return [*found, f"{before} {tenant.get()}"]


@gives(1225)
async def loop_over_fifty() -> int:
    total = 0
    for number in range(50):
        total += await echo(number)
    return total


@gives(["a", "caught no", "undone a", "else", "finally"])
async def try_except_else_finally() -> list[str]:
    out = [await work("a")]
    try:
        await refuses("no")
    except FatalError as error:
        out += [f"caught {error}", await undo("a")]
    try:
        pass
    except ValueError:
        out.append("?")
    else:
        out.append(await work("else"))
    finally:
        out.append(await work("finally"))
    return out


@gives("failed: redisworld.errors.FatalError no")
async def failure_let_through() -> str:
    try:
        return await refuses("no")
    finally:
        await undo("x")


@gives("failed: ValueError own")
async def failure_of_the_body() -> str:
    await work("a")
    raise ValueError("own")


@gives(["hello ann!", "hi bob?", "hey cid!"])
async def partials_and_defaults() -> list[str]:
    hey = functools.partial(greet, greeting="hey")
    return [await greet("ann"), await greet("bob", "hi", mark="?"), await hey("cid")]


@gives({"a": Order("a", Decimal("0.1")), "b": Order("b", Decimal("2.5"))})
async def dataclasses_and_decimals() -> dict[str, Order]:
    first, second = await asyncio.gather(price("a", 10), price("b", 250))
    assert isinstance(first, Order)
    assert isinstance(first.total, Decimal)
    return {order.name: order for order in (first, second)}


@gives(["b", "a", "c"])
async def sorting_by_steps() -> list[str]:
    weights = {name: await echo(weight) for name, weight in (("a", 2), ("b", 1), ("c", 3))}
    return sorted(weights, key=weights.__getitem__)


@gives([True, True, True])
async def chance_and_ids() -> list[bool]:
    """What chance gives is in the arguments of steps: a replay that drew otherwise would diverge."""
    drawn = [str(uuid4()), random().random(), random().sample(range(1_000), 5)]
    return [await echo(value) == value for value in drawn]


@gives([["x", "y"], {"k": [1, None]}, {1, 2}, (1, "2"), b"\xff", 2**70])
async def values_of_many_types() -> list[Any]:
    given: list[Any] = [["x", "y"], {"k": [1, None]}, {1, 2}, (1, "2"), b"\xff", 2**70]
    return list(await asyncio.gather(*(echo(value) for value in given)))


@gives("3 2 1 0")
async def recursion() -> str:
    async def down(number: int) -> str:
        here = await work(str(number))
        return f"{here} {await down(number - 1)}" if number else here

    return await down(3)


@gives("big")
async def branches_on_a_result() -> str:
    match await echo({"size": 12}):
        case {"size": size} if size > 10:
            return await work("big")
        case _:
            return await undo("small")


class Saga:
    """A body written as an object whose methods call steps."""

    def __init__(self) -> None:
        self.undos: list[functools.partial[Any]] = []

    async def do(self, name: str) -> None:
        await work(name)
        self.undos.append(functools.partial(undo, name))

    async def roll_back(self) -> list[str]:
        return [await compensation() for compensation in reversed(self.undos)]


@gives(["undone flight", "undone hotel"])
async def saga() -> list[str]:
    trip = Saga()
    try:
        await trip.do("hotel")
        await trip.do("flight")
        await refuses("no car")
    except FatalError:
        return await trip.roll_back()
    return []
