"""Scenes of move_message, bury_message, settle_message, renew_leases, reclaim_stale and remove_consumer."""

from __future__ import annotations

import msgspec

from tests.scripts.driver import RUN, Consumer, inline, step
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, Call, scene
from tests.scripts.test_fences import put_step

# A call that takes a delivery away cannot know it afterwards: asked again it finds nothing of its own.


@scene("move_message", "moved", again="stale")
async def a_delivery_is_put_back(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    return lambda: a.move(attempt.delivery, target="steps:gpu")


@scene("move_message", "moved", again="stale")
async def a_delivery_is_put_back_for_later(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    return lambda: a.move(attempt.delivery, delay_ms=1000)


@scene("move_message", "moved", again="stale")
async def the_message_that_continues_a_run_goes_on_under_another_id(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    return lambda: a.move(turn.delivery, new_id="start2")


@scene("move_message", "moved", again="stale")
async def the_owner_of_an_inline_step_goes_on_under_another_id(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, inline("s1", "t1"))
    return lambda: a.move(turn.delivery, new_id="start2")


@scene("move_message", "stale")
async def a_lost_delivery_is_put_back(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await b.take(attempt.delivery)
    return lambda: a.move(attempt.delivery)


@scene("move_message", "broken")
async def a_delivery_is_put_into_a_stream_that_another_program_has_overwritten(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await overwrite(a, a.partition.steps("gpu"))
    return lambda: a.move(attempt.delivery, target="steps:gpu")


async def bury(a: Consumer, state: str, code: str = "") -> Ask:
    """A delivery of a step in this state is to be buried."""
    delivery = (await put_step(a, state)).delivery
    return lambda: a.world.deliveries.bury(
        delivery, run_id=RUN, reason="max_deliveries", detail="why", code=code, payload=b"\x80"
    )


@scene("bury_message", "buried", again="stale")
async def a_delivery_is_buried(a: Consumer, b: Consumer) -> Ask:
    return await bury(a, "pending")


@scene("bury_message", "buried", again="stale")
async def a_delivery_is_buried_and_its_run_fails(a: Consumer, b: Consumer) -> Ask:
    return await bury(a, "running", "MAX_DELIVERIES_EXCEEDED")


@scene("bury_message", "buried", again="stale")
async def a_delivery_of_a_run_that_does_not_exist_is_buried(a: Consumer, b: Consumer) -> Ask:
    delivery = await a.publish("s1")
    return lambda: a.world.deliveries.bury(delivery, run_id=RUN, reason="unknown_run", detail="", code="X")


@scene("bury_message", "stale")
async def a_lost_delivery_is_buried(a: Consumer, b: Consumer) -> Ask:
    ask = await bury(a, "pending", "X")
    (entry,) = await a.redis.xrange(a.partition.steps())
    await a.redis.xclaim(a.partition.steps(), "workers", b.world.consumer, 0, [entry[0]])
    return ask


@scene("bury_message", "broken")
async def a_delivery_is_buried_where_another_program_has_overwritten_the_dead_letters(a: Consumer, b: Consumer) -> Ask:
    await overwrite(a, a.partition.dead)
    return await bury(a, "pending")


@scene("settle_message", "settled", again="stale")
async def a_delivery_is_settled(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    return lambda: a.world.deliveries.settle(attempt.delivery)


@scene("settle_message", "stale")
async def a_lost_delivery_is_settled(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await b.take(attempt.delivery)
    return lambda: a.world.deliveries.settle(attempt.delivery)


@scene("settle_message", "broken")
async def a_delivery_is_settled_under_an_entry_id_that_is_none(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    return lambda: a.world.deliveries.settle(msgspec.structs.replace(attempt.delivery, entry_id="x"))


@scene("renew_leases", "broken")
async def a_delivery_is_renewed_in_a_stream_that_is_none(a: Consumer, b: Consumer) -> Call:
    return Call("renew_leases", a.partition.stats, (a.world.consumer, "stats", "1-1", RUN))


@scene("renew_leases", "renewed")
async def one_of_two_deliveries_can_be_renewed(a: Consumer, b: Consumer) -> Call:
    deliveries = (await a.dispatch(step("s1"), step("s2"))).values()
    await b.take(next(iter(deliveries)))
    args = [part for delivery in deliveries for part in (delivery.stream, delivery.entry_id, RUN)]
    return Call("renew_leases", a.partition.stats, (a.world.consumer, *args))


@scene("renew_leases", "renewed")
async def a_delivery_of_a_cancelled_run_is_renewed(a: Consumer, b: Consumer) -> Call:
    [delivery] = (await a.dispatch(step("s1"))).values()
    await a.finish(how="cancelled")
    return Call("renew_leases", a.partition.stats, (a.world.consumer, delivery.stream, delivery.entry_id, RUN))


# The sweep of a stream: what a repeat takes is what came since.


@scene("reclaim_stale", "reclaimed", again="reclaimed")
async def a_delivery_is_reclaimed_whose_lease_ran_out(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await a.age(attempt.delivery)
    return lambda: b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)


@scene("reclaim_stale", "reclaimed")
async def nothing_is_reclaimed_while_leases_are_renewed(a: Consumer, b: Consumer) -> Ask:
    await put_step(a, "running")
    hour = 3_600_000  # a scene may stand for minutes
    return lambda: b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10, lease_ms=hour)


@scene("reclaim_stale", "busy")
async def a_stream_is_swept_by_another_consumer(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)
    await a.age(attempt.delivery)
    return lambda: a.world.deliveries.reclaim((a.partition, "steps"), "0-0", 10)


@scene("reclaim_stale", "no_group")
async def a_stream_is_swept_whose_group_is_gone(a: Consumer, b: Consumer) -> Ask:
    return lambda: a.world.deliveries.reclaim((a.partition, "steps"), "0-0", 10)


@scene("reclaim_stale", "broken")
async def a_stream_is_swept_where_another_program_has_overwritten_the_counters(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await a.age(attempt.delivery)
    await overwrite(a, a.partition.stats)
    return lambda: b.world.deliveries.reclaim((b.partition, "steps"), "0-0", 10)


@scene("remove_consumer", "removed")
async def a_consumer_that_holds_nothing_is_removed(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "pending")
    await b.take(attempt.delivery)
    return lambda: b.world.upkeep.remove_consumer((b.partition, "steps"), a.world.consumer)


@scene("remove_consumer", "holding")
async def a_consumer_that_holds_something_is_removed(a: Consumer, b: Consumer) -> Ask:
    await put_step(a, "pending")
    return lambda: b.world.upkeep.remove_consumer((b.partition, "steps"), a.world.consumer)


@scene("remove_consumer", "no_group")
async def a_consumer_of_a_group_that_is_gone_is_removed(a: Consumer, b: Consumer) -> Ask:
    return lambda: b.world.upkeep.remove_consumer((b.partition, "steps"), a.world.consumer)


@scene("remove_consumer", "broken")
async def a_consumer_of_a_stream_that_is_none_is_removed(a: Consumer, b: Consumer) -> Ask:
    return lambda: b.world.upkeep.remove_consumer((b.partition, "stats"), a.world.consumer)
