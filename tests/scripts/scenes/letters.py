"""Scenes of redrive_letter and drop_letter."""

from __future__ import annotations

from tests.scripts.driver import RUN, Consumer
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, Call, scene
from tests.scripts.test_fences import put_step

NO_LETTER = "1-1"


async def buried(a: Consumer, reason: str = "unknown_name") -> str:
    """The name of the letter that holds the message of a run's step."""
    delivery = (await put_step(a, "pending")).delivery
    await a.world.deliveries.bury(delivery, run_id=RUN, reason=reason, detail="why")
    return await letter_name(a)


async def letter_name(a: Consumer) -> str:
    return [letter.name async for letter in a.world.dead.letters()][-1]


@scene("redrive_letter", "redriven")
async def a_letter_is_redriven(a: Consumer, b: Consumer) -> Ask:
    name = await buried(a)
    return lambda: a.world.dead.redrive(name)


@scene("redrive_letter", "redriven")
async def one_of_two_letters_of_a_run_is_redriven(a: Consumer, b: Consumer) -> Ask:
    name = await buried(a)
    another = await a.publish("s2")
    await a.world.deliveries.bury(another, run_id=RUN, reason="broken", detail="why")
    return lambda: a.world.dead.redrive(name)


@scene("redrive_letter", "no_letter")
async def a_letter_is_redriven_that_is_not_there(a: Consumer, b: Consumer) -> Call:
    await buried(a)
    args = (a.clock.now, NO_LETTER, RUN, "step", "s1", "work", 1, "", a.clock.now, "steps", b"\x80")
    return Call("redrive_letter", a.partition.stats, args)


@scene("redrive_letter", "gone cancelled")
async def a_letter_of_a_run_that_has_ended_is_redriven(a: Consumer, b: Consumer) -> Ask:
    name = await buried(a)
    await a.world.cancel(RUN, terminate=True)
    return lambda: a.world.dead.redrive(name)


@scene("redrive_letter", "not_found")
async def a_letter_of_a_run_that_does_not_exist_is_redriven(a: Consumer, b: Consumer) -> Ask | Call:
    delivery = await a.publish("s1")
    await a.world.deliveries.bury(delivery, run_id=RUN, reason="not_found", detail="why")
    letter = (await a.redis.xrange(a.partition.dead))[0][0]
    args = (a.clock.now, letter, RUN, "step", "s1", "work", 1, "", a.clock.now, "steps", b"\x80")
    return Call("redrive_letter", a.partition.stats, args)


@scene("redrive_letter", "broken")
async def a_letter_is_redriven_into_a_stream_that_another_program_has_overwritten(a: Consumer, b: Consumer) -> Call:
    await buried(a)
    letter = (await a.redis.xrange(a.partition.dead))[0][0]
    await overwrite(a, a.partition.steps("gpu"))
    args = (a.clock.now, letter, RUN, "step", "s1", "work", 1, "", a.clock.now, "steps:gpu", b"\x80")
    return Call("redrive_letter", a.partition.stats, args)


@scene("drop_letter", "dropped", again="no_letter")
async def a_letter_is_dropped(a: Consumer, b: Consumer) -> Ask:
    name = await buried(a)
    return lambda: a.world.dead.drop(name)


@scene("drop_letter", "dropped", again="no_letter")
async def a_letter_of_nobody_is_dropped(a: Consumer, b: Consumer) -> Ask:
    await a.redis.xadd(a.partition.dead, {"reason": "undecodable"})
    name = await letter_name(a)
    return lambda: a.world.dead.drop(name)


@scene("drop_letter", "no_letter")
async def a_letter_is_dropped_that_is_not_there(a: Consumer, b: Consumer) -> Call:
    await buried(a)
    return Call("drop_letter", a.partition.stats, (NO_LETTER, RUN))


@scene("drop_letter", "broken")
async def a_letter_is_dropped_where_another_program_has_overwritten_the_counters(a: Consumer, b: Consumer) -> Ask:
    name = await buried(a)
    await overwrite(a, a.partition.stats)
    return lambda: a.world.dead.drop(name)
