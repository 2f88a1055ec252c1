"""Does every event, in every state of its subject and every status of the run, do what the transition table says?"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from redisworld.events import EventKind
from redisworld.fences import FENCES, Cell
from redisworld.runs import Status
from tests.conformance.stage import Stage
from tests.scripts.driver import RUN, consumers

pytestmark = pytest.mark.anyio

CELLS = [(kind, status, state) for kind, fence in FENCES.items() for status in Status for state in fence.rows]
WRITING = [
    (kind, state)
    for kind, fence in FENCES.items()
    for state, row in fence.rows.items()
    if row.cell(Status.PENDING).writes
]


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    async with consumers(redis_url) as (mine, other):
        yield Stage(mine, other)


async def set_up(stage: Stage, kind: EventKind, status: Status, state: str) -> None:
    """A run of this status whose step, wait or hook is in this state."""
    await stage.open(status)
    await stage.enter(kind, state)
    await stage.end(status)


@pytest.mark.parametrize(("kind", "status", "state"), CELLS)
async def test_an_event_answers_and_writes_what_the_table_says(
    stage: Stage, kind: EventKind, status: Status, state: str
) -> None:
    # given
    await set_up(stage, kind, status, state)
    mine, cell = stage.mine, FENCES[kind].rows[state].cell(status)
    row, log, before = await mine.row(), await mine.log(), await stage.state_of(kind)
    written = await mine.written()

    # when
    answer = await stage.fire(kind, state)

    # then word, log and state are the table's
    new = (await mine.log())[len(log) :]
    assert answer == cell.answer
    assert tuple(event.kind for event in new) == cell.writes
    assert await stage.state_of(kind) == (cell.becomes or before)
    if not cell.writes:
        assert await mine.written() == written
        return

    # and a body that can see the event is called back, an open run alone
    after = await mine.row()
    ended = status.terminal or after.status.terminal
    seen = not ended and any(FENCES[event].observed for event in cell.writes if event in FENCES)
    assert after.woken_at == (after.log_length if seen else 0 if after.status.terminal else row.woken_at)
    assert (after.wake != "") == (not ended)  # the first message of the run is responsible all the time


@pytest.mark.parametrize("kind", FENCES)
async def test_an_event_of_a_run_that_does_not_exist_creates_no_key(stage: Stage, kind: EventKind) -> None:
    fence, state = FENCES[kind], next(iter(FENCES[kind].rows))
    await stage.enter(kind, state if state == "missing" else "")
    before = set(await stage.mine.redis.keys("*"))

    answer = await stage.fire(kind, state)

    new = {key.decode() for key in set(await stage.mine.redis.keys("*")) - before if not key.endswith(b":stats")}
    assert answer == fence.absent.answer
    assert bool(new) == bool(fence.absent.writes)


@pytest.mark.parametrize(("kind", "state"), [(kind, state) for kind, state in WRITING if FENCES[kind].bounded])
async def test_a_log_at_its_ceiling_takes_no_more_and_its_run_ends(stage: Stage, kind: EventKind, state: str) -> None:
    await set_up(stage, kind, Status.RUNNING, state)
    mine = stage.mine
    length = (await mine.row()).log_length
    mine.world.ceiling = (length, mine.world.settings.retention_ms)

    assert await stage.fire(kind, state) == "full"

    row = await mine.row()
    assert (row.status, row.code, row.log_length) == (Status.FAILED, "MAX_EVENTS_EXCEEDED", length + 1)
    assert (await mine.log())[-1].kind == EventKind.RUN_FAILED
    assert await stage.fire(kind, state) in ("gone", "skipped")


@pytest.mark.parametrize(("kind", "state"), [(kind, state) for kind, state in WRITING if not FENCES[kind].bounded])
async def test_what_is_in_flight_is_recorded_at_the_ceiling(stage: Stage, kind: EventKind, state: str) -> None:
    status = Status.PENDING if kind is EventKind.RUN_STARTED else Status.RUNNING
    await set_up(stage, kind, status, state)
    stage.mine.world.ceiling = (1, stage.mine.world.settings.retention_ms)

    assert await stage.fire(kind, state) == FENCES[kind].rows[state].cell(status).answer


async def test_events_of_one_key_shape_meet_no_run_of_another_name(stage: Stage) -> None:
    """A run whose id is a prefix of another's shares nothing with it."""
    await stage.open(Status.RUNNING)
    await stage.mine.start(f"{RUN}0")
    before = await stage.mine.written(f"{RUN}0")

    await stage.end(Status.FAILED)

    assert await stage.mine.written(f"{RUN}0") == before


def test_the_matrix_is_whole() -> None:
    """As many cells as kinds have states and runs have statuses; a state without a scene fails above."""
    assert len(CELLS) == len(Status) * sum(len(fence.rows) for fence in FENCES.values())
    assert all(isinstance(FENCES[kind].rows[state].cell(status), Cell) for kind, status, state in CELLS)
