"""Scenes of stage_hook, claim_token, resume_hook and release_token."""

from __future__ import annotations

import hashlib

from tests.scripts.driver import NOW, RUN, Consumer, Item
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, Call, scene

TOKEN = "chat:42"
LIMIT, RETENTION = 1_000_000, 604_800_000


def hook(hook_id: str = "h1", token: str = TOKEN, holder: str = "") -> Item:
    """A commit item: a hook whose token was claimed."""
    return ["hook", hook_id, token, b"\xc0", holder, 0]


async def open_hook(a: Consumer, hook_id: str = "h1", token: str = TOKEN) -> None:
    """An open hook of a running run, created by an event of its own."""
    await a.begin()
    assert (await a.world.events.hook_created(RUN, hook_id, token)).outcome == "created"


# -- stage_hook


@scene("stage_hook", "staged")
async def a_hook_is_about_to_claim_its_token(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: a.world.hooks.claim(RUN, "h1", TOKEN)


@scene("stage_hook", "conflict open")
async def a_hook_that_has_its_token_is_about_to_claim_it(a: Consumer, b: Consumer) -> Ask:
    await open_hook(a)
    return lambda: a.world.hooks.claim(RUN, "h1", TOKEN)


@scene("stage_hook", "gone completed")
async def a_hook_of_a_run_that_has_ended_is_about_to_claim_its_token(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await a.finish()
    return lambda: a.world.hooks.claim(RUN, "h1", TOKEN)


@scene("stage_hook", "not_found")
async def a_hook_of_a_run_that_does_not_exist_is_about_to_claim_its_token(a: Consumer, b: Consumer) -> Ask:
    return lambda: a.world.hooks.claim(RUN, "h1", TOKEN)


@scene("stage_hook", "broken")
async def a_hook_is_staged_where_another_program_has_overwritten_the_hooks(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await overwrite(a, f"{a.key()}:hooks")
    return lambda: a.world.hooks.claim(RUN, "h1", TOKEN)


# -- claim_token


def claim(a: Consumer, *args: str) -> Call:
    return Call("claim_token", a.partition.stats, (TOKEN, *args))


@scene("claim_token", "claimed")
async def a_free_token_is_claimed(a: Consumer, b: Consumer) -> Call:
    return claim(a, RUN, "h1", "", "")


@scene("claim_token", "claimed")
async def the_token_of_a_dead_hook_is_claimed(a: Consumer, b: Consumer) -> Call:
    await open_hook(a)
    return claim(a, "r2", "h1", RUN, "h1")


@scene("claim_token", "claimed")
async def a_token_is_claimed_by_its_holder_whose_pointer_was_about_to_go(a: Consumer, b: Consumer) -> Call:
    await open_hook(a)
    await a.redis.pexpire(a.partition.hook(TOKEN), 60_000)
    return claim(a, RUN, "h1", "", "")


@scene("claim_token", "held r1")
async def the_token_of_another_hook_is_claimed(a: Consumer, b: Consumer) -> Call:
    await open_hook(a)
    return claim(a, "r2", "h1", "r0", "h0")


@scene("claim_token", "broken")
async def a_token_is_claimed_that_another_program_has_overwritten(a: Consumer, b: Consumer) -> Call:
    await overwrite(a, a.partition.hook(TOKEN))
    return claim(a, RUN, "h1", "", "")


# -- release_token


def release(a: Consumer, run: str) -> Call:
    return Call("release_token", a.partition.stats, (TOKEN, run, "h1", 60_000))


@scene("release_token", "released")
async def the_token_of_a_hook_is_released(a: Consumer, b: Consumer) -> Call:
    await open_hook(a)
    return release(a, RUN)


@scene("release_token", "kept")
async def the_token_of_another_hook_is_released(a: Consumer, b: Consumer) -> Call:
    await open_hook(a)
    return release(a, "r0")


@scene("release_token", "broken")
async def a_token_is_released_that_another_program_has_overwritten(a: Consumer, b: Consumer) -> Call:
    await overwrite(a, a.partition.hook(TOKEN))
    return release(a, RUN)


# -- resume_hook


def resume(a: Consumer, hook_id: str = "h1", payload: bytes = b"\x01", limit: int = LIMIT) -> Call:
    digest = hashlib.sha1(payload, usedforsecurity=False).hexdigest()
    return Call("resume_hook", a.partition.stats, (NOW, RUN, hook_id, TOKEN, "u1", digest, payload, limit, RETENTION))


@scene("resume_hook", "received")
async def a_hook_receives_a_payload(a: Consumer, b: Consumer) -> Ask:
    await open_hook(a)
    return lambda: a.world.hooks.resume(TOKEN, b"\x01", resume_id="u1")


@scene("resume_hook", "received")
async def a_hook_receives_a_payload_while_nobody_continues_its_run(a: Consumer, b: Consumer) -> Ask:
    await open_hook(a)
    await a.redis.hset(a.key(), "wake", "")
    return lambda: a.world.hooks.resume(TOKEN, b"\x01", resume_id="u1")


@scene("resume_hook", "received")
async def a_payload_comes_again_after_the_end_of_the_run(a: Consumer, b: Consumer) -> Call:
    await open_hook(a)
    await a.world.hooks.resume(TOKEN, b"\x01", resume_id="u1")
    await a.finish()
    return resume(a, "")


@scene("resume_hook", "conflict")
async def another_payload_comes_under_the_same_resume_id(a: Consumer, b: Consumer) -> Ask:
    await open_hook(a)
    await a.world.hooks.resume(TOKEN, b"\x01", resume_id="u1")
    return lambda: a.world.hooks.resume(TOKEN, b"\x02", resume_id="u1")


@scene("resume_hook", "gone completed")
async def a_payload_comes_for_a_run_that_has_ended(a: Consumer, b: Consumer) -> Ask:
    await open_hook(a)
    await a.finish()
    return lambda: a.world.hooks.resume(TOKEN, b"\x01", resume_id="u1")


@scene("resume_hook", "full", again="gone failed")
async def a_payload_comes_for_a_run_with_a_full_log(a: Consumer, b: Consumer) -> Call:
    await open_hook(a)
    return resume(a, limit=2)


@scene("resume_hook", "not_found")
async def a_payload_comes_for_a_hook_that_does_not_exist(a: Consumer, b: Consumer) -> Call:
    await a.begin()
    return resume(a)


@scene("resume_hook", "not_found")
async def a_payload_comes_for_a_run_that_does_not_exist(a: Consumer, b: Consumer) -> Call:
    return resume(a)


@scene("resume_hook", "broken")
async def a_payload_comes_where_another_program_has_overwritten_the_resumes(a: Consumer, b: Consumer) -> Call:
    await open_hook(a)
    await overwrite(a, f"{a.key()}:resumes")
    return resume(a)
