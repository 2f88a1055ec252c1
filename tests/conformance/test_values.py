"""Does what a body hands over come back as it was, in the order it was asked for?"""

from __future__ import annotations

import pytest
import redis

from redisworld.observe import RunFetched
from tests.apps import conf_app
from tests.chaos import invariants
from tests.conformance.conftest import Connect

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
