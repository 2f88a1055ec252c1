"""Scenes of repin_run and repin_delayed, and of what a run sends that has been moved to another deployment."""

from __future__ import annotations

from redisworld.world import Delivery
from tests.scripts.driver import RUN, Consumer, inline, message, step
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, Call, scene
from tests.scripts.test_fences import put_step

OLD, NEW = "v1", "v2"


async def belongs(a: Consumer, deployment: str = OLD) -> None:
    """The run is bound to the streams of a deployment."""
    await a.redis.hset(a.key(), mapping={"deployment": deployment, "pin": f"@{deployment}"})


def repin(a: Consumer, *, old: str = OLD, to: str = NEW) -> Call:
    return Call("repin_run", a.partition.stats, (RUN, old, to))


@scene("repin_run", "moved", again="fits")
async def a_run_is_given_to_another_deployment(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    await belongs(a)
    return repin(a)


@scene("repin_run", "moved", again="fits")
async def a_run_is_given_to_no_deployment(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    await belongs(a)
    return repin(a, to="")


@scene("repin_run", "moved", again="fits")
async def a_run_of_the_shared_streams_is_given_to_another_deployment(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    await a.redis.hset(a.key(), "deployment", OLD)
    return repin(a)


@scene("repin_run", "fits")
async def a_run_is_given_to_the_deployment_it_has(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    await belongs(a, NEW)
    return repin(a)


@scene("repin_run", "changed v3")
async def a_run_is_given_away_that_belongs_to_a_third_deployment(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    await belongs(a, "v3")
    return repin(a)


@scene("repin_run", "gone cancelled")
async def a_run_is_given_away_that_has_ended(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    await belongs(a)
    await a.finish(how="cancelled")
    return repin(a)


@scene("repin_run", "not_found")
async def a_run_is_given_away_that_does_not_exist(a: Consumer, b: Consumer) -> Call:
    return repin(a)


@scene("repin_run", "broken")
async def a_run_is_given_away_whose_log_another_program_has_overwritten(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    await overwrite(a, a.partition.log(RUN))
    return repin(a)


async def delayed(a: Consumer, *, stream: str = f"steps@{OLD}") -> None:
    """The message of a retry of the run's step, which is to go to this stream."""
    await put_step(a, "running")
    await belongs(a)
    await a.move(await a.publish("s1"), target=stream, delay_ms=1000)


def repin_delayed(a: Consumer, *, old: bytes | None = None) -> Call:
    now_its = message("s1") if old is None else old
    return Call("repin_delayed", a.partition.stats, ("step", RUN, "s1", now_its, b"another"))


@scene("repin_delayed", f"moved steps@{NEW}", again="fits")
async def a_delayed_message_of_a_run_that_was_moved_goes_with_it(a: Consumer, b: Consumer) -> Call:
    await delayed(a)
    await belongs(a, NEW)
    return repin_delayed(a)


@scene("repin_delayed", "fits")
async def a_delayed_message_goes_where_its_run_is(a: Consumer, b: Consumer) -> Call:
    await delayed(a)
    return repin_delayed(a)


@scene("repin_delayed", "fits")
async def a_delayed_message_goes_to_a_stream_of_all_deployments(a: Consumer, b: Consumer) -> Call:
    await delayed(a, stream="steps")
    await belongs(a, NEW)
    return repin_delayed(a)


@scene("repin_delayed", "changed")
async def a_delayed_message_has_changed_since_it_was_read(a: Consumer, b: Consumer) -> Call:
    await delayed(a)
    await belongs(a, NEW)
    return repin_delayed(a, old=b"as it was")


@scene("repin_delayed", "changed")
async def a_delayed_message_has_been_promoted_since_it_was_read(a: Consumer, b: Consumer) -> Call:
    await delayed(a)
    a.clock.advance(1000)
    await a.world.upkeep.promote(a.partition)
    return repin_delayed(a)


@scene("repin_delayed", "broken")
async def a_delayed_message_goes_with_its_run_where_another_program_has_overwritten_the_counters(
    a: Consumer, b: Consumer
) -> Call:
    await delayed(a)
    await overwrite(a, a.partition.stats)
    return repin_delayed(a)


# -- under way when the run was moved


@scene("commit_pass", "committed 0")
async def a_pass_of_the_old_deployment_dispatches_steps(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await belongs(a, NEW)
    token = a.world.next_token()
    return lambda: a.commit(turn, step("s1", target=f"steps@{OLD}"), step("s2", target=f"steps@{OLD}"), token=token)


@scene("commit_pass", "committed 0")
async def a_pass_of_the_old_deployment_has_lost_the_message_that_was_to_own_a_step(a: Consumer, b: Consumer) -> Ask:
    turn = await a.begin()
    await belongs(a, NEW)
    await b.take(turn.delivery)
    item = inline("s1", "t1")
    item[4], token = f"steps@{OLD}", a.world.next_token()
    return lambda: a.commit(turn, item, token=token)


@scene("complete_many", "retrying 0")
async def a_body_of_the_old_deployment_is_to_be_tried_again(a: Consumer, b: Consumer) -> Ask:
    attempt = await put_step(a, "running")
    await belongs(a, NEW)
    return lambda: a.complete(attempt, "retrying", target=f"steps@{OLD}")


@scene("move_message", "moved", again="stale")
async def a_worker_of_the_old_deployment_hands_a_message_back(a: Consumer, b: Consumer) -> Ask:
    delivery = await _queued_at(a, f"steps@{OLD}")
    await belongs(a, NEW)
    return lambda: a.move(delivery)


@scene("move_message", "here")
async def a_worker_re_routes_a_message_of_a_run_that_was_moved_to_it(a: Consumer, b: Consumer) -> Ask:
    delivery = await _queued_at(a, f"steps@{NEW}")
    await belongs(a, NEW)
    return lambda: a.move(delivery, target=f"steps@{OLD}", delay_ms=1_000)


async def _queued_at(a: Consumer, stream: str) -> Delivery:
    await put_step(a, "pending")
    return await a.publish("s1", stream=stream)
