"""Scenes of look_at_runs, recover_run, redispatch_step, mend_delayed and mend_run."""

from __future__ import annotations

from typing import Any

from redisworld.keys import GROUP
from tests.scripts.driver import RUN, Consumer, inline, message, step
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, Call, scene
from tests.scripts.test_fences import put_step

ABSENT = ("steps", "0-0", "workflows", "0-0")
"""Places of a caller that has looked through empty streams."""


async def delete_entries(a: Consumer, stream: str) -> None:
    """What a person does by hand: acknowledge and delete all that stands in a stream."""
    for entry, _ in await a.redis.xrange(a.partition.tag + stream):
        await a.redis.xack(a.partition.tag + stream, GROUP, entry)
        await a.redis.xdel(a.partition.tag + stream, entry)


async def places(a: Consumer) -> tuple[str, ...]:
    """The places of a caller that has just looked through both streams."""
    found: list[str] = []
    for stream in ("steps", "workflows"):
        last = await a.redis.xrevrange(a.partition.tag + stream, count=1)
        found += [stream, last[0][0].decode() if last else "0-0"]
    return tuple(found)


def look(a: Consumer, *runs: str, ticket: int = 1000, who: str = "") -> Call:
    items = [part for run in runs for part in (run, 0)]
    return Call("look_at_runs", a.partition.stats, (who or a.world.consumer, ticket, 400, *items))


def recover(a: Consumer, wake: str, *seen: str, mode: str = "mend", run: str = RUN) -> Call:
    return Call("recover_run", a.partition.stats, (a.clock.now, run, wake, mode, *(seen or ABSENT)))


async def redispatch(a: Consumer, *seen: str, mode: str = "mend", state: str = "", target: str = "steps") -> Call:
    found = state or ((await a.redis.hget(a.key(), "s:s1")) or b"pending|0|0||||||0|0|0|0").decode()
    args = (a.clock.now, RUN, "s1", found, mode, "work", target, 1, message("s1"), *(seen or ABSENT))
    return Call("redispatch_step", a.partition.stats, args)


# -- look_at_runs


@scene("look_at_runs", "looked")
async def a_page_of_open_runs_is_looked_at(a: Consumer, b: Consumer) -> Call:
    await a.dispatch(step("s1"), step("s2"))
    await a.start("r2")
    return look(a, RUN, "r2", "r3")


@scene("look_at_runs", "looked")
async def a_run_with_a_running_step_is_looked_at(a: Consumer, b: Consumer) -> Call:
    await put_step(a, "running")
    return look(a, RUN)


@scene("look_at_runs", "looked")
async def a_run_is_looked_at_by_one_without_a_ticket(a: Consumer, b: Consumer) -> Call:
    await put_step(a, "running")
    return look(a, RUN, ticket=0)


@scene("look_at_runs", "busy")
async def runs_are_looked_at_while_another_consumer_has_the_ticket(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    await a.redis.set(a.partition.reclaim_ticket("runs"), "another")
    return look(a, RUN)


@scene("look_at_runs", "broken")
async def runs_are_looked_at_where_another_program_has_overwritten_the_delayed_set(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    await overwrite(a, a.partition.delayed)
    return look(a, RUN)


# -- recover_run


@scene("recover_run", "recovered", again="changed")
async def a_run_whose_wake_is_nowhere_is_recovered(a: Consumer, b: Consumer) -> Call:
    await a.start()
    await delete_entries(a, "workflows")
    return recover(a, "start")


@scene("recover_run", "recovered", again="changed")
async def a_run_whose_recovery_wake_is_nowhere_is_recovered_once_more(a: Consumer, b: Consumer) -> Call:
    await a.start()
    await a.redis.hset(a.key(), "wake", "w1r1")
    await delete_entries(a, "workflows")
    return recover(a, "w1r1")


@scene("recover_run", "recovered", again="changed")
async def a_run_with_news_that_names_no_wake_is_recovered(a: Consumer, b: Consumer) -> Call:
    await a.start()
    await a.redis.hdel(a.key(), "wake")
    return recover(a, "")


@scene("recover_run", "stranded")
async def a_run_whose_wake_is_nowhere_is_only_looked_at(a: Consumer, b: Consumer) -> Call:
    await a.start()
    await delete_entries(a, "workflows")
    return recover(a, "start", mode="look")


@scene("recover_run", "lives")
async def a_run_is_recovered_whose_wake_stands_behind_what_was_looked_at(a: Consumer, b: Consumer) -> Call:
    await a.start()
    return recover(a, "start")


@scene("recover_run", "lives")
async def a_run_is_recovered_whose_wake_is_delayed(a: Consumer, b: Consumer) -> Call:
    turn = await a.begin()
    await a.move(turn.delivery, delay_ms=1000)
    return recover(a, "start")


@scene("recover_run", "changed")
async def a_run_is_recovered_that_has_gone_on(a: Consumer, b: Consumer) -> Call:
    await a.dispatch(step("s1"))
    return recover(a, "start")


@scene("recover_run", "parked")
async def a_run_is_recovered_whose_wake_is_a_dead_letter(a: Consumer, b: Consumer) -> Call:
    turn = await a.begin()
    await a.world.deliveries.bury(turn.delivery, run_id=RUN, reason="unknown_name", detail="why")
    return recover(a, "start")


@scene("recover_run", "unsure")
async def a_run_is_recovered_while_much_is_new_in_a_stream(a: Consumer, b: Consumer) -> Call:
    await a.start()
    await delete_entries(a, "workflows")
    for _ in range(201):
        await a.redis.xadd(a.partition.steps(), {"run": "other"})
    return recover(a, "start")


@scene("recover_run", "gone cancelled")
async def a_run_is_recovered_that_has_ended(a: Consumer, b: Consumer) -> Call:
    await a.start()
    await a.world.cancel(RUN, terminate=True)
    return recover(a, "start")


@scene("recover_run", "not_found")
async def a_run_is_recovered_that_does_not_exist(a: Consumer, b: Consumer) -> Call:
    return recover(a, "start")


@scene("recover_run", "broken")
async def a_run_is_recovered_where_another_program_has_overwritten_the_counters(a: Consumer, b: Consumer) -> Call:
    await a.start()
    await delete_entries(a, "workflows")
    await overwrite(a, a.partition.stats)
    return recover(a, "start")


# -- redispatch_step


@scene("redispatch_step", "dispatched", again="lives")
async def a_step_whose_message_is_nowhere_is_dispatched_again(a: Consumer, b: Consumer) -> Call:
    await put_step(a, "pending")
    await delete_entries(a, "steps")
    return await redispatch(a)


@scene("redispatch_step", "dispatched", again="changed")
async def an_inline_step_whose_owner_is_nowhere_goes_to_the_queue(a: Consumer, b: Consumer) -> Call:
    await a.commit(await a.begin(), inline("s1", "t1"))
    await delete_entries(a, "workflows")
    return await redispatch(a)


@scene("redispatch_step", "stranded")
async def a_step_whose_message_is_nowhere_is_only_looked_at(a: Consumer, b: Consumer) -> Call:
    await put_step(a, "pending")
    await delete_entries(a, "steps")
    return await redispatch(a, mode="look")


@scene("redispatch_step", "lives")
async def a_step_is_dispatched_again_whose_message_stands_behind_what_was_looked_at(a: Consumer, b: Consumer) -> Call:
    await put_step(a, "pending")
    return await redispatch(a)


@scene("redispatch_step", "lives")
async def a_step_is_dispatched_again_that_runs(a: Consumer, b: Consumer) -> Call:
    await put_step(a, "running")
    return await redispatch(a, *await places(a))


@scene("redispatch_step", "lives")
async def a_step_is_dispatched_again_that_waits_for_its_retry(a: Consumer, b: Consumer) -> Call:
    attempt = await put_step(a, "running")
    await a.retry(attempt, delay_ms=1000)
    return await redispatch(a)


@scene("redispatch_step", "changed")
async def a_step_is_dispatched_again_that_has_gone_on(a: Consumer, b: Consumer) -> Call:
    await put_step(a, "running")
    return await redispatch(a, state="pending|0|0||||||3|0|0|0")


@scene("redispatch_step", "parked")
async def a_step_is_dispatched_again_whose_message_is_a_dead_letter(a: Consumer, b: Consumer) -> Call:
    delivery = (await put_step(a, "pending")).delivery
    await a.world.deliveries.bury(delivery, run_id=RUN, reason="unknown_name", detail="why")
    return await redispatch(a)


@scene("redispatch_step", "unsure")
async def a_step_is_dispatched_again_while_much_is_new_in_a_stream(a: Consumer, b: Consumer) -> Call:
    await put_step(a, "pending")
    await delete_entries(a, "steps")
    for _ in range(201):
        await a.redis.xadd(a.partition.workflows(), {"run": "other"})
    return await redispatch(a)


@scene("redispatch_step", "gone cancelled")
async def a_step_of_a_run_that_has_ended_is_dispatched_again(a: Consumer, b: Consumer) -> Call:
    await put_step(a, "pending")
    await a.world.cancel(RUN, terminate=True)
    return await redispatch(a)


@scene("redispatch_step", "missing")
async def a_step_is_dispatched_again_that_does_not_exist(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    return await redispatch(a)


@scene("redispatch_step", "not_found")
async def a_step_of_a_run_that_does_not_exist_is_dispatched_again(a: Consumer, b: Consumer) -> Call:
    return await redispatch(a)


@scene("redispatch_step", "broken")
async def a_step_is_dispatched_again_into_a_stream_that_another_program_has_overwritten(
    a: Consumer, b: Consumer
) -> Call:
    await put_step(a, "pending")
    await delete_entries(a, "steps")
    await overwrite(a, a.partition.steps("gpu"))
    return await redispatch(a, target="steps:gpu")


# -- mend_delayed


def mend(a: Consumer, kind: str, id: str, mode: str = "mend") -> Ask:
    answers: dict[str, Any] = {"mode": mode}
    return lambda: a.world.recovery.delayed(kind, RUN, id, **answers)


async def delayed_step(a: Consumer) -> None:
    attempt = await put_step(a, "running")
    await a.retry(attempt, delay_ms=1000)


@scene("mend_delayed", "fits")
async def a_delayed_message_is_whole(a: Consumer, b: Consumer) -> Ask:
    await delayed_step(a)
    return mend(a, "step", "s1")


@scene("mend_delayed", "restored", again="fits")
async def a_timer_is_gone_whose_wait_is_open(a: Consumer, b: Consumer) -> Ask:
    await a.commit(await a.begin(), ["wait", "w1", a.clock.now + 500])
    await a.redis.delete(a.partition.delayed)
    return mend(a, "wait", "w1")


@scene("mend_delayed", "restored", again="fits")
async def a_body_has_no_delayed_member(a: Consumer, b: Consumer) -> Ask:
    await delayed_step(a)
    await a.redis.delete(a.partition.delayed)
    return mend(a, "step", "s1")


@scene("mend_delayed", "dropped", again="fits")
async def a_delayed_member_has_no_body(a: Consumer, b: Consumer) -> Ask:
    await delayed_step(a)
    await a.redis.delete(a.partition.delayed_body)
    return mend(a, "step", "s1")


@scene("mend_delayed", "dropped", again="fits")
async def a_body_of_a_run_that_has_ended_has_no_delayed_member(a: Consumer, b: Consumer) -> Ask:
    await delayed_step(a)
    await a.redis.delete(a.partition.delayed)
    await a.world.cancel(RUN, terminate=True)
    return mend(a, "step", "s1")


@scene("mend_delayed", "broken")
async def a_delayed_member_is_mended_where_another_program_has_overwritten_the_counters(
    a: Consumer, b: Consumer
) -> Ask:
    await delayed_step(a)
    await overwrite(a, a.partition.stats)
    return mend(a, "step", "s1")


# -- mend_run


def mend_run(a: Consumer) -> Ask:
    return lambda: a.world.recovery.listing(RUN, mode="mend")


@scene("mend_run", "fits")
async def a_run_is_listed_as_it_should_be(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return mend_run(a)


@scene("mend_run", "absent", again="fits")
async def a_run_is_listed_that_does_not_exist(a: Consumer, b: Consumer) -> Ask:
    await a.start()
    await a.redis.delete(a.key(), a.partition.log(RUN))
    return mend_run(a)


@scene("mend_run", "absent", again="fits")
async def a_finished_run_is_listed_whose_row_alone_has_gone(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.finish()
    await a.redis.delete(a.key())
    return mend_run(a)


@scene("mend_run", "broken")
async def a_run_is_listed_whose_row_alone_was_deleted(a: Consumer, b: Consumer) -> Ask:
    await a.start()
    await a.redis.delete(a.key())
    return mend_run(a)


@scene("mend_run", "unlisted", again="fits")
async def a_run_is_not_listed(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.redis.delete(a.partition.index("created"))
    return mend_run(a)


@scene("mend_run", "unlisted", again="fits")
async def a_finished_run_is_not_listed(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.finish()
    await a.redis.delete(a.partition.index("created"), a.partition.expiring)
    return mend_run(a)


@scene("mend_run", "listed_wrong", again="fits")
async def a_run_is_listed_under_another_status(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.redis.zadd(a.partition.index("status:pending"), {RUN: a.clock.now})
    return mend_run(a)


@scene("mend_run", "expires", again="fits")
async def the_keys_of_an_open_run_expire(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.world.hooks.claim(RUN, "h1", "token")
    await a.redis.hset(f"{a.key()}:resumes", "k", "v")
    for key in (a.key(), a.partition.log(RUN), f"{a.key()}:resumes", a.partition.hooks(RUN)):
        await a.redis.pexpire(key, 10**9)
    return mend_run(a)


@scene("mend_run", "broken")
async def a_run_is_mended_where_another_program_has_overwritten_a_listing(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await overwrite(a, a.partition.index("created"))
    return mend_run(a)
