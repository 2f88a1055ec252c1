"""What may bodies do to a worker, and do all shapes of a workflow survive the death of one? (promises 1 to 3)"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.synchronize
import os
import random
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import anyio
import pytest
import redis

from redisworld import Backoff, RunCancelled, RunFailed, StepError, Workflows, get_step_metadata, sleep
from redisworld.events import EventKind
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import WorkerProcess, Workers, eventually
from tests.chaos.watching import logged, settled

pytestmark = pytest.mark.anyio

APP = f"{__name__}:wf"
MAX_PAYLOAD = 100_000
wf = Workflows()


class Odd(BaseException):
    """Neither an Exception nor a way to end a process."""


# -- bodies that misbehave


@wf.step(max_retries=0)
async def raises_odd() -> None:
    raise Odd


@wf.step(max_retries=0)
def raises_odd_in_a_thread() -> None:
    raise Odd


@wf.step(max_retries=0)
async def raises_a_group_of_cancellations() -> None:
    raise BaseExceptionGroup("as a task group may", [asyncio.CancelledError()])


@wf.step(max_retries=0)
async def raises_system_exit() -> None:
    raise SystemExit(3)


@wf.step(max_retries=0)
def raises_system_exit_in_a_thread() -> None:
    raise SystemExit(3)


@wf.step(max_retries=0)
async def raises_keyboard_interrupt() -> None:
    raise KeyboardInterrupt


@wf.step(max_retries=0)
async def raises_cancelled() -> None:
    raise asyncio.CancelledError


@wf.step(max_retries=0)
async def child_exits() -> None:
    async def child() -> None:
        raise SystemExit(3)

    await asyncio.gather(child())


@wf.step(max_retries=0)
async def forgotten_child_exits() -> None:
    async def child() -> None:
        raise SystemExit(3)

    forgotten = asyncio.create_task(child())
    await asyncio.sleep(0.01)
    assert forgotten.done()


@wf.step(max_retries=3)
async def returns_no_value() -> object:
    return object()


@wf.step(max_retries=3)
async def returns_too_much() -> str:
    return "x" * (MAX_PAYLOAD + 1)


@wf.step(max_retries=0)
async def says_too_much() -> None:
    raise ValueError("x" * 10_000_000)


@wf.step(max_retries=3)
async def takes(text: str) -> int:
    return len(text)


@wf.workflow
async def calls(name: str) -> str:
    try:
        return f"ok {await wf.steps[name]()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


@wf.workflow
async def passes(size: int) -> str:
    try:
        return str(await takes("x" * size))
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


@wf.workflow
async def body_interrupts() -> None:
    raise KeyboardInterrupt


@wf.workflow
async def body_raises_odd() -> None:
    raise Odd


MISBEHAVES = {
    "raises_system_exit": "RuntimeError: the step's body raised SystemExit",
    "raises_system_exit_in_a_thread": "RuntimeError: the step's body raised SystemExit",
    "raises_keyboard_interrupt": "RuntimeError: the step's body raised KeyboardInterrupt",
    "raises_cancelled": "RuntimeError: the step's body raised CancelledError",
    "returns_no_value": "RemoteError: redisworld.errors.InvalidValue",
    "returns_too_much": "RemoteError: redisworld.errors.InvalidValue",
}


async def test_a_body_that_misbehaves_fails_its_step_and_nothing_else(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Without a retry, also where the step has some left: the same value would be refused again."""
    worker = workers.start(app=APP, max_payload=MAX_PAYLOAD)
    async with connect(max_payload=MAX_PAYLOAD) as world:
        for step, said in MISBEHAVES.items():
            run = await world.start(calls, step)
            assert (await run.result(timeout=5)).startswith(said)
            assert len(logged(raw, run.run_id)[EventKind.STEP_STARTED]) == 1
    assert worker.returncode is None
    await settled(raw)
    invariants.check(raw, wf)


@pytest.mark.parametrize(
    "step",
    [
        "raises_odd",
        "raises_odd_in_a_thread",
        "raises_a_group_of_cancellations",
        "child_exits",
        "forgotten_child_exits",
    ],
)
async def test_a_body_with_an_odd_exception_does_not_end_the_worker(
    raw: redis.Redis, workers: Workers, connect: Connect, step: str
) -> None:
    worker = workers.start(app=APP)
    async with connect() as world:
        run = await world.start(calls, step)
        await eventually(
            lambda: worker.returncode is not None or logged(raw, run.run_id)[EventKind.RUN_COMPLETED], timeout=10
        )
        assert worker.returncode is None


async def test_an_argument_above_max_payload_is_refused_in_the_body(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    workers.start(app=APP, max_payload=MAX_PAYLOAD)
    async with connect(max_payload=MAX_PAYLOAD) as world:
        small, big = await world.start(passes, 10), await world.start(passes, MAX_PAYLOAD + 1)
        assert await small.result(timeout=5) == "10"
        assert (await big.result(timeout=5)).startswith("InvalidValue: step takes: the arguments: 100,0")
    assert not logged(raw, big.run_id)[EventKind.STEP_CREATED]


async def test_the_log_of_a_worker_shows_the_beginning_of_a_huge_message(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    worker = workers.start(app=APP)
    async with connect() as world:
        await (await world.start(calls, "says_too_much")).result(timeout=10)
    assert worker.log_path.stat().st_size < 100_000


async def test_a_workflow_body_that_raises_a_base_exception_fails_its_run(workers: Workers, connect: Connect) -> None:
    workers.start(app=APP)
    async with connect() as world:
        with pytest.raises(RunFailed, match="Odd"):
            await (await world.start(body_raises_odd)).result(timeout=5)


async def test_a_workflow_body_that_raises_keyboard_interrupt_fails_its_run(workers: Workers, connect: Connect) -> None:
    worker = workers.start(app=APP)
    async with connect() as world:
        run = await world.start(body_interrupts)
        await anyio.sleep(1)
        assert worker.returncode is None
        with pytest.raises(RunFailed):
            await run.result(timeout=5)


# -- bodies that fork


def _forked(how: str) -> int:
    """In the child 0, where it does not raise; in the parent the child's process id."""
    if child := os.fork():
        return child
    if how == "raises":
        raise ValueError("the child fails")
    if how == "exits":
        sys.exit(7)
    return 0


def _exit_code(child: int) -> int:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError("the child does not end")


@wf.step(max_retries=0)
def forks_in_a_thread(how: str) -> int:
    return _exit_code(child) if (child := _forked(how)) else 0


@wf.step(max_retries=0)
async def forks(how: str) -> int:
    if child := _forked(how):
        return await asyncio.to_thread(_exit_code, child)
    if how == "awaits":
        await asyncio.sleep(0)
    return 0


@wf.workflow
async def forking(step: str, how: str) -> int:
    return await wf.steps[step](how)  # type: ignore[no-any-return]


@pytest.mark.parametrize("step", ["forks_in_a_thread", "forks"])
async def test_a_process_that_a_body_forks_ends_where_it_leaves_the_body_and_never_goes_on_as_the_worker(
    workers: Workers, connect: Connect, step: str
) -> None:
    worker = workers.start(app=APP)
    async with connect() as world:
        for how, code in {"returns": 0, "raises": 1, "exits": 7, "awaits": 1 if step == "forks" else 0}.items():
            assert await (await world.start(forking, step, how)).result(timeout=10) == code, how
        assert await (await world.start(calls, "raises_odd")).result(timeout=5)
    assert worker.returncode is None
    assert worker.log().count("ValueError: the child fails") == 1
    assert ("cannot await" in worker.log()) == (step == "forks")


def _sleeps(began: multiprocessing.synchronize.Event) -> None:
    began.set()
    time.sleep(60)


@wf.step(max_retries=0)
def ends_its_child() -> int | None:
    context = multiprocessing.get_context("fork")
    began = context.Event()
    child = context.Process(target=_sleeps, args=(began,))
    child.start()
    began.wait(10)
    child.terminate()
    child.join(10)
    code = child.exitcode
    child.kill()
    return code


@wf.workflow
async def ending_a_child() -> int | None:
    return await ends_its_child()


async def test_a_process_that_a_body_forks_ends_at_a_signal_as_it_would_without_the_worker(
    workers: Workers, connect: Connect
) -> None:
    """It inherited the handlers of the worker, for which the first signal begins a drain: ``Pool.terminate`` hung."""
    worker = workers.start(app=APP)
    async with connect() as world:
        assert await (await world.start(ending_a_child)).result(timeout=20) == -signal.SIGTERM
    assert "draining" not in worker.log()


# -- retries and their limits


@wf.step(max_retries=1, timeout="200ms", backoff=Backoff(first_ms=1))
async def never_ends_at_first() -> int:
    while (attempt := get_step_metadata().attempt) == 1:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
    return attempt


@wf.workflow
async def outlasting_a_body() -> int:
    return await never_ends_at_first()


@pytest.mark.parametrize("max_inline_steps", [0, 1])
async def test_a_body_that_goes_on_after_its_timeout_holds_up_its_step_no_longer_than_a_lease(
    workers: Workers, connect: Connect, max_inline_steps: int
) -> None:
    """Its own worker took the delivery over in each lease, as one that it works on: the step never went on."""
    workers.start(app=APP, max_inline_steps=max_inline_steps)
    async with connect() as world:
        assert await (await world.start(outlasting_a_body)).result(timeout=20) == 2


@wf.step(max_retries=70, backoff=Backoff(first_ms=1, factor=1))
async def fails_often(times: int) -> int:
    attempt = get_step_metadata().attempt
    if attempt <= times:
        raise ValueError(f"attempt {attempt}")
    return attempt


@wf.step(max_retries=0)
async def only_once(what: str) -> str:
    await asyncio.sleep(30)
    return what


@wf.step
async def quick(what: str) -> str:
    return what


@wf.workflow
async def patient() -> int:
    return await fails_often(60)


@wf.workflow
async def caught() -> list[str]:
    """The failure of a killed step is the body's to catch; a queued one and an inline one."""
    ends = await asyncio.gather(only_once("inline"), only_once("queued"), return_exceptions=True)
    return [f"{type(end).__name__} {str(end)[:40]}" for end in ends] + [await quick("after")]


@wf.workflow
async def uncaught() -> str:
    return await only_once("x")


async def until(good: int) -> int:
    if get_step_metadata().attempt < good:
        raise ValueError("not yet")
    return get_step_metadata().attempt


QUICKLY = Backoff(first_ms=5)
with_no_retry = wf.step(name="with_no_retry", max_retries=0, backoff=QUICKLY)(until)
with_two_retries = wf.step(name="with_two_retries", max_retries=2, backoff=QUICKLY)(until)


@wf.workflow
async def retries(name: str, good: int) -> int:
    return await wf.steps[name](good)


@pytest.mark.parametrize("inline", [0, 1])
async def test_what_max_retries_means(raw: redis.Redis, workers: Workers, connect: Connect, inline: int) -> None:
    """A12: executions are retries and one; the last failure is no retry."""
    workers.start(app=APP, max_inline_steps=inline)
    async with connect() as world:
        for name, good, executions, ok in (
            ("with_no_retry", 99, 1, False),
            ("with_no_retry", 1, 1, True),
            ("with_two_retries", 3, 3, True),
            ("with_two_retries", 99, 3, False),
        ):
            run = await world.start(retries, name, good)
            if ok:
                assert await run.result(timeout=5) == executions
            else:
                with pytest.raises(RunFailed, match="not yet"):
                    await run.result(timeout=5)
            log = logged(raw, run.run_id)
            assert len(log[EventKind.STEP_STARTED]) == executions
            assert len(log[EventKind.STEP_RETRYING]) == executions - 1


async def test_sixty_failed_attempts_are_no_poison(raw: redis.Redis, workers: Workers, connect: Connect) -> None:
    """More attempts than max_deliveries (A13): each retry is a new delivery."""
    workers.start(app=APP, max_deliveries=5)
    async with connect() as world:
        run = await world.start(patient)
        assert await run.result(timeout=20) == 61
    log = logged(raw, run.run_id)
    assert (len(log[EventKind.STEP_STARTED]), len(log[EventKind.STEP_RETRYING])) == (61, 60)
    await settled(raw)
    invariants.check(raw, wf)


async def test_a_killed_step_without_retries_is_exhausted_and_can_be_caught(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    first = workers.start(app=APP)
    async with connect() as world:
        runs = [await world.start(caught, run_id="caught"), await world.start(uncaught, run_id="uncaught")]
        await eventually(
            lambda: sum(len(logged(raw, run.run_id)[EventKind.STEP_STARTED]) for run in runs) == 3, timeout=5
        )
        first.kill()
        workers.start(app=APP)
        ends = await runs[0].result(timeout=10)
        exhausted = "RemoteError AttemptsExhausted"
        assert [end.split(":")[0] for end in ends] == [exhausted, exhausted, "after"]
        with pytest.raises(RunFailed, match="AttemptsExhausted"):
            await runs[1].result(timeout=10)
    await settled(raw)
    invariants.check(raw, wf)
    assert no_owners(raw) == []


# -- shapes that are killed at random points


@wf.step(max_retries=50, backoff=Backoff(first_ms=20, cap_ms=50))
async def work(what: str, seconds: float = 0.05) -> str:
    await asyncio.sleep(seconds)
    return what


@wf.step(max_retries=0)
async def refuses(what: str) -> str:
    raise ValueError(what)


@wf.step(max_retries=2, timeout="100ms", backoff=Backoff(first_ms=20))
async def times_out() -> str:
    await asyncio.sleep(30)
    return "never"


async def awaited(call: Any) -> Any:
    return await call


@wf.workflow
async def goes_on() -> list[str]:
    out = [await work("a")]
    try:
        await refuses("b")
    except ValueError as error:
        out.append(f"caught {error}")
    return [*out, await work("c")]


@wf.workflow
async def nested() -> list[Any]:
    async def pair(name: str) -> list[str]:
        first = await asyncio.gather(work(f"{name}1"), work(f"{name}2"))
        return [*first, await work(f"{name}3")]

    return await asyncio.gather(pair("a"), asyncio.gather(pair("b"), work("c")), work("d", 0.2))


@wf.workflow
async def groups() -> list[str]:
    out = []
    try:
        async with asyncio.TaskGroup() as group:
            kept = group.create_task(awaited(work("kept", 0.01)))
            group.create_task(awaited(refuses("x")))
            group.create_task(awaited(work("cancelled", 5.0)))
    except ExceptionGroup as errors:
        out.append(f"{type(errors.exceptions[0]).__name__} {len(errors.exceptions)}")
    out.append(str(kept.cancelled() or kept.done()))
    return [*out, await work("end")]


@wf.workflow
async def races() -> list[str]:
    """The loser ends after the run."""
    done, rest = await asyncio.wait(
        [asyncio.ensure_future(work("r", 0.05)), asyncio.ensure_future(work("r", 1.5))],
        return_when=asyncio.FIRST_COMPLETED,
    )
    return [str(len(done) + len(rest)), next(iter(done)).result()]


@wf.workflow
async def deadlines() -> list[str]:
    out = []
    try:
        async with asyncio.timeout(0.3):
            await work("slow", 20.0)
    except TimeoutError:
        out.append("timeout")
    try:
        await times_out()
    except StepError:  # timed out, or exhausted because its worker was killed
        out.append("failed")
    await sleep(0.1)
    return [*out, await work("end")]


@wf.workflow
async def forgets() -> str:
    """A task that nobody awaits, with a step that goes on after the end."""
    task = asyncio.create_task(awaited(work("forgotten", 0.7)))
    first = await work("first")
    assert not task.done() or task.result()
    return first


@wf.workflow
async def fails_beside() -> str:
    """One of a gather fails while the others run; they report to a run that has its result."""
    try:
        await asyncio.gather(work("a", 0.6), refuses("no"), work("b", 0.8))
    except ValueError as error:
        return f"failed {error}"
    return "?"


SHAPES = {
    "goes_on": ["a", "caught b", "c"],
    "nested": [["a1", "a2", "a3"], [["b1", "b2", "b3"], "c"], "d"],
    "groups": ["ValueError 1", "True", "end"],
    "races": ["2", "r"],
    "deadlines": ["timeout", "failed", "end"],
    "forgets": "first",
    "fails_beside": "failed no",
}


def no_owners(raw: redis.Redis) -> list[str]:
    """``own:`` and ``wake`` fields that finished runs still have; the owner of a step that never ended may stay."""
    found = []
    for partition in invariants.partitions(raw):
        for run_id in invariants.run_ids(raw, partition):
            row = raw.hgetall(partition.run(run_id))
            owned = {field: step for field, step in row.items() if field.startswith(b"own:")}
            found += [f"{run_id} {f!r}" for f, step in owned.items() if not row[b"s:" + step].startswith(b"running|")]
            found += [f"{run_id} wake {row[b'wake']!r}"] if row.get(b"wake") else []
    return found


async def test_shapes_give_the_same_result_however_often_their_worker_dies(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    chance = random.Random(7)
    options: dict[str, Any] = {"app": APP, "lease_ms": 500, "concurrency": 32}
    async with connect(lease_ms=500) as world:
        alive: list[WorkerProcess] = [workers.start(**options), workers.start(**options)]
        runs = [
            (name, await world.start(wf.workflows[name], run_id=f"{name}-{number}"))
            for number in range(6)
            for name in SHAPES
        ]
        until = time.monotonic() + 3
        while time.monotonic() < until:
            await anyio.sleep(chance.uniform(0.1, 0.7))
            victim = alive.pop(chance.randrange(2))
            victim.kill()
            alive.append(workers.start(ready=chance.random() < 0.5, **options))
        for name, run in runs:
            try:
                result: Any = await run.result(timeout=20)
            except RunFailed as error:
                result = str(error)
            # a step without retries whose worker was killed is exhausted instead of refused: the body says so, some
            # of them only by the type, which is RemoteError
            if "AttemptsExhausted" not in str(result) and "RemoteError" not in str(result):
                assert result == SHAPES[name], run.run_id
    await settled(raw, timeout=40)  # a body of 20 s may have started again, of a run that has ended since
    await eventually(lambda: invariants.pending(raw) == 0)
    invariants.check(raw, wf)
    assert no_owners(raw) == []


@pytest.mark.parametrize("way", ["cancel", "terminate"])
async def test_what_runs_when_the_run_ends_changes_nothing(
    raw: redis.Redis, workers: Workers, connect: Connect, way: str
) -> None:
    """A17: the step ends after the run, before a renewal stops it; it is recorded, no step starts, the status stays."""
    workers.start(app=APP, lease_ms=30_000)
    async with connect() as world:
        run = await world.start(slow_pair, run_id="ends")
        await eventually(lambda: len(logged(raw, "ends")[EventKind.STEP_STARTED]) == 2)
        await (run.cancel() if way == "cancel" else run.terminate())
        with pytest.raises(RunCancelled):
            await run.result(timeout=5)
        await settled(raw)
        log = logged(raw, "ends")
        assert len(log[EventKind.STEP_STARTED]) == 2
        assert len(log[EventKind.STEP_COMPLETED]) == 2
        with pytest.raises(RunCancelled):
            await run.result(timeout=5)
    invariants.check(raw, wf)
    assert no_owners(raw) == []


@wf.workflow
async def slow_pair() -> list[str]:
    pair = await asyncio.gather(work("a", 0.8), work("b", 0.8))
    return [*pair, await work("c")]


# -- a thread that nobody can stop


@wf.step(max_retries=0, timeout="200ms")
def deaf() -> None:
    time.sleep(60)


@wf.workflow
async def has_a_deaf_step() -> str:
    try:
        await deaf()
    except StepError as error:
        return type(error).__name__
    return "?"


async def test_a_timed_out_thread_does_not_hold_up_the_drain(workers: Workers, connect: Connect) -> None:
    worker = workers.start(app=APP, grace_ms=1_000)
    async with connect() as world:
        assert await (await world.start(has_a_deaf_step)).result(timeout=20) == "StepTimeout"
    assert "its thread goes on, and keeps a slot" in worker.log(), "a worker whose slots are full of them looks idle"
    worker.stop()
    assert worker.wait(20) == 0, "the thread sleeps for a minute"
