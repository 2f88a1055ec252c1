"""Does a call work when Redis has forgotten the scripts (restart, failover, SCRIPT FLUSH)?"""

from __future__ import annotations

import pytest

from redisworld import scripts
from redisworld.errors import RunGone
from redisworld.world import Renewal
from redisworld.world.living import Living
from redisworld.world.recovering import Suspect
from tests.scripts.driver import RUN, Consumer, end, step

pytestmark = pytest.mark.anyio


def nothing_seen_in(*streams: str) -> Living:
    return Living(dict.fromkeys(streams, "0-0"), set(), set(), set(), [])


async def test_every_script_is_sent_again_when_redis_has_forgotten_it(a: Consumer) -> None:
    # given a server that forgets its scripts before each call, of which we keep the names
    called = set()
    sent = a.world.connection.script

    async def forgetful(script: scripts.Script, key: str, args: list[object], **more: object) -> object:
        await a.redis.script_flush()
        called.add(script.name)
        return await sent(script, key, args, **more)  # type: ignore[arg-type]

    a.world.connection.script = forgetful  # type: ignore[method-assign,assignment]

    # when a run goes through all of them
    d = await a.dispatch(step("s1"), step("s2"), step("s3"), ["wait", "w1", a.clock.now + 5])
    first, second = await a.claim(d["s1"]), await a.claim(d["s2"])
    await a.world.outputs.write(RUN, "default", [b"\x01"], step_id="s2", attempt=1, token=second.item.token, index=0)
    await a.retry(first, delay_ms=5)
    await a.move(d["s3"])
    renewal = Renewal(a.world.connection, a.world.consumer)
    await a.redis.script_flush()
    assert renewal.renew(a.partition, [second.delivery]).lost == []
    renewal.close()
    called.add("renew_leases")
    a.clock.advance(5)
    assert await a.world.upkeep.promote(a.partition) == (None, [0, 0])
    await a.world.events.hook_created(RUN, "h1", "token")
    await a.world.hooks.resume("token", b"")
    await a.world.events.hook_disposed(RUN, "h1")
    await a.world.hooks.release(a.partition)
    await a.world.cancel(RUN)
    await a.world.deliveries.reclaim((a.partition, "steps"), "0-0", 10)
    deliveries = await a.steps_delivered()
    await a.world.deliveries.bury(deliveries["s3"], run_id=RUN, reason="undecodable", detail="")
    await a.world.deliveries.settle(deliveries["s1"])
    turn = await a.load((await a.read("workflows"))[0])
    assert (await a.complete(second)).outcome == "completed"
    assert (await a.commit(turn)).outcome == "again"
    assert (await a.commit(await a.load(turn.delivery), end())).outcome == "ended"
    await a.world.upkeep.remove_consumer((a.partition, "steps"), a.world.consumer)
    await a.world.upkeep.reap(a.partition, 1)
    (letter,) = [letter.name async for letter in a.world.dead.letters()]
    with pytest.raises(RunGone):
        await a.world.dead.redrive(letter)
    await a.world.dead.drop(letter)
    await a.world.recovery.suspects(a.partition, [RUN])
    await a.world.recovery.wake(RUN, "w1", nothing_seen_in("steps"), mode="look")
    suspect = Suspect(RUN, "step", "s1", (await a.redis.hget(a.key(), "s:s1")).decode())
    lost = await a.world.recovery.step(suspect, nothing_seen_in("steps"), mode="look", queue_of=lambda _: "")
    assert lost.outcome == "gone"
    assert await a.world.recovery.delayed("wait", RUN, "w1", mode="look") == "fits"
    assert await a.world.recovery.listing(RUN, mode="look") == "fits"
    await a.start("r2")
    await a.redis.hset(a.key("r2"), mapping={"deployment": "v1", "pin": "@v1"})
    await a.publish("s1", run="r2", stream="steps@v1")
    await a.move(await a.publish("s1", run="r2", stream="steps@v1"), delay_ms=1000)
    await a.world.deployments.move("v1", "v2", leave_held=True)

    # then nothing was missing
    assert called == set(scripts.names())
