"""Is a class with BaseHook mixed in the payload of its own hook, whatever kind of class it is?"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest

from redisworld import BaseHook, hook
from redisworld.errors import HookDisposed, InvalidInput
from redisworld.events import EventKind
from redisworld.workflows import Workflow
from tests.unit.replay_driver import Driver


@dataclasses.dataclass
class InDataclass(BaseHook):
    by: str
    times: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class InFrozen(BaseHook):
    by: str
    times: int = 1


class InStruct(BaseHook, msgspec.Struct):
    by: str
    times: int = 1


class InModel(BaseHook, pydantic.BaseModel):
    by: str
    times: int = 1


class ModelFirst(pydantic.BaseModel, BaseHook):
    by: str
    times: int = 1


KINDS = [InDataclass, InFrozen, InStruct, InModel, ModelFirst]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sent", ["itself", "a dict"])
def test_wait_gives_an_instance_of_the_class_it_is_called_on(kind: Any, sent: str) -> None:
    async def body() -> list[Any]:
        approval = await kind.wait(token="order:1")
        return [type(approval).__name__, approval.by, approval.times]

    driver = Driver(Workflow(body))
    driver.resume("order:1", kind(by="kim") if sent == "itself" else {"by": "kim"})
    driver.check_every_prefix()

    assert driver.run() == [kind.__name__, "kim", 1]


def test_wait_is_hook_with_the_class_its_token_and_its_metadata() -> None:
    async def short() -> None:
        InDataclass.wait(token="t", metadata={"asks": "kim"}).dispose()
        await InDataclass.wait(token="u")

    async def long() -> None:
        hook(InDataclass, token="t", metadata={"asks": "kim"}).dispose()
        await hook(InDataclass, token="u")

    logs = []
    for body in (short, long):
        driver = Driver(Workflow(body))
        driver.resume("u", {"by": "kim"})
        driver.run()
        logs.append([(e.id, e.detail, e.payload) for e in driver.store.log if e.kind is EventKind.HOOK_CREATED])

    assert logs[0] == logs[1]


def test_the_payloads_of_a_class_can_be_iterated_until_its_hook_is_disposed_of() -> None:
    async def body() -> list[Any]:
        seen = []
        async with InStruct.wait(token="t") as orders:
            async for order in orders:
                seen.append(order.by)
                if len(seen) == 2:
                    break
        with pytest.raises(HookDisposed):
            await orders
        return seen

    driver = Driver(Workflow(body))
    for by in ("kim", "lee"):
        driver.resume("t", {"by": by})

    assert driver.run() == ["kim", "lee"]


def test_wait_outside_a_body_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^InDataclass.wait\(\) belongs in a workflow body"):
        InDataclass.wait()
