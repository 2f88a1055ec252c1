"""What is every construct, what must it give, and who acts on it from outside?"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from redisworld import World
from redisworld.workflows import Workflow
from tests.constructs.steps import wf

Act = Callable[[World, str], Coroutine[Any, Any, object]]
"""Something done to a run, given its id, when the run has nothing to do but wait."""

Body = Callable[[], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class Construct:
    """A body and what its run must end with; ``cancelled`` and ``failed: …`` are ends, too."""

    workflow: Workflow[..., Any]
    expected: Any
    acts: tuple[Act, ...] = ()

    @property
    def name(self) -> str:
        return self.workflow.name


CATALOGUE: dict[str, Construct] = {}


def gives(expected: Any, *acts: Act) -> Callable[[Body], Body]:
    """Put a body into the catalogue."""

    def put(body: Body) -> Body:
        CATALOGUE[body.__name__] = Construct(wf.workflow(body), expected, acts)
        return body

    return put


def resume(token: str, payload: Any) -> Act:
    """Hand a payload to the run's hook; every run of a construct has a token of its own."""

    async def act(world: World, run_id: str) -> None:
        await world.resume(f"{token}:{run_id}", payload, resume_id=blake2b(repr(payload).encode()).hexdigest()[:12])

    return act


async def let_time_pass(world: World, run_id: str) -> None:
    """Act no further before the next timer has fired."""


async def cancel(world: World, run_id: str) -> None:
    """Ask the body to stop."""
    await world.cancel(run_id)
