"""What does a body ask for after a prefix of the log? The real engine answers, as a pure function."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, NamedTuple

import msgspec

from consumers.passes import Identity, Inline, chunks, writes_only
from redisworld import Hook, Workflows, events, failures, hook, values
from redisworld.errors import ErrorInfo
from redisworld.events import EventKind, RunCreated
from redisworld.messages import RunContext
from redisworld.replay import Instance, Pass
from redisworld.settings import Settings
from redisworld.world import Delivery
from tests.explorer.model import RUN, TOKEN
from tests.explorer.store import PARTITION

Item = str | bytes | int

RESULT = values.encode(1)
"""What every step returns, so that a body which adds results returns how many steps it has seen completed."""
ERROR = failures.encode(ErrorInfo(type="Oops", message="it does not work"))
RETRY_MS = 20
SLEEP_S = 0.05
INLINE_TOKEN = "<token>"
_PASSED_OVER = (b"run_started", b"step_started", b"step_retrying")

app = Workflows()


@app.step(max_retries=5)
async def work() -> int:
    """A step that succeeds."""
    return 1


@app.step(max_retries=0)
async def once() -> int:
    """A step that succeeds, but must not be started twice."""
    return 1


@app.step(max_retries=5)
async def flaky() -> int:
    """A step whose first attempt fails."""
    return 1


@app.step(max_retries=0)
async def bad() -> int:
    """A step that fails."""
    return 1


def outcome(name: str, charged: int) -> str:
    """What an attempt comes to, by the number of attempts charged so far."""
    if name == "flaky" and charged <= 1:
        return "retrying"
    return "failed" if name == "bad" else "completed"


@app.workflow
async def one() -> int:
    return await work()


@app.workflow
async def gather2() -> int:
    return sum(await asyncio.gather(work(), work()))


@app.workflow
async def gather3() -> int:
    return sum(await asyncio.gather(work(), work(), work()))


@app.workflow
async def gather_then() -> int:
    return sum(await asyncio.gather(work(), work())) + await work()


@app.workflow
async def gather_all_bad() -> int:
    found = await asyncio.gather(work(), bad(), return_exceptions=True)
    return sum(item for item in found if isinstance(item, int)) + await work()


@app.workflow
async def fail_fast2() -> int:
    return sum(await asyncio.gather(work(), bad()))


@app.workflow
async def fail_fast3() -> int:
    return sum(await asyncio.gather(work(), bad(), work()))


@app.workflow
async def two_bad() -> int:
    return sum(await asyncio.gather(bad(), bad()))


@app.workflow
async def regroup() -> int:
    """A first gather fails; what it has left open is awaited again, in another group."""
    good = [asyncio.ensure_future(work()), asyncio.ensure_future(work())]
    try:
        await asyncio.gather(*good, bad())
    except Exception:
        return sum(await asyncio.gather(*good))
    return 0


@app.workflow
async def task_group() -> int:
    async with asyncio.TaskGroup() as tasks:
        found = [tasks.create_task(work()), tasks.create_task(work())]
    return sum(task.result() for task in found)


async def chain() -> int:
    return await work() + await work()


@app.workflow
async def chains() -> int:
    return sum(await asyncio.gather(chain(), chain()))


@app.workflow
async def sequence() -> int:
    return await work() + await work()


@app.workflow
async def then_gather() -> int:
    return await work() + sum(await asyncio.gather(work(), work()))


@app.workflow
async def race() -> int:
    tasks = [asyncio.ensure_future(work()), asyncio.ensure_future(work())]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return len(done)


@app.workflow
async def race_then() -> int:
    tasks = [asyncio.ensure_future(work()), asyncio.ensure_future(work())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return sum(await asyncio.gather(*tasks))


@app.workflow
async def step_or_timer() -> int:
    try:
        async with asyncio.timeout(SLEEP_S):
            return await work()
    except TimeoutError:
        return 1


@app.workflow
async def step_and_timer() -> int:
    result, _ = await asyncio.gather(work(), asyncio.sleep(SLEEP_S))
    return result


@app.workflow
async def dropped_timer() -> int:
    """The wait is dropped when the first step ends, and a second step follows."""
    try:
        async with asyncio.timeout(SLEEP_S):
            await work()
    except TimeoutError:
        pass
    return await work()


@app.workflow
async def retry() -> int:
    return await flaky()


@app.workflow
async def retry_beside() -> int:
    return sum(await asyncio.gather(flaky(), work()))


@app.workflow
async def exhausted() -> int:
    return await once()


@app.workflow
async def cleanup() -> int:
    """Asked to stop, it makes one more step."""
    try:
        return await work()
    except asyncio.CancelledError:
        await work()
        raise


@app.workflow
async def step_and_hook() -> int:
    step = asyncio.ensure_future(work())
    await hook(int, token=TOKEN)
    return await step


async def _received() -> int:
    await hook(int, token=TOKEN)
    return 1


@app.workflow
async def step_or_hook() -> int:
    tasks = [asyncio.ensure_future(work()), asyncio.ensure_future(_received())]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return len(done)


@app.workflow
async def hook_then() -> int:
    """It asks whether the token is its own, and drops the hook once it has been resumed."""
    waiting: Hook[int] = hook(int, token=TOKEN)
    async with waiting:
        assert await waiting.get_conflict() is None
        await waiting
    return await work()


class Asked(NamedTuple):
    """What a pass asks for: the items of each commit_pass call, and what comes with them."""

    calls: tuple[tuple[Item, ...], ...]
    step: str
    """The step that is to run inline, or ""."""
    name: str
    """Of that step."""
    hook: str
    """The hook whose token is claimed before the commit, or ""."""
    alone: bool
    """Whether the body can go on from the end of that step before the log has it."""


class _Quiet(msgspec.Struct, frozen=True):
    """As much of a World as a commit's arguments need."""

    settings: Settings

    def pin(self, deployment: str) -> str:
        return ""

    def now_ms(self) -> int:
        return 1_764_628_800_000


@cache
def seen(log: tuple[bytes, ...], points: tuple[int, ...]) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """The events that a body looks at, and the points counted in them: many logs are one to it."""
    kept = [number for number, element in enumerate(log, 1) if not element.startswith(_PASSED_OVER)]
    counted = {sum(1 for number in kept if number <= point) for point in points}
    return tuple(log[number - 1] for number in kept), tuple(sorted(counted))


@cache
def ask(
    workflow: str, log: tuple[bytes, ...], points: tuple[int, ...], at: int, chunk_steps: int, inline: bool
) -> Asked:
    """What the body asks for after this log; ``points``: see ``Hand``. Raises ReplayDivergence.

    The inline step's token is ``INLINE_TOKEN``.
    """
    created = events.parse(log[0])
    given = msgspec.msgpack.decode(created.payload, type=RunCreated)
    asked, body = _replayed(workflow, log, points, at, given.input)
    first = next(iter(asked.steps), None) if inline and not asked.outcome else None
    world: Any = _Quiet(Settings(chunk_steps=chunk_steps))
    identity = Identity(run_id=RUN, workflow=workflow, context=RunContext(given.deployment_id, given.spec_version))
    chosen = Inline(first, INLINE_TOKEN) if first else None
    holders = {created.id: "" for created in asked.hooks}
    calls = chunks(world, Delivery(PARTITION, "", "", {}), identity, asked, chosen, holders)
    return Asked(
        tuple(tuple(items) for items, _ in calls),
        first.id if first else "",
        first.name if first else "",
        next(iter(holders), ""),
        first is not None and writes_only(asked, first) and body.waits_only_for(first.id),
    )


@cache
def end(workflow: str, log: tuple[bytes, ...]) -> str:
    """How the body ends after this log: the kind of event that records it, or ""."""
    given = msgspec.msgpack.decode(events.parse(log[0]).payload, type=RunCreated)
    asked, _ = _replayed(workflow, log, (), body_time(log), given.input)
    return "" if asked.outcome is None else f"run_{asked.outcome.status}"


def _replayed(
    workflow: str, log: tuple[bytes, ...], points: tuple[int, ...], at: int, input: bytes
) -> tuple[Pass, Instance]:
    body = Instance(run_id=RUN, workflow=app.workflows[workflow], input=input, at=at)
    try:
        body.start()
        for element in log:
            body.deliver(events.parse(element))
            if body.consumed in points:
                body.committed()
        return body.commands(), body
    finally:
        body.close()


def body_time(log: tuple[bytes, ...]) -> int:
    """When the run has started, as a cold body sees it."""
    for element in log:
        if element.startswith(EventKind.RUN_STARTED.encode()):
            return events.parse(element).at
    return events.parse(log[0]).at
