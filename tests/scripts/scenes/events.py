"""Scenes of create_event: single events that no pass of ours writes."""

from __future__ import annotations

from redisworld.errors import ErrorInfo
from tests.scripts.driver import RUN, Consumer, step_message
from tests.scripts.scenes.hooks import LIMIT, RETENTION, TOKEN, open_hook
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, Call, scene
from tests.scripts.test_fences import put_wait


@scene("create_event", "started")
async def a_foreign_runtime_starts_a_run(a: Consumer, b: Consumer) -> Ask:
    await a.start()
    return lambda: a.world.events.run_started(RUN)


@scene("create_event", "started")
async def a_foreign_runtime_starts_a_run_that_runs(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: a.world.events.run_started(RUN)


@scene("create_event", "created", again="conflict")
async def a_foreign_runtime_creates_a_step(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: a.world.events.step_created(RUN, step_message("s1"), queue="gpu")


@scene("create_event", "created", again="conflict")
async def a_foreign_runtime_creates_a_wait(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: a.world.events.wait_created(RUN, "w1", a.clock.now + 100)


@scene("create_event", "created", again="conflict")
async def a_foreign_runtime_sets_attributes(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: a.world.events.attr_set(RUN, {"city": "Berlin", "old": None}, id="a1")


@scene("create_event", "created", again="conflict")
async def a_foreign_runtime_records_a_patch(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: a.world.events.patched(RUN, "fraud-check")


@scene("create_event", "created", again="conflict")
async def a_foreign_runtime_creates_a_hook(a: Consumer, b: Consumer) -> Ask | Call:
    await a.begin()
    await a.world.hooks.claim(RUN, "h1", TOKEN)
    return event(a, "hook", "h1", TOKEN, b"\xc0", "", 0)


@scene("create_event", "hook_conflict", again="conflict")
async def a_foreign_runtime_creates_a_hook_whose_token_another_holds(a: Consumer, b: Consumer) -> Ask | Call:
    await a.begin()
    await a.world.hooks.claim(RUN, "h1", TOKEN)
    return event(a, "hook", "h1", TOKEN, b"\xc0", "r0", 0)


@scene("create_event", "completed", again="conflict")
async def a_foreign_runtime_completes_a_wait(a: Consumer, b: Consumer) -> Ask:
    await put_wait(a, "waiting")
    return lambda: a.world.events.wait_completed(RUN, "w1")


@scene("create_event", "cancelled", again="conflict")
async def a_foreign_runtime_cancels_a_wait(a: Consumer, b: Consumer) -> Ask:
    await put_wait(a, "waiting")
    return lambda: a.world.events.wait_cancelled(RUN, "w1")


@scene("create_event", "disposed", again="conflict")
async def a_foreign_runtime_disposes_of_a_hook(a: Consumer, b: Consumer) -> Ask:
    await open_hook(a)
    return lambda: a.world.events.hook_disposed(RUN, "h1")


@scene("create_event", "ended", again="conflict completed")
async def a_foreign_runtime_completes_a_run(a: Consumer, b: Consumer) -> Ask:
    await open_hook(a)
    return lambda: a.world.events.run_completed(RUN, b"\x90")


@scene("create_event", "ended", again="conflict failed")
async def a_foreign_runtime_fails_a_run(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: a.world.events.run_failed(RUN, ErrorInfo(type="Oops", message="no"))


@scene("create_event", "conflict")
async def a_foreign_runtime_completes_a_wait_that_was_cancelled(a: Consumer, b: Consumer) -> Ask:
    await put_wait(a, "cancelled")
    return lambda: a.world.events.wait_completed(RUN, "w1")


@scene("create_event", "gone completed")
async def a_foreign_runtime_creates_a_step_of_a_run_that_has_ended(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.finish()
    return lambda: a.world.events.step_created(RUN, step_message("s1"))


@scene("create_event", "invalid")
async def a_foreign_runtime_sets_too_many_attributes(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: a.world.events.attr_set(RUN, {f"key{n}": "value" for n in range(65)}, id="a1")


@scene("create_event", "diverged")
async def a_foreign_runtime_creates_a_step_under_another_name(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.world.events.step_created(RUN, step_message("s1"))
    return lambda: a.world.events.step_created(RUN, step_message("s1", name="other"))


@scene("create_event", "full", again="gone failed")
async def a_foreign_runtime_creates_a_wait_of_a_run_with_a_full_log(a: Consumer, b: Consumer) -> Ask:
    await open_hook(a)
    a.limit_log(2)
    return lambda: a.world.events.wait_created(RUN, "w1", a.clock.now + 100)


@scene("create_event", "not_found")
async def a_foreign_runtime_creates_a_wait_of_a_run_that_does_not_exist(a: Consumer, b: Consumer) -> Ask:
    return lambda: a.world.events.wait_created(RUN, "w1", a.clock.now + 100)


@scene("create_event", "not_found")
async def a_foreign_runtime_cancels_a_wait_that_does_not_exist(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: a.world.events.wait_cancelled(RUN, "w1")


@scene("create_event", "broken")
async def a_foreign_runtime_creates_a_step_in_a_stream_that_another_program_has_overwritten(
    a: Consumer, b: Consumer
) -> Ask:
    await a.begin()
    await overwrite(a, a.partition.steps("gpu"))
    return lambda: a.world.events.step_created(RUN, step_message("s1"), queue="gpu")


def event(a: Consumer, *item: str | bytes) -> Call:
    return Call("create_event", a.partition.stats, (a.clock.now, RUN, LIMIT, RETENTION, 1, *item))
