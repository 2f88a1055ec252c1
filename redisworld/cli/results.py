"""How does a command wait for the result of a run?"""

from __future__ import annotations

from typing import Any

from redisworld.cli.endings import CommandFailed
from redisworld.world import Run


async def result_of(run: Run[Any], *, timeout_ms: int | None) -> Any:
    """What the run returned. Raises RunFailed, RunCancelled, and CommandFailed when the time is over."""
    try:
        return await run.result(timeout=None if timeout_ms is None else timeout_ms / 1000)
    except TimeoutError as error:
        raise CommandFailed(str(error)) from error
