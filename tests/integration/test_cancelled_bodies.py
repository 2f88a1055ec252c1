"""Does the end of a cancelled run reach the bodies of its steps?"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from consumers.worker import Worker
from redisworld import FatalError, RetryableError, RunCancelled, RunFailed, Settings, Step, Workflows, World, failures
from redisworld.events import Event, EventKind, parse

pytestmark = pytest.mark.anyio

SOON_S = 15.0
"""Generous for what takes a third of a lease."""

wf = Workflows()
told: dict[str, list[str]] = {}
free = threading.Event()


@wf.step
async def endless(run: str, deaf: int = 0) -> None:
    """Says what reaches it; ``deaf`` cancellations are swallowed."""
    told[run].append("began")
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            told[run].append("cancelled")
            if deaf <= 0:
                raise
            deaf -= 1


@wf.step(max_retries=0)
async def puts_it_in_its_own_words(run: str) -> str:
    """As a library does that makes an error of its own of a cancellation."""
    told[run].append("began")
    if len(told[run]) > 1:
        return "again"
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError as error:
        raise ConnectionError("closed in the middle") from error
    return "never"


@wf.step
async def fails_to_clean_up(run: str) -> None:
    told[run].append("began")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(cleans_up(run))


async def cleans_up(run: str) -> None:
    try:
        await asyncio.sleep(600)
    finally:
        told[run].append("cancelled")
        raise ConnectionError("nothing to clean up")


@wf.step
async def asks_for_time(run: str) -> None:
    told[run].append("began")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        raise RetryableError("not at once", retry_after="1h") from None


@wf.step(max_retries=3)
async def must_not_be_repeated(run: str) -> None:
    told[run].append("began")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        raise FatalError("half done") from None


@wf.step(timeout="10m", max_retries=3)
async def long(run: str) -> None:
    """Ends where it is cancelled, and gives its clean-up time."""
    told[run].append("began")
    try:
        async with anyio.create_task_group() as tasks, asyncio.timeout(300):
            tasks.start_soon(anyio.sleep, 600)
            await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0.05)
        told[run].append("cancelled")


@wf.step
async def stubborn(run: str) -> str:
    """Takes its cancellation for a reason to come to an end, and has a result."""
    told[run].append("began")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        told[run].append("cancelled")
    async with asyncio.timeout(5):
        await asyncio.sleep(0.01)
    return "so far"


@wf.step
def in_a_thread(run: str) -> str:
    told[run].append("began")
    free.wait(60)
    told[run].append("went on")
    return "done"


@wf.step(max_retries=1)
async def raises_by_itself(run: str) -> str:
    told[run].append("began")
    if len(told[run]) == 1:
        raise RunCancelled("another")  # as of a run that it waited for
    return "again"


@wf.workflow
async def one(name: str, *args: Any) -> Any:
    """One step by its name."""
    return await wf.steps[name](*args)


@wf.workflow
async def many(run: str) -> None:
    await asyncio.gather(*(endless(run) for _ in range(3)))


@wf.workflow
async def impatient(run: str) -> str:
    """Ends although its step goes on."""
    try:
        async with asyncio.timeout(0.5):
            await endless(run)
    except TimeoutError:
        return "over"
    return "never"


@asynccontextmanager
async def working(url: str, **changed: Any) -> AsyncIterator[World]:
    settings = Settings(url=url, partitions=1, lease_ms=900, block_ms=200, grace_ms=500, **changed)
    async with World.connect(settings=settings) as world, anyio.create_task_group() as tasks:
        worker = Worker(world, wf)
        tasks.start_soon(worker.run)
        yield world
        worker.stop()


async def until(run: str, *words: str) -> None:
    with anyio.fail_after(SOON_S):
        while told[run] != list(words):  # noqa: ASYNC110  # bodies tell it
            await anyio.sleep(0.02)


async def ended(world: World, run: str, steps: int) -> list[Event]:
    """The log, once so many steps have ended."""
    with anyio.fail_after(SOON_S):
        while True:
            log = [parse(element) for element in await world.log(run)]
            if sum(event.kind in ("step_completed", "step_failed") for event in log) == steps:
                return log
            await anyio.sleep(0.05)


async def started(world: World, step: Step[..., Any], run: str, *args: object) -> None:
    told[run] = []
    await world.start(one, step.name, run, *args, run_id=run)
    await until(run, "began")


@pytest.mark.parametrize("step", [endless, long], ids=["without a timeout", "with a timeout, scopes and a clean-up"])
async def test_a_terminated_run_cancels_its_body_and_no_retry_follows(redis_url: str, step: Step[..., Any]) -> None:
    async with working(redis_url) as world:
        await started(world, step, "terminated")
        await world.cancel("terminated", terminate=True)

        await until("terminated", "began", "cancelled")
        log = await ended(world, "terminated", 1)

    assert [event.kind for event in log][-2:] == ["run_cancelled", "step_failed"]


async def test_a_terminated_run_cancels_all_its_bodies_inline_and_queued(redis_url: str) -> None:
    async with working(redis_url) as world:
        told["many"] = []
        await world.start(many, "many", run_id="many")
        await until("many", *["began"] * 3)
        await world.cancel("many", terminate=True)

        await until("many", *["began"] * 3, *["cancelled"] * 3)
        log = await ended(world, "many", 3)

    assert [event.kind for event in log][-4:] == ["run_cancelled", *["step_failed"] * 3]


async def test_a_body_that_swallows_its_cancellation_is_cancelled_again(redis_url: str) -> None:
    async with working(redis_url) as world:
        await started(world, endless, "deaf", 2)
        await world.cancel("deaf", terminate=True)

        await until("deaf", "began", "cancelled", "cancelled", "cancelled")


async def test_a_body_whose_clean_up_fails_has_failed_and_is_not_retried(redis_url: str) -> None:
    """Its retry was refused, for the run was over, and the log never had an end of the step."""
    async with working(redis_url) as world:
        await started(world, fails_to_clean_up, "untidy")
        await world.cancel("untidy", terminate=True)

        await until("untidy", "began", "cancelled")
        log = await ended(world, "untidy", 1)

    assert [event.kind for event in log][-2:] == ["run_cancelled", "step_failed"]
    info = failures.decode(log[-1].payload)
    assert info.type == "redisworld.errors.RunCancelled"
    assert info.cause is not None
    assert "nothing to clean up" in (info.traceback or "")


async def test_a_drained_body_that_raises_another_error_is_handed_back_uncharged(redis_url: str) -> None:
    """It was charged with an attempt, and without a retry left a deploy failed the step."""
    async with working(redis_url) as world:
        await started(world, puts_it_in_its_own_words, "worded")
    async with working(redis_url) as world:
        assert await world.run("worded").result(timeout=SOON_S) == "again"
        [retrying] = [event for event in [parse(e) for e in await world.log("worded")] if event.kind == "step_retrying"]
        assert retrying.detail == "drain"
        assert "closed in the middle" in (failures.decode(retrying.payload).traceback or "")


async def test_a_drained_body_that_forbids_another_attempt_has_failed(redis_url: str) -> None:
    async with working(redis_url) as world:
        await started(world, must_not_be_repeated, "half-done")
    async with working(redis_url) as world:
        with pytest.raises(RunFailed, match="half done"):
            await world.run("half-done").result(timeout=SOON_S)
    assert told["half-done"] == ["began"]


async def test_a_body_that_comes_to_an_end_has_its_result_recorded_and_its_slot_given_back(redis_url: str) -> None:
    async with working(redis_url, concurrency=1) as world:
        await started(world, stubborn, "ends")
        await world.cancel("ends", terminate=True)

        await until("ends", "began", "cancelled")
        assert (await ended(world, "ends", 1))[-1].kind == "step_completed"
        await started(world, stubborn, "next")


async def test_a_drain_at_the_same_moment_ends_the_worker(redis_url: str) -> None:
    async with working(redis_url) as world:
        await started(world, endless, "both")
        await world.cancel("both", terminate=True)

    assert told["both"][:2] == ["began", "cancelled"]


async def test_a_drained_body_that_asks_for_a_later_attempt_gets_it(redis_url: str) -> None:
    async with working(redis_url) as world:
        await started(world, asks_for_time, "asking")
    async with World.connect(settings=Settings(url=redis_url, partitions=1)) as world:
        [step] = (await world.steps("asking")).values()
        assert step.uncharged == 1
        assert step.retry_at - world.now_ms() > 3_000_000


async def test_a_cancel_that_the_body_lets_through_reaches_the_step_it_waits_for(redis_url: str) -> None:
    async with working(redis_url) as world:
        await started(world, endless, "asked")
        await world.cancel("asked")

        await until("asked", "began", "cancelled")


@pytest.mark.parametrize("terminate", [True, False])
async def test_a_retention_shorter_than_a_lease_does_not_keep_it_from_the_bodies(
    redis_url: str, terminate: bool
) -> None:
    """The run was deleted before the next renewal looked at it, and its body went on for ever."""
    run = f"short-{terminate}"
    async with working(redis_url, retention_ms=0, reap_every_ms=20) as world:
        await started(world, endless, run)
        await world.cancel(run, terminate=terminate)

        await until(run, "began", "cancelled")


async def test_a_thread_cannot_be_stopped_and_its_result_is_recorded(redis_url: str) -> None:
    async with working(redis_url) as world:
        await started(world, in_a_thread, "thread")
        await world.cancel("thread", terminate=True)
        await anyio.sleep(0.9)  # three renewals
        free.set()

        await until("thread", "began", "went on")
        assert (await ended(world, "thread", 1))[-1].kind == "step_completed"


async def test_a_step_that_raises_run_cancelled_by_itself_is_retried(redis_url: str) -> None:
    async with working(redis_url) as world:
        told["raising"] = []
        run = await world.start(one, "raises_by_itself", "raising", run_id="raising")
        assert await run.result(timeout=SOON_S) == "again"


@wf.step(max_retries=0)
async def cancels_itself(how: str) -> str:
    """As libraries did for a timeout, before a task counted its cancellations."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    if how != "unseen":
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            if how == "raised":
                raise
    return how


@wf.workflow
async def of_bodies_that_cancel_themselves() -> list[str]:
    try:
        await cancels_itself("raised")
    except RuntimeError as error:
        one = str(error)
    return [one, await cancels_itself("swallowed"), await cancels_itself("unseen"), await cancels_itself("swallowed")]


async def test_a_body_that_cancels_its_own_task_has_its_outcome_at_once(redis_url: str) -> None:
    """It was taken for the end of the worker: nothing was recorded, and each attempt lasted as long as its lease."""
    async with working(redis_url) as world:
        run = await world.start(of_bodies_that_cancel_themselves)

        raised = "the step's body raised CancelledError by itself"
        assert await run.result(timeout=SOON_S) == [raised, "swallowed", "unseen", "swallowed"]


@pytest.mark.parametrize("step", [endless, puts_it_in_its_own_words], ids=lambda step: str(step.name))
async def test_a_worker_that_is_ended_by_force_records_nothing_of_the_bodies_that_it_ends(
    redis_url: str, step: Step[..., Any]
) -> None:
    """As after an error of its own: no attempt is charged for what nobody let end."""
    run_id = f"by-force-{step.name}"
    async with World.connect(settings=Settings(url=redis_url, partitions=1)) as world:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Worker(world, wf).run)
            await started(world, step, run_id)
            tasks.cancel_scope.cancel()
        kinds = [parse(element).kind for element in await world.log(run_id)]

    assert kinds[-1] == EventKind.STEP_STARTED


async def test_a_run_that_completes_leaves_its_steps_alone(redis_url: str) -> None:
    async with working(redis_url) as world:
        told["left"] = []
        run = await world.start(impatient, "left", run_id="left")
        assert await run.result(timeout=SOON_S) == "over"
        await anyio.sleep(0.9)  # three renewals

        assert told["left"] == ["began"]
