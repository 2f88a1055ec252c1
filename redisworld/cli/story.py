"""What is there to tell about a run? Its row, steps, open waits, hooks and log, read page by page."""

from __future__ import annotations

from collections import deque

import msgspec

from redisworld.cli.event_lines import Entry, due_of, entry_of, parsed
from redisworld.events import Event, EventKind
from redisworld.runs import RunRow, Status, Step
from redisworld.world import OutputInfo, World
from redisworld.world.listing_steps import by_creation


class StepStory(msgspec.Struct, kw_only=True):
    """A step as the row and the log tell it. Times are epoch ms by Redis; 0 where not reached."""

    id: str
    name: str = "?"
    status: Status = Status.PENDING
    attempt: int = 0
    started_at: int = 0
    ended_at: int = 0
    retry_at: int = 0


class HookStory(msgspec.Struct, kw_only=True):
    """A hook as the log tells it. ``state`` is open, disposed (also by the end of its run) or conflict."""

    id: str
    token: str = ""
    """Empty for a conflict: its event has only ``holder``, the run that holds the token."""
    state: str = "open"
    holder: str = ""
    received: int = 0


class Story(msgspec.Struct, kw_only=True):
    """A run. ``entries``, ``steps`` and ``hooks`` may be only the last ones; ``*_before`` say how many are left out."""

    row: RunRow
    attributes: dict[str, str]
    outputs: list[OutputInfo]
    key: str
    """Of the run row in Redis."""
    steps: list[StepStory]
    steps_before: int
    waits: dict[str, int]
    """Open waits: id to due time in epoch ms."""
    hooks: list[HookStory]
    hooks_before: int
    entries: list[Entry]
    entries_before: int


async def read_story(world: World, run_id: str, *, keep: int | None) -> Story:
    """Read a run; the last ``keep`` steps, hooks and events of it, or all. Raises RunNotFound.

    A run that goes on meanwhile is told as far as each part was read; the log is not held in memory whole.
    """
    row = await world.row(run_id)
    states = await world.steps(run_id)
    told: dict[str, StepStory] = {}
    waits: dict[str, int] = {}
    hooks: dict[str, HookStory] = {}
    last: deque[tuple[int, bytes]] = deque(maxlen=keep)
    number = 0
    while page := await world.log(run_id, number):
        for element in page:
            number += 1
            last.append((number, element))
            if (event := parsed(element)) is not None:
                _follow(told, waits, event)
                _follow_hook(hooks, event)
    ordered = [_with_state(told.get(id, StepStory(id=id)), state) for id, state in by_creation(states)]
    shown = ordered if keep is None else ordered[-keep:]
    if row.status.terminal:  # the end of a run disposes of its hooks without an event each
        for hook in hooks.values():
            hook.state = "disposed" if hook.state == "open" else hook.state
    hooks_shown = list(hooks.values()) if keep is None else list(hooks.values())[-keep:]
    return Story(
        row=row,
        attributes=await world.attributes.read(run_id),
        outputs=await world.outputs.of(run_id),
        key=world.partition(run_id).run(run_id),
        steps=shown,
        steps_before=len(ordered) - len(shown),
        waits={} if row.status.terminal else waits,  # the end of a run releases its waits without an event each
        hooks=hooks_shown,
        hooks_before=len(hooks) - len(hooks_shown),
        entries=[entry_of(at, element) for at, element in last],
        entries_before=number - len(last),
    )


def _follow(told: dict[str, StepStory], waits: dict[str, int], event: Event) -> None:
    match event.kind:
        case EventKind.STEP_CREATED:
            told[event.id] = StepStory(id=event.id, name=event.detail)
        case EventKind.STEP_STARTED if event.id in told:
            told[event.id].started_at = told[event.id].started_at or event.at
        case EventKind.STEP_COMPLETED | EventKind.STEP_FAILED if event.id in told:
            told[event.id].ended_at = event.at
        case EventKind.WAIT_CREATED:
            waits[event.id] = due_of(event)
        case EventKind.WAIT_COMPLETED | EventKind.WAIT_CANCELLED:
            waits.pop(event.id, None)


def _follow_hook(hooks: dict[str, HookStory], event: Event) -> None:
    match event.kind:
        case EventKind.HOOK_CREATED:
            hooks[event.id] = HookStory(id=event.id, token=event.detail)
        case EventKind.HOOK_CONFLICT:
            hooks[event.id] = HookStory(id=event.id, state="conflict", holder=event.detail)
        case EventKind.HOOK_RECEIVED if event.id in hooks:
            hooks[event.id].received += 1
        case EventKind.HOOK_DISPOSED if event.id in hooks:
            hooks[event.id].state = "disposed"


def _with_state(step: StepStory, state: Step) -> StepStory:
    step.status, step.attempt = state.status, state.attempt
    step.retry_at = state.retry_at if state.status is Status.PENDING else 0
    return step
