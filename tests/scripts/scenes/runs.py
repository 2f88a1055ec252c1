"""Scenes of start_many, load_run and cancel_run."""

from __future__ import annotations

from redisworld.world.begins import Begins
from tests.scripts.driver import RUN, Consumer, end, inline, step
from tests.scripts.scenes.scene import Ask, scene


async def overwrite(a: Consumer, key: str) -> None:
    """Another program writes its own value to a key of ours."""
    await a.redis.delete(key)
    await a.redis.set(key, "foreign")


# -- start_many


@scene("start_many", "created", again="conflict pending")
async def a_run_is_started(a: Consumer, b: Consumer) -> Ask:
    return a.start


@scene("start_many", "created", again="conflict pending")
async def a_run_is_started_for_later(a: Consumer, b: Consumer) -> Ask:
    return lambda: a.world.create_run(RUN, "wf", b"\x90", begins=Begins(60_000))


@scene("start_many", "created", again="conflict pending")
async def a_run_is_started_for_a_moment_to_come(a: Consumer, b: Consumer) -> Ask:
    return lambda: a.world.create_run(RUN, "wf", b"\x90", begins=Begins(at_ms=a.clock.now + 1))


@scene("start_many", "conflict pending")
async def a_run_that_exists_is_started(a: Consumer, b: Consumer) -> Ask:
    await b.start()
    return a.start


@scene("start_many", "conflict completed")
async def a_run_that_has_ended_is_started(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.finish()
    return a.start


@scene("start_many", "broken")
async def a_run_is_started_where_another_program_has_a_key(a: Consumer, b: Consumer) -> Ask:
    await overwrite(a, a.partition.log(RUN))
    return a.start


@scene("start_many", "broken")
async def a_run_is_started_whose_row_alone_was_deleted(a: Consumer, b: Consumer) -> Ask:
    await b.start()
    await a.redis.delete(a.key())
    return a.start


@scene("start_many", "created", again="conflict pending")
async def a_run_is_started_under_the_id_of_one_that_has_left_an_output_stream(a: Consumer, b: Consumer) -> Ask:
    token = (await a.claim((await a.dispatch(step("s1")))["s1"])).item.token
    await a.world.outputs.write(RUN, "default", [b"x"], step_id="s1", attempt=1, token=token, index=0, close=False)
    await a.redis.delete(a.key(), a.partition.log(RUN))
    return a.start


# -- load_run


@scene("load_run", "loaded")
async def a_pending_run_is_loaded(a: Consumer, b: Consumer) -> Ask:
    await a.start()
    (delivery,) = await a.read("workflows")
    return lambda: a.load(delivery)


@scene("load_run", "loaded")
async def a_run_is_loaded_from_where_its_live_instance_stands(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    return lambda: a.load(turn.delivery, start=1)


@scene("load_run", "loaded")
async def a_run_is_loaded_under_the_owner_of_an_inline_step(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, inline("s1", "t1"))
    return lambda: a.load(turn.delivery)


@scene("load_run", "loaded")
async def a_run_that_nobody_continues_is_loaded(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.redis.hset(a.key(), "wake", "")
    return lambda: a.load(turn.delivery)


@scene("load_run", "settled")
async def a_run_is_loaded_under_a_message_that_nothing_waits_for(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    again = await a.duplicate(turn.delivery)
    await a.commit(turn, step("s1"))
    return lambda: a.load(again)


@scene("load_run", "settled")
async def a_run_that_nobody_continues_is_loaded_under_a_lost_delivery(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.redis.hset(a.key(), "wake", "")
    await b.take(turn.delivery)
    return lambda: a.load(turn.delivery)


@scene("load_run", "gone failed")
async def a_run_that_has_ended_is_loaded(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.finish(how="failed")
    return lambda: a.load(turn.delivery)


@scene("load_run", "full", again="gone failed")
async def a_run_with_a_full_log_is_loaded(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.redis.hset(a.key(), "wake", "")
    a.limit_log(2)
    return lambda: a.load(turn.delivery)


@scene("load_run", "not_found")
async def a_run_that_does_not_exist_is_loaded(a: Consumer, b: Consumer) -> Ask:
    delivery = await a.publish("s1")
    return lambda: a.load(delivery)


@scene("load_run", "broken")
async def a_run_is_loaded_whose_log_another_program_has_overwritten(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await overwrite(a, a.partition.log(RUN))
    return lambda: a.load(turn.delivery)


# -- cancel_run


@scene("cancel_run", "requested pending")
async def a_pending_run_is_asked_to_stop(a: Consumer, b: Consumer) -> Ask:
    await a.start()
    return lambda: a.world.cancel(RUN, reason="enough")


@scene("cancel_run", "cancelled cancelled", again="conflict cancelled")
async def a_run_that_begins_later_is_asked_to_stop(a: Consumer, b: Consumer) -> Ask:
    await a.world.create_run(RUN, "wf", b"\x90", begins=Begins(60_000))
    return lambda: a.world.cancel(RUN, reason="enough")


@scene("cancel_run", "requested running")
async def a_run_that_waits_is_asked_to_stop(a: Consumer, b: Consumer) -> Ask:
    await a.dispatch(step("s1"))
    return lambda: a.world.cancel(RUN)


@scene("cancel_run", "requested running")
async def a_run_is_asked_to_stop_a_second_time(a: Consumer, b: Consumer) -> Ask:
    await a.dispatch(step("s1"))
    await a.world.cancel(RUN)
    return lambda: a.world.cancel(RUN, reason="again")


@scene("cancel_run", "cancelled cancelled", again="cancelled")
async def a_run_is_terminated(a: Consumer, b: Consumer) -> Ask:
    await a.dispatch(step("s1"))
    return lambda: a.world.cancel(RUN, terminate=True)


@scene("cancel_run", "cancelled")
async def a_cancelled_run_is_terminated(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.finish(how="cancelled")
    return lambda: a.world.cancel(RUN, terminate=True)


@scene("cancel_run", "conflict completed")
async def a_run_that_has_ended_is_cancelled(a: Consumer, b: Consumer) -> Ask:
    await a.commit(await a.begin(), end())
    return lambda: a.world.cancel(RUN)


@scene("cancel_run", "not_found")
async def a_run_that_does_not_exist_is_cancelled(a: Consumer, b: Consumer) -> Ask:
    return lambda: a.world.cancel(RUN)


@scene("cancel_run", "broken")
async def a_run_is_cancelled_whose_row_another_program_has_overwritten(a: Consumer, b: Consumer) -> Ask:
    await a.start()
    await overwrite(a, a.key())
    return lambda: a.world.cancel(RUN)
