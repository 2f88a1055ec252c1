"""Scenes of promote_due and reap_expired: what happens when its time has come."""

from __future__ import annotations

from tests.scripts.driver import RUN, Consumer
from tests.scripts.scenes.outputs import write
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, scene
from tests.scripts.test_fences import put_step, put_wait

# A sweep asked again finds what came since: nothing.


@scene("promote_due", "promoted", again="promoted")
async def a_timer_is_due(a: Consumer, b: Consumer) -> Ask:
    await put_wait(a, "waiting")
    a.clock.advance(100)
    return lambda: a.world.upkeep.promote(a.partition)


@scene("promote_due", "promoted", again="promoted")
async def a_timer_of_a_run_that_has_ended_is_due(a: Consumer, b: Consumer) -> Ask:
    await put_wait(a, "waiting")
    await a.finish(how="cancelled")
    a.clock.advance(100)
    return lambda: a.world.upkeep.promote(a.partition)


@scene("promote_due", "promoted 400", again="promoted")
async def one_message_is_due_and_another_is_not(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "delayed")
    later = await a.duplicate(attempt.delivery)
    await a.move(later, delay_ms=1500, new_id="s1b")
    a.clock.advance(1100)
    return lambda: a.world.upkeep.promote(a.partition)


@scene("promote_due", "promoted", again="promoted")
async def a_message_that_cannot_be_read_is_due(a: Consumer, b: Consumer) -> Ask:
    await put_step(a, "delayed")
    await a.redis.hset(a.partition.delayed_body, "step r1 s1", "nonsense")
    a.clock.advance(1100)
    return lambda: a.world.upkeep.promote(a.partition)


@scene("promote_due", "promoted")
async def nothing_is_due(a: Consumer, b: Consumer) -> Ask:
    return lambda: a.world.upkeep.promote(a.partition)


@scene("promote_due", "broken")
async def a_timer_is_due_where_another_program_has_overwritten_the_counters(a: Consumer, b: Consumer) -> Ask:
    await put_wait(a, "waiting")
    a.clock.advance(100)
    await overwrite(a, a.partition.stats)
    return lambda: a.world.upkeep.promote(a.partition)


@scene("reap_expired", "reaped", again="reaped")
async def the_retention_of_one_of_two_runs_is_over(a: Consumer, b: Consumer) -> Ask:
    await a.begin("old")
    await a.finish("old")
    a.clock.advance(a.world.settings.retention_ms)
    await a.begin("young")
    await a.finish("young")
    return lambda: a.world.upkeep.reap(a.partition, 10)


@scene("reap_expired", "reaped", again="reaped")
async def the_retention_of_a_run_with_output_streams_is_over(a: Consumer, b: Consumer) -> Ask:
    running = await put_step(a, "running")
    for name in ("default", "progress"):
        await write(a, running.item.token, name)
    await a.finish()
    a.clock.advance(a.world.settings.retention_ms)
    return lambda: a.world.upkeep.reap(a.partition, 10)


@scene("reap_expired", "reaped", again="reaped")
async def one_of_the_runs_whose_retention_is_over_has_begun_anew(a: Consumer, b: Consumer) -> Ask:
    await a.begin("old")
    await a.finish("old")
    await a.begin()
    await a.finish()
    a.clock.advance(a.world.settings.retention_ms)
    await a.redis.delete(a.key(), a.partition.log(RUN))  # as their TTL does
    await a.begin()
    return lambda: a.world.upkeep.reap(a.partition, 10)


@scene("reap_expired", "broken")
async def runs_are_reaped_where_another_program_has_overwritten_an_index(a: Consumer, b: Consumer) -> Ask:
    await a.begin("old")
    await a.finish("old")
    a.clock.advance(a.world.settings.retention_ms)
    await overwrite(a, a.partition.index("created"))
    return lambda: a.world.upkeep.reap(a.partition, 10)
