"""Does what a body hands over come back as it was, in the order it was asked for?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import redis

from redisworld import InvalidValue, Status, StepError, Workflows
from redisworld.observe import RunFetched
from redisworld.replay import Instance
from redisworld.replay.commands import Completed
from tests.apps import conf_app
from tests.chaos import invariants
from tests.conformance.conftest import Connect
from tests.conformance.harness import connected

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("count", [0, 1, 2, 100])
async def test_a_join_of_any_width_gives_a_list_in_order_and_goes_on_once(
    raw: redis.Redis, connect: Connect, count: int
) -> None:
    """A24: the follow-up step runs once."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.joined, count, run_id="r")
        await consumers.drain()
        result = await consumers.world.run("r", conf_app.joined).result(timeout=5)
        assert list(result) == [[2 * number for number in range(count)], count]
        assert conf_app.executions("echo") == 1
        assert conf_app.executions("double") == count
        assert len(consumers.saw(RunFetched)) == (1 if count > 1 else 0)
    invariants.check(raw, conf_app.wf)


@pytest.mark.parametrize(
    "value", [2**63 - 1, 2**64 - 1, 2**64, -(2**63) - 1, 10**40, -(10**40), True, {"deep": [2**70, {"er": -(2**70)}]}]
)
async def test_integers_of_any_size_survive_every_position(raw: redis.Redis, connect: Connect, value: object) -> None:
    """A29: workflow argument, step argument, step result, workflow result, and the text of an exception."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.round_trip, value, run_id="r")
        await consumers.drain()
        back, given, text = await consumers.world.run("r", conf_app.round_trip).result(timeout=5)
        assert (back, given) == (value, value)
        assert type(back) is type(value)
        assert text == f"value is {value}"
    invariants.check(raw, conf_app.wf)


wf = Workflows()


class OrderLost(Exception):
    """An application's own, whose arguments are not those of its __init__."""

    def __init__(self, order: int, *, reason: str) -> None:
        super().__init__(f"order {order} is lost: {reason}")
        self.order, self.reason = order, reason


@wf.step(max_retries=0)
async def find(order: int) -> None:
    try:
        raise KeyError(order)
    except KeyError as error:
        lost = OrderLost(2**70, reason="fell")
        lost.add_note("ask the warehouse")
        raise lost from error


@wf.step
async def tell(text: str) -> str:
    return text


@wf.workflow
async def search() -> list[Any]:
    try:
        await find(7)
    except OrderLost as error:
        told = await tell(f"{error} {error.__notes__} {error.__cause__!r}")
        return [told, error.order, error.args]
    return []


async def test_the_applications_own_exception_is_caught_in_the_body_and_again_in_every_replay(
    redis_url: str, raw: redis.Redis
) -> None:
    async with connected(redis_url, raw, app=wf) as consumers:
        await consumers.world.start(search, run_id="r")
        await consumers.drain()
        told, order, args = await consumers.world.run("r", search).result(timeout=5)
        log = consumers.log("r")
    text = f"order {2**70} is lost: fell"
    assert told == f"{text} ['ask the warehouse'] KeyError(7)"
    assert (order, args) == (2**70, (text,))
    invariants.check(raw, wf)

    again = Instance(run_id="r", workflow=search, input=search.signature.encode_call((), {}), at=log[0].at)
    again.start()
    for event in log:
        again.deliver(event)

    assert isinstance(again.outcome, Completed)
    assert again.outcome.result == log[-1].payload


def now_named(order: Any) -> Workflows:
    """The application with this class of orders."""
    app = Workflows()

    async def ship(order: Any) -> str:
        return f"shipped {order}"

    ship.__annotations__["order"] = order
    shipping = app.step(ship)

    @app.workflow
    async def place(number: int) -> str:
        try:
            return await shipping(order(number))
        except StepError as error:
            return f"{type(error).__name__} {error}"

    return app


@dataclass
class Order:
    number: int


@dataclass
class OrderWithNote:
    number: int
    note: str = "-"


@dataclass
class OrderByName:
    number: str


@pytest.mark.parametrize(
    ("later", "ends"),
    [
        (OrderWithNote, "shipped OrderWithNote(number=1, note='-')"),
        (OrderByName, "RemoteError redisworld.errors.InvalidArguments: step ship: argument 'order': does not fit"),
    ],
)
async def test_arguments_under_way_are_read_by_the_code_that_is_deployed_then(
    redis_url: str, raw: redis.Redis, later: Any, ends: str
) -> None:
    """The old code asks for the step, the new code runs it. A refusal ends the step; the run goes on."""
    before, after = now_named(Order), now_named(later)
    async with connected(redis_url, raw, app=before, max_inline_steps=0) as old:
        await old.world.start(before.workflows["place"], 1, run_id="r")
        await old.wake()
    # A body that makes the order again refuses it at its own call; here the class came from elsewhere.
    after.workflows["place"] = before.workflows["place"] if later is OrderByName else after.workflows["place"]
    async with connected(redis_url, raw, app=after) as new:
        await new.drain()
        result = await new.world.run("r", after.workflows["place"]).result(timeout=5)
    assert result.startswith(ends)
    invariants.check(raw, after)


def ordering(order: Any) -> Any:
    """A workflow whose result is an order."""

    async def ordered() -> Any:
        return order(1)

    ordered.__annotations__["return"] = order
    return Workflows().workflow(ordered)


async def test_the_result_of_a_run_that_no_longer_fits_is_still_there_for_the_old_code(
    redis_url: str, raw: redis.Redis
) -> None:
    app, before, after = Workflows(), ordering(Order), ordering(OrderByName)
    app.workflows["ordered"] = before
    async with connected(redis_url, raw, app=app) as consumers:
        await consumers.world.start(before, run_id="r")
        await consumers.drain()
        with pytest.raises(InvalidValue, match="workflow ordered: the result: does not fit OrderByName"):
            await consumers.world.run("r", after).result(timeout=5)
        assert await consumers.world.run("r", before).result(timeout=5) == Order(1)
        assert await consumers.world.run("r").status() is Status.COMPLETED
