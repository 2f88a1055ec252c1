"""Where goes what a worker sends that knows an older deployment of the run than the row does?"""

from __future__ import annotations

import pytest

from tests.scripts.driver import RUN, Consumer, step
from tests.scripts.test_fences import put_step

pytestmark = pytest.mark.anyio


async def lengths(a: Consumer) -> dict[str, int]:
    """How much stands in each stream of a deployment's own."""
    keys = [key.decode() for key in await a.redis.keys("*@*")]
    found = {key.removeprefix(a.partition.tag): await a.redis.xlen(key) for key in keys}
    return {name: length for name, length in found.items() if length}


async def moved(a: Consumer) -> None:
    """The run has been moved to deployment v2."""
    await a.redis.hset(a.key(), mapping={"deployment": "v2", "pin": "@v2"})


async def test_steps_of_a_pass_go_to_the_deployment_of_the_row_alone_or_many(a: Consumer) -> None:
    turn = await a.begin()
    await moved(a)

    await a.commit(turn, *(step(f"s{n}", target="steps:gpu@v1") for n in range(3)), step("other", target="steps"))

    assert await lengths(a) == {"steps:gpu@v2": 3}
    assert await a.redis.xlen(a.partition.steps()) == 1, "a stream of all deployments stays one"


async def test_steps_of_a_run_without_a_deployment_go_to_the_shared_stream(a: Consumer) -> None:
    turn = await a.begin()

    await a.commit(turn, step("s1", target="steps@v1"))

    assert await lengths(a) == {}
    assert await a.redis.xlen(a.partition.steps()) == 1


@pytest.mark.parametrize("delay_ms", [0, 10])
async def test_a_retry_goes_to_the_deployment_of_the_row(a: Consumer, delay_ms: int) -> None:
    attempt = await put_step(a, "running")
    await moved(a)

    await a.complete(attempt, "retrying", target="steps:gpu@v1", delay_ms=delay_ms)
    a.clock.advance(delay_ms)
    await a.world.upkeep.promote(a.partition)

    assert await lengths(a) == {"steps:gpu@v2": 1}


@pytest.mark.parametrize("delay_ms", [0, 10])
async def test_a_message_that_is_handed_back_goes_to_the_deployment_of_the_row(a: Consumer, delay_ms: int) -> None:
    await put_step(a, "pending")
    delivery = await a.publish("s1", stream="steps@v1")
    await moved(a)

    assert await a.move(delivery, delay_ms=delay_ms)
    a.clock.advance(delay_ms)
    await a.world.upkeep.promote(a.partition)

    assert await lengths(a) == {"steps@v2": 1}


async def test_a_letter_is_redriven_to_the_deployment_of_the_row(a: Consumer) -> None:
    await put_step(a, "pending")
    delivery = await a.publish("s1", stream="steps@v1")
    await a.world.deliveries.bury(delivery, run_id=RUN, reason="unknown_name", detail="why")
    await moved(a)

    (letter,) = [letter.name async for letter in a.world.dead.letters()]
    await a.world.dead.redrive(letter)

    assert await lengths(a) == {"steps@v2": 1}


async def test_a_wake_goes_to_the_deployment_that_the_run_was_given(a: Consumer) -> None:
    await a.commit(await a.begin())
    await a.redis.hset(a.key(), mapping={"deployment": "v1", "pin": "@v1"})
    await a.world.call("repin_run", a.partition, RUN, "v1", "v2")

    await a.world.cancel(RUN)

    assert await lengths(a) == {"workflows@v2": 1}
