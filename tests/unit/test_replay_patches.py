"""Does ``patched`` give each run one answer, in every replay, whichever code it ran before?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from redisworld import InvalidInput, patched
from redisworld.replay import hook, sleep
from redisworld.replay.patches import MOST_PATCHES, Patches
from redisworld.workflows import Workflow, Workflows
from tests.unit.replay_driver import Driver, echo

pytestmark = pytest.mark.anyio

wf = Workflows()


@wf.step
async def reserve(x: int) -> str:
    return str(x)


@wf.step
async def check_fraud(x: int) -> str:
    return str(x)


@wf.step
async def charge(x: int) -> str:
    return str(x)


async def before(x: int) -> list[str]:
    done = [await reserve(x)]
    await sleep("1h")
    return [*done, await charge(x)]


async def gated(x: int) -> list[str]:
    done = [await reserve(x)]
    if patched("fraud-check"):
        done.append(await check_fraud(x))
    await sleep("1h")
    return [*done, await charge(x)]


async def late(x: int) -> list[str]:
    done = [await reserve(x)]
    await sleep("1h")
    if patched("fraud-check"):
        done.append(await check_fraud(x))
    return [*done, await charge(x)]


async def ungated(x: int) -> list[str]:
    done = [await reserve(x), await check_fraud(x)]
    await sleep("1h")
    return [*done, await charge(x)]


def drive(body: Callable[..., Any], *args: Any) -> Driver:
    workflow: Workflow[..., Any] = Workflow(body)
    return Driver(workflow, *args, created=True)


NEW = ["reserve:7", "check_fraud:7", "charge:7"]
OLD = ["reserve:7", "charge:7"]


@pytest.mark.parametrize("body", [gated, late])
async def test_a_new_run_goes_with_the_patch_and_cold_is_as_warm_at_every_event(body: Callable[..., Any]) -> None:
    driver = drive(body, 7)

    assert driver.run() == NEW
    assert driver.store.patches == ["fraud-check"]
    driver.check_every_prefix()
    assert (await driver.checked()).fits


async def test_a_run_that_had_passed_the_place_stays_without_the_patch() -> None:
    driver = drive(before, 7)
    driver.finish(driver.named("reserve")[0])
    since = driver.deploy(gated)

    assert (await driver.checked()).fits
    assert driver.run() == OLD
    assert driver.store.patches == []
    driver.check_every_prefix(since)
    assert (await driver.checked()).fits


async def test_a_run_that_has_not_come_to_the_place_goes_with_the_patch() -> None:
    driver = drive(before, 7)
    driver.finish(driver.named("reserve")[0])
    since = driver.deploy(late)

    assert (await driver.checked()).fits
    assert driver.run() == NEW
    driver.check_every_prefix(since)
    assert (await driver.checked()).fits


async def test_what_has_happened_and_no_pass_has_seen_is_a_place_to_come_to() -> None:
    """The step is done when the code is deployed, but nothing was asked for after it."""
    driver = drive(before, 7)
    driver.end(driver.named("reserve")[0])
    since = driver.deploy(gated)

    assert (await driver.checked()).fits
    driver.follow()
    assert driver.run() == NEW
    driver.check_every_prefix(since)


@pytest.mark.parametrize("steps", range(4))
async def test_a_body_in_memory_decides_as_one_replayed_at_each_place_of_a_deployment(steps: int) -> None:
    driver = drive(before, 7)
    for _ in range(steps):
        if candidates := [*driver.store.open, *driver.store.waits]:
            driver.finish(candidates[0])
    ended = driver.instance.outcome is not None
    since = driver.deploy(gated)
    if not ended:
        driver.run()
        driver.check_every_prefix(since)

    assert driver.store.patches == (["fraud-check"] if steps == 0 else [])


async def test_the_same_change_without_the_gate_diverges_and_the_checker_says_where() -> None:
    driver = drive(before, 7)
    driver.finish(driver.named("reserve")[0])
    driver.deploy(ungated)

    verdict = await driver.checked()

    assert (verdict.word, verdict.event) == ("diverges", 4)
    assert "the log has wait_created w2_" in verdict.detail
    assert "the code asked for step 'check_fraud'" in verdict.detail


async def test_the_gate_may_go_when_all_runs_have_the_patch() -> None:
    driver = drive(gated, 7)
    driver.finish(driver.named("reserve")[0])
    driver.deploy(ungated)

    assert (await driver.checked()).fits
    assert driver.run() == NEW


async def test_the_first_call_decides_for_all_later_ones() -> None:
    async def loops(x: int) -> list[bool]:
        seen = []
        for _ in range(3):
            await reserve(x)
            seen.append(patched("fraud-check"))
        return seen

    async def loops_before(x: int) -> list[bool]:
        return [bool(await reserve(x)) for _ in range(3)]

    old, new = drive(loops_before, 7), drive(loops, 7)
    old.finish(old.named("reserve")[0])
    old.deploy(loops)

    assert old.run() == [False, False, False]
    assert new.run() == [True, True, True]
    assert new.store.patches == ["fraud-check"]
    new.check_every_prefix()


async def test_several_patches_each_have_their_own_answer_also_in_parallel_branches() -> None:
    async def branch(x: int) -> list[Any]:
        first = await reserve(x)
        return [first, await check_fraud(x) if patched(f"p{x}") else None, await charge(x)]

    async def both() -> list[Any]:
        return await asyncio.gather(branch(1), branch(2))

    driver = drive(both)
    driver.run(lambda count: count - 1)

    assert driver.store.patches == ["p2", "p1"]
    driver.check_every_prefix()
    assert (await driver.checked()).fits


async def test_a_patch_before_the_end_is_recorded_with_it() -> None:
    async def short() -> bool:
        return patched("x")

    driver = drive(short)

    assert driver.run() is True
    assert driver.store.patches == ["x"]
    assert (await driver.checked()).fits


@pytest.mark.parametrize("name", ["", "two words", "a|b", "a\nb", "x" * 101, "\x00", 3])
async def test_a_name_that_cannot_be_one_is_refused_in_the_body(name: Any) -> None:
    async def body() -> None:
        patched(name)

    error = drive(body).run()
    assert error.type == "redisworld.errors.InvalidInput" or error.type.endswith("InvalidInput")
    assert "is a word of 1 to 100 characters" in error.message


async def test_a_run_has_so_many_patches_and_no_more() -> None:
    async def body() -> None:
        for number in range(MOST_PATCHES + 1):
            patched(f"p{number}")

    assert f"at most {MOST_PATCHES} patches" in drive(body).run().message


async def test_outside_a_body_there_is_nothing_to_decide() -> None:
    with pytest.raises(InvalidInput, match="belongs in a workflow body"):
        patched("x")


def test_a_patch_that_is_recorded_wins_over_the_place() -> None:
    patches = Patches()
    patches.learn(10, ["a"])

    assert [patches.decide("a", 5), patches.decide("b", 10), patches.decide("c", 11)] == [True, False, True]
    assert list(patches.unrecorded) == ["c"]


# -- the checker


async def test_a_finished_run_of_the_same_code_fits() -> None:
    driver = drive(before, 7)
    driver.run()

    verdict = await driver.checked()
    assert (verdict.word, verdict.events, verdict.early) == ("fits", len(driver.store.log) + 1, ())


async def test_another_result_is_told_with_both_results() -> None:
    async def upper(x: int) -> list[str]:
        return [text.upper() for text in await before(x)]

    driver = drive(before, 7)
    driver.run()
    driver.workflow = Workflow(upper)

    verdict = await driver.checked()
    assert verdict.word == "ends differently"
    assert "'charge:7'" in verdict.detail
    assert "'CHARGE:7'" in verdict.detail
    assert verdict.event == len(driver.store.log) + 1


async def test_another_kind_of_end_diverges() -> None:
    async def strict(x: int) -> None:
        await before(x)
        raise ValueError("never")

    async def longer(x: int) -> None:
        await before(x)
        await check_fraud(x)

    driver = drive(before, 7)
    driver.run()

    driver.workflow = Workflow(strict)
    verdict = await driver.checked()
    assert verdict.word == "diverges"
    assert "the log has run_completed" in verdict.detail
    assert "the code would fail with ValueError: never" in verdict.detail

    driver.workflow = Workflow(longer)
    verdict = await driver.checked()
    assert verdict.word == "diverges"
    assert "the code goes on and waits for check_fraud" in verdict.detail


async def test_a_body_that_fails_early_is_named_beside_what_it_did_not_ask_for() -> None:
    async def broken(x: int) -> None:
        await reserve(x)
        raise KeyError("gone")

    driver = drive(before, 7)
    driver.finish(driver.named("reserve")[0])
    driver.workflow = Workflow(broken)

    verdict = await driver.checked()
    assert verdict.word == "diverges"
    assert "the code asked for nothing there; it had ended before (fail with KeyError: gone)" in verdict.detail


async def test_what_is_asked_for_earlier_than_before_is_shown_and_fits() -> None:
    async def waits(x: int) -> Any:
        return await hook(token="t")

    async def asks_more(x: int) -> Any:
        answer = hook(token="t")
        await check_fraud(x)
        return await answer

    driver = drive(waits, 7)
    driver.workflow = Workflow(asks_more)

    verdict = await driver.checked()
    assert (verdict.word, verdict.early) == ("fits", ("step 'check_fraud'",))


async def test_what_the_next_pass_would_ask_for_is_no_surprise() -> None:
    driver = drive(before, 7)
    driver.end(driver.named("reserve")[0])

    assert (await driver.checked()).early == ()


async def test_a_failed_run_fits_when_the_code_fails_as_well() -> None:
    driver = Driver(
        Workflow(before),
        7,
        created=True,
        script=lambda name, *args: ValueError(name) if name == "charge" else echo(name),
    )
    driver.run()

    assert (await driver.checked()).fits


async def test_a_log_that_is_damaged_is_unreadable() -> None:
    driver = drive(before, 7)
    driver.store.log.pop(0)

    verdict = await driver.checked()
    assert (verdict.word, verdict.event) == ("unreadable", 1)
