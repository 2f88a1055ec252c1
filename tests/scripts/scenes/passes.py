"""Scenes of commit_pass."""

from __future__ import annotations

import json

import msgspec

from redisworld.world import Delivery
from tests.scripts.driver import RUN, Consumer, Item, Turn, did, end, inline, step
from tests.scripts.scenes.hooks import hook
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, scene


@scene("commit_pass", "committed 0")
async def a_pass_asks_for_a_group_of_steps_and_a_timer(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    steps: list[Item] = [step("s1", "g1"), step("s2", "g1", target="steps:gpu"), step("s3", "-"), ["seal", "g1", "all"]]
    return lambda: a.commit(turn, *steps, ["wait", "w1", a.clock.now + 9])


@scene("commit_pass", "committed 0")
async def a_pass_records_patches(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.world.events.patched(RUN, "older")
    return lambda: a.commit(turn, ["patch", "fraud-check"], ["patch", "older"], ["patch", "other"], step("s1"))


async def _unread(a: Consumer) -> Delivery:
    """The start message of a run that nobody has read."""
    await a.start()
    (delivery,) = await a.read("workflows")
    return delivery


def _first(a: Consumer, delivery: Delivery, item: Item, *, consumed: int, began_ms: int, last: bool = True) -> Ask:
    """The commit of a first pass that read nothing; ``began_ms`` is the body's time after that of the call."""
    return lambda: a.world.deliveries.commit(
        delivery,
        RUN,
        "start",
        item,
        last=last,
        replayed_to=0,
        consumed=consumed,
        pass_token="p1",
        started_at=a.clock.now + began_ms,
    )


@scene("commit_pass", "committed 0")
async def a_first_pass_that_read_nothing_is_committed(a: Consumer, b: Consumer) -> Ask:
    delivery = await _unread(a)
    return _first(a, delivery, step("s1"), consumed=2, began_ms=3)


@scene("commit_pass", "committed 0")
async def a_pass_drops_a_timer_and_moves_steps_to_a_group(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, step("s1"), step("s2"), ["wait", "w1", a.clock.now + 9])
    await a.world.cancel(RUN)
    later = await a.load((await a.read("workflows"))[0])
    return lambda: a.commit(
        later, ["unwait", "w1"], ["assign", "s1", "g1"], ["assign", "s2", "g1"], ["seal", "g1", "fail_fast"]
    )


@scene("commit_pass", "committed 0")
async def a_pass_asks_for_an_inline_step_under_a_lost_delivery(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await b.take(turn.delivery)
    return lambda: a.commit(turn, inline("s1", "t1"))


@scene("commit_pass", "committed 0")
async def a_pass_under_a_lost_delivery_has_more_to_see(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.world.cancel(RUN)
    await a.redis.hset(a.key(), "wake", "")
    await b.take(turn.delivery)
    return lambda: a.commit(turn, step("s1"))


@scene("commit_pass", "committed 1")
async def a_pass_asks_for_an_inline_step(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    return lambda: a.commit(turn, step("s1"), inline("s2", "t2"))


async def _after_inline(a: Consumer) -> Turn:
    """A turn whose pass has been committed, and started s1 inline as t1: four events."""
    turn = await a.begin()
    await a.commit(turn, inline("s1", "t1"))
    return msgspec.structs.replace(turn, loaded=msgspec.structs.replace(turn.loaded, replayed_to=2))


@scene("commit_pass", "committed 1")
async def an_inline_step_has_ended_and_the_next_one_starts(a: Consumer, b: Consumer) -> Ask:
    turn = await _after_inline(a)
    return lambda: a.commit(turn, did("s1", "t1", length=4, at=a.clock.now + 3), inline("s2", "t2"), consumed=5)


@scene("commit_pass", "committed 1")
async def a_first_pass_that_read_nothing_starts_an_inline_step(a: Consumer, b: Consumer) -> Ask:
    delivery = await _unread(a)
    return _first(a, delivery, inline("s1", "t1"), consumed=1, began_ms=3)


@scene("commit_pass", "lost 1")
async def a_first_pass_that_read_nothing_comes_after_a_cancel_request(a: Consumer, b: Consumer) -> Ask:
    delivery = await _unread(a)
    await a.world.cancel(RUN)
    return _first(a, delivery, inline("s1", "t1"), consumed=1, began_ms=-3)


@scene("commit_pass", "ended 0")
async def an_inline_step_has_ended_and_so_does_its_run(a: Consumer, b: Consumer) -> Ask:
    turn = await _after_inline(a)
    return lambda: a.commit(turn, did("s1", "t1", length=4, at=a.clock.now + 3), end(), consumed=5)


@scene("commit_pass", "ended 0")
async def an_inline_step_has_ended_and_so_does_its_run_which_has_hooks(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, inline("s1", "t1"))
    await a.world.events.hook_created(RUN, "h1", "chat:42")
    seen = msgspec.structs.replace(turn, loaded=msgspec.structs.replace(turn.loaded, replayed_to=2))
    return lambda: a.commit(seen, did("s1", "t1", length=5), end(), consumed=6)


@scene("commit_pass", "ended 0")
async def an_inline_step_has_failed_and_so_does_its_run(a: Consumer, b: Consumer) -> Ask:
    turn = await _after_inline(a)
    return lambda: a.commit(turn, did("s1", "t1", length=4, outcome="failed"), end("run_failed", "E"), consumed=5)


@scene("commit_pass", "chunk 0")
async def an_inline_step_has_ended_and_leads_to_many(a: Consumer, b: Consumer) -> Ask:
    turn = await _after_inline(a)
    return lambda: a.commit(turn, did("s1", "t1", length=4), step("s2", "g1"), consumed=5, last=False)


@scene("commit_pass", "lost 0")
async def an_inline_step_has_ended_after_something_that_the_body_has_not_seen(a: Consumer, b: Consumer) -> Ask:
    turn = await _after_inline(a)
    await a.world.cancel(RUN)
    return lambda: a.commit(turn, did("s1", "t1", length=4), inline("s2", "t2"), consumed=5)


@scene("commit_pass", "again 0")
async def a_pass_is_committed_after_something_more_has_happened(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.world.cancel(RUN)
    return lambda: a.commit(turn, step("s1"), inline("s2", "t2"))


@scene("commit_pass", "ended 0")
async def a_pass_ends_its_run(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    return lambda: a.commit(turn, end())


@scene("commit_pass", "ended 0")
async def a_pass_fails_its_run(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    return lambda: a.commit(turn, end("run_failed", "USER_ERROR"))


@scene("commit_pass", "ended 0")
async def a_pass_lets_a_cancel_request_through(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.world.cancel(RUN, reason="enough")
    return lambda: a.commit(turn, end("run_cancelled"), consumed=3)


@scene("commit_pass", "again 0")
async def a_pass_creates_a_hook_and_disposes_of_another(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.world.events.hook_created(RUN, "h1", "chat:42")
    await a.world.hooks.claim(RUN, "h2", "chat:43")
    await a.world.hooks.claim(RUN, "h3", "chat:44")
    attributes: Item = ["attr", "a1", '{"city": "Berlin"}', b"\xc0"]
    return lambda: a.commit(turn, hook("h2", "chat:43"), hook("h3", "chat:44", "r0"), ["dispose", "h1"], attributes)


@scene("commit_pass", "ended 0")
async def a_pass_ends_its_run_which_has_hooks(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.world.events.hook_created(RUN, "h1", "chat:42")
    await a.world.hooks.resume("chat:42", b"\x01")
    return lambda: a.commit(turn, end(), consumed=4)


@scene("commit_pass", "invalid")
async def a_pass_sets_too_many_attributes(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    changes = json.dumps({f"key{n}": "value" for n in range(65)})
    return lambda: a.commit(turn, step("s1"), ["attr", "a1", changes, b"\xc0"])


@scene("commit_pass", "full", again="gone failed")
async def a_pass_is_committed_to_a_full_log(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    a.limit_log(2)
    return lambda: a.commit(turn, step("s1"))


@scene("commit_pass", "chunk 0")
async def the_first_chunk_of_a_pass_is_committed(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    return lambda: a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False)


@scene("commit_pass", "chunk 0")
async def a_first_pass_that_read_nothing_begins_with_a_chunk(a: Consumer, b: Consumer) -> Ask:
    delivery = await _unread(a)
    return _first(a, delivery, [*step("s1", "g1"), *step("s2", "g1")], consumed=2, began_ms=3, last=False)


@scene("commit_pass", "chunk 0")
async def a_chunk_of_many_steps_follows_the_first_one(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False, token="p")
    return lambda: a.commit(turn, *(step(f"s{n}", "g1") for n in range(3, 43)), chunk=2, last=False, token="p")


@scene("commit_pass", "lost 1")
async def a_chunk_comes_without_the_one_before_it(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    return lambda: a.commit(turn, step("s3", "g1"), step("s4", "g1"), chunk=2, last=False)


@scene("commit_pass", "lost 1")
async def the_last_chunk_comes_without_the_one_before_it(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, step("s1", "g1"), last=False, token="p")
    return lambda: a.commit(turn, step("s3", "g1"), ["seal", "g1", "all"], chunk=3, token="p")


@scene("commit_pass", "lost 1")
async def a_chunk_comes_after_another_pass_has_begun(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, step("s1", "g1"), last=False, token="p")
    await a.commit(turn, step("s1", "g1"), last=False, token="other")
    return lambda: a.commit(turn, step("s2", "g1"), step("s3", "g1"), chunk=2, last=False, token="p")


@scene("commit_pass", "chunk 0")
async def a_chunk_comes_again(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, step("s1", "g1"), last=False)
    return lambda: a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False)


def _fan_out(*ids: str, mode: str = "all") -> list[Item]:
    """The steps of these ids in one join group, which is sealed; the one in front starts right away."""
    first, *others = ids
    return [*(step(id, "g1") for id in others), inline(first, f"t-{first}", "g1"), ["seal", "g1", mode]]


@scene("commit_pass", "committed 1")
async def a_first_pass_that_read_nothing_asks_for_a_whole_fan_out(a: Consumer, b: Consumer) -> Ask:
    delivery = await _unread(a)
    items = [part for item in _fan_out("s1", "s2", "s3") for part in item]
    return _first(a, delivery, items, consumed=2, began_ms=3)


@scene("commit_pass", "committed 0")
async def a_pass_asks_for_a_whole_fan_out_of_queued_steps(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    return lambda: a.commit(turn, step("s1", "g1"), step("s2", "g1", name="pack"), ["seal", "g1", "fail_fast"])


@scene("commit_pass", "committed 1")
async def the_last_chunk_of_a_fan_out_comes(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False, token="p")
    await a.complete(await a.claim((await a.steps_delivered())["s1"]))
    return lambda: a.commit(turn, *_fan_out("s3", "s4", mode="fail_fast"), chunk=2, token="p")


@scene("commit_pass", "again 0")
async def the_last_chunk_of_a_fan_out_comes_after_a_failure(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False, token="p")
    await a.complete(await a.claim((await a.steps_delivered())["s1"]), "failed")
    return lambda: a.commit(turn, *_fan_out("s3", "s4", mode="fail_fast"), chunk=2, token="p")


@scene("commit_pass", "again 0")
async def a_fan_out_comes_after_something_that_its_body_has_not_seen(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.world.cancel(RUN)
    return lambda: a.commit(turn, *_fan_out("s1", "s2"))


@scene("commit_pass", "committed 0")
async def a_fan_out_comes_under_a_lost_delivery(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await b.take(turn.delivery)
    return lambda: a.commit(turn, *_fan_out("s1", "s2"))


@scene("commit_pass", "committed 1")
async def a_fan_out_comes_of_which_one_step_exists(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, step("s2", "g1"), last=False)
    return lambda: a.commit(turn, *_fan_out("s1", "s2", "s3"))


@scene("commit_pass", "ended 0")
async def a_run_ends_after_its_last_completer(a: Consumer, b: Consumer) -> Ask:
    delivered = await a.dispatch(step("s1", "g1"), step("s2", "g1"))
    for delivery in delivered.values():
        await a.complete(await a.claim(delivery), may_replay=True)
    turn = await a.load(delivered["s2"])
    return lambda: a.commit(turn, end())


@scene("commit_pass", "lost 1")
async def a_run_ends_on_ground_that_redis_has_lost(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    return lambda: a.commit(turn, end(), consumed=9)


@scene("commit_pass", "lost 1")
async def a_first_chunk_comes_after_another_pass_has_begun(a: Consumer, b: Consumer) -> Ask:
    delivery = await _unread(a)
    await a.load(delivery)
    return _first(a, delivery, [*step("s1", "g1"), *step("s2", "g1")], consumed=2, began_ms=3, last=False)


@scene("commit_pass", "gone cancelled")
async def a_chunk_comes_after_the_end(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.finish(how="cancelled")
    return lambda: a.commit(turn, step("s1", "g1"), step("s2", "g1"), last=False)


@scene("commit_pass", "lost 0")
async def a_pass_is_committed_after_another_one(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.later_pass(step("s1"))
    return lambda: a.commit(turn, step("s2"))


@scene("commit_pass", "lost 0")
async def a_pass_is_committed_whose_message_owns_an_inline_step_by_now(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, inline("s1", "t1"))
    return lambda: a.commit(turn, step("s2"))


@scene("commit_pass", "lost 1")
async def a_pass_is_committed_after_another_one_of_its_own_message(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.world.cancel(RUN)
    await a.commit(turn, step("s1"))
    return lambda: a.commit(turn, step("s2"))


@scene("commit_pass", "gone completed")
async def a_pass_is_committed_to_a_run_that_has_ended(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.finish()
    return lambda: a.commit(turn, step("s1"))


@scene("commit_pass", "diverged the log has step_created s1 work, the code asks for step other")
async def a_pass_asks_for_a_step_under_another_name(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await a.commit(turn, step("s1"), last=False)
    return lambda: a.commit(turn, step("s2"), step("s1", name="other"))


@scene("commit_pass", "not_found")
async def a_pass_is_committed_to_a_run_that_does_not_exist(a: Consumer, b: Consumer) -> Ask:
    delivery = await a.publish("s1")
    return lambda: a.world.deliveries.commit(
        delivery, RUN, "s1", step("s2"), replayed_to=0, consumed=2, pass_token="p1"
    )


@scene("commit_pass", "broken")
async def a_pass_is_committed_to_a_stream_that_another_program_has_overwritten(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await overwrite(a, a.partition.steps("gpu"))
    return lambda: a.commit(turn, step("s1"), step("s2", target="steps:gpu"), inline("s3", "t3"))
