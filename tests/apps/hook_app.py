"""The application of the hook tests: bodies that wait for somebody outside, in this process or in real workers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from redisworld import BaseHook, HookConflict, InvalidValue, Workflows, hook
from tests.apps import chaos_app

wf = Workflows()


@dataclass(frozen=True)
class Approval(BaseHook):
    """A payload with a type."""

    by: str
    ok: bool = True


@wf.step
async def note(what: Any) -> Any:
    """Its executions are counted outside the library where the chaos tests run it."""
    if "CHAOS_REDIS" in os.environ:
        chaos_app.noted(str(what))
    return what


@wf.step
async def gated(what: str, gate: str) -> str:
    """Notes, then waits for the key ``gate``."""
    chaos_app.noted(what)
    while not chaos_app.client().exists(gate):  # noqa: ASYNC110 the gate is in Redis
        await asyncio.sleep(0.01)
    return what


@wf.workflow
async def approved(token: str) -> list[Any]:
    approval = await Approval.wait(token=token, metadata={"asks": "kim"})
    return [type(approval).__name__, approval.by, approval.ok]


@wf.workflow
async def noted(token: str | None = None) -> str:
    """Waits, then does a step with what it was handed."""
    return str(await note(await hook(str, token=token)))


@wf.workflow
async def all_of(token: str, count: int) -> list[int]:
    """So many payloads in the order they came; the token is free then."""
    taken = []
    async with hook(int, token=token) as numbers:
        async for number in numbers:
            taken.append(number)
            if len(taken) == count:
                break
    return taken


@wf.workflow
async def told_apart(token: str) -> str:
    """What it was handed, or which run holds the token."""
    try:
        return f"got {await hook(str, token=token)}"
    except HookConflict as conflict:
        return f"held by {conflict.run_id}"


@wf.workflow
async def holder_of(token: str) -> str | None:
    """Claims the token and waits for nothing else."""
    return await hook(token=token).get_conflict()


@wf.workflow
async def strict(token: str) -> list[str]:
    """A payload that does not fit is answered, and the next one is taken."""
    numbers, seen = hook(int, token=token), []
    while len(seen) < 2:
        try:
            seen.append(f"{await numbers}")
        except InvalidValue as error:
            seen.append(str(error))
    return seen


@wf.workflow
async def raced(token: str, seconds: float) -> str:
    """The first of a payload and a timer."""
    try:
        async with asyncio.timeout(seconds):
            return f"got {await hook(str, token=token)}"
    except TimeoutError:
        return "nobody came"


@wf.workflow
async def beside(token: str, gate: str) -> list[str]:
    """A hook beside a running step."""
    return list(await asyncio.gather(hook(str, token=token), gated("s", gate)))


@wf.workflow
async def first_of(token: str, gate: str) -> list[str]:
    """What the hook brings is used while the step beside it still runs."""
    step = asyncio.create_task(_gated(gate))
    early = str(await note(await hook(str, token=token)))
    return [early, await step]


async def _gated(gate: str) -> str:
    return await gated("s", gate)


@wf.workflow
async def moves_on(first: str, second: str) -> list[str]:
    """Takes one payload under the first token, frees it, and waits under the second."""
    async with hook(str, token=first) as taken:
        payload = await taken
    return [payload, await hook(str, token=second)]


@wf.workflow
async def again(token: str, count: int) -> list[str]:
    """A new hook under the same token, time after time."""
    seen = []
    for _ in range(count):
        async with hook(str, token=token) as taken:
            seen.append(await taken)
    return seen


@wf.workflow
async def broken(token: str) -> None:
    """Fails when it is handed something."""
    raise ValueError(await hook(str, token=token))


@wf.workflow
async def twice(token: str) -> str:
    """Two living hooks of one run under one token."""
    first, second = hook(str, token=token), hook(str, token=token)
    return f"{await first.get_conflict()}, {await second.get_conflict()}"
