"""What does a script answer that is asked again when more has happened since its reply was lost?

Asked again at once, every script answers as ``test_contracts.py`` says.
"""

from __future__ import annotations

from typing import Any

import pytest

from redisworld.world import Renewal, Renewed
from tests.scripts.driver import RUN, Consumer, step
from tests.scripts.scenes.letters import buried
from tests.scripts.test_fences import put_step

pytestmark = pytest.mark.anyio


async def test_a_completion_asked_again_under_another_outcome_answers_the_first(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    await a.complete(attempt, "failed")
    before = await a.dump()

    assert (await a.complete(attempt, "completed")).outcome == "failed"
    assert await a.dump() == before


async def test_a_retry_asked_again_after_another_worker_started_the_next_attempt_is_stale(
    a: Consumer, b: Consumer
) -> None:
    attempt = await put_step(a, "running")
    await a.retry(attempt)
    await b.claim((await b.steps_delivered())["s1"])
    before = await a.dump()

    assert (await a.retry(attempt)).outcome == "stale"
    assert await a.dump() == before


async def test_a_claim_asked_again_after_the_delivery_was_taken_over_is_stale(a: Consumer, b: Consumer) -> None:
    attempt = await put_step(a, "running")
    await b.claim(await b.take(attempt.delivery))
    before = await a.dump()

    assert (await a.world.deliveries.claim(attempt.item)).outcome == "stale"
    assert await a.dump() == before


async def test_a_chunk_asked_again_after_its_steps_have_run_dispatches_none_again(a: Consumer) -> None:
    turn = await a.begin()
    await a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False, token="p")
    await a.complete(await a.claim((await a.steps_delivered())["s1"]))
    before = await a.dump()

    assert (await a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False, token="p")).outcome == "chunk"
    assert await a.dump() == before


async def test_a_reap_asked_again_deletes_nothing_more(a: Consumer) -> None:
    await a.begin("old")
    await a.finish("old")
    a.clock.advance(a.world.settings.retention_ms)
    await a.begin("young")
    await a.finish("young")
    assert await a.world.upkeep.reap(a.partition, 10) == 1
    before = await a.dump()

    assert await a.world.upkeep.reap(a.partition, 10) == 0
    assert await a.dump() == before
    assert not await a.redis.exists(a.key("old"), a.partition.log("old"))


async def test_a_reclaim_asked_again_takes_nothing_twice_and_loses_nothing(a: Consumer, b: Consumer) -> None:
    attempt = await put_step(a, "pending")
    await a.age(attempt.delivery)
    await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)  # the reply is lost
    before = await a.dump()

    assert not (await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)).taken
    assert await a.dump() == before

    await b.age(attempt.delivery)
    assert (await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)).taken


async def test_a_renewal_asked_again_answers_the_same(a: Consumer, b: Consumer) -> None:
    deliveries = await a.dispatch(step("s1"), step("s2"))
    await b.take(deliveries["s2"])
    before = await a.dump()
    renewal = Renewal(a.world.connection, a.world.consumer)

    first, second = (renewal.renew(a.partition, list(deliveries.values())) for _ in range(2))

    renewal.close()
    assert first == second == Renewed(lost=[deliveries["s2"]])
    assert await a.dump() == before


async def test_a_redrive_asked_again_after_the_run_has_ended_names_the_entry_that_it_made(
    a: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told that there is no such letter, and the redrive failed."""
    name = await buried(a)
    call = a.world.call

    async def ask_again(script: str, *args: Any) -> list[Any]:
        """The first reply is lost."""
        first = await call(script, *args)
        if script == "redrive_letter":
            await a.world.cancel(RUN, terminate=True)
            assert first == await call(script, *args)
        return await call(script, *args)

    monkeypatch.setattr(a.world, "call", ask_again)
    entry = await a.world.dead.redrive(name)
    assert [there.decode() for there, _ in await a.redis.xrange(a.partition.steps())] == [entry]
