"""Scenes of write_output: what a step adds to an output stream."""

from __future__ import annotations

from tests.scripts.driver import RUN, Consumer
from tests.scripts.scenes.runs import overwrite
from tests.scripts.scenes.scene import Ask, scene
from tests.scripts.test_fences import put_step


async def write(
    a: Consumer,
    token: str,
    name: str = "default",
    *,
    index: int = 0,
    attempt: int = 1,
    step: str = "s1",
    close: bool = False,
    run: str = RUN,
) -> None:
    """One chunk of an attempt; or none and the close."""
    chunks = [] if close else [b"\xa5hello"]
    await a.world.outputs.write(run, name, chunks, step_id=step, attempt=attempt, token=token, index=index, close=close)


async def running(a: Consumer) -> str:
    """A running step; its claim token."""
    return (await put_step(a, "running")).item.token


@scene("write_output", "written")
async def a_step_writes_the_first_chunk(a: Consumer, b: Consumer) -> Ask:
    token = await running(a)
    return lambda: write(a, token)


@scene("write_output", "written")
async def a_step_writes_a_chunk_beside_those_of_another_stream(a: Consumer, b: Consumer) -> Ask:
    token = await running(a)
    await write(a, token)
    await write(a, token, "progress")
    return lambda: write(a, token, "progress", index=1)


@scene("write_output", "written")
async def a_step_closes_the_stream(a: Consumer, b: Consumer) -> Ask:
    token = await running(a)
    await write(a, token)

    async def last_one() -> None:
        await a.world.outputs.write(
            RUN, "default", [b"\x01"], step_id="s1", attempt=1, token=token, index=1, close=True
        )

    return last_one


@scene("write_output", "written")
async def a_later_attempt_writes_from_the_start_to_a_stream_that_an_earlier_one_closed(a: Consumer, b: Consumer) -> Ask:
    first = await put_step(a, "running")
    await write(a, first.item.token)
    await write(a, first.item.token, index=1, close=True)
    again = await a.claim(first.delivery)
    return lambda: write(a, again.item.token, attempt=2)


@scene("write_output", "written")
async def a_step_of_another_run_writes_a_chunk(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    return lambda: write(a, "", step="s1_of_another")


@scene("write_output", "closed s1")
async def a_step_writes_to_a_stream_that_it_has_closed(a: Consumer, b: Consumer) -> Ask:
    token = await running(a)
    await write(a, token, close=True)
    return lambda: write(a, token)


@scene("write_output", "stale")
async def an_attempt_writes_whose_step_has_gone_on_without_it(a: Consumer, b: Consumer) -> Ask:
    first = await put_step(a, "running")
    await a.claim(first.delivery)
    return lambda: write(a, first.item.token)


@scene("write_output", "stale")
async def an_earlier_attempt_of_another_runs_step_writes(a: Consumer, b: Consumer) -> Ask:
    await a.begin()
    await write(a, "", step="s1_of_another", attempt=2)
    return lambda: write(a, "", step="s1_of_another", attempt=1)


@scene("write_output", "gone completed")
async def a_step_writes_after_the_end_of_its_run(a: Consumer, b: Consumer) -> Ask:
    token = await running(a)
    await a.finish()
    return lambda: write(a, token)


@scene("write_output", "invalid")
async def a_step_writes_to_one_stream_too_many(a: Consumer, b: Consumer) -> Ask:
    token = await running(a)
    for number in range(64):
        await write(a, token, f"out{number}")
    return lambda: write(a, token, "one-more")


@scene("write_output", "not_found")
async def a_step_writes_to_a_run_that_does_not_exist(a: Consumer, b: Consumer) -> Ask:
    return lambda: write(a, "")


@scene("write_output", "broken")
async def a_step_writes_where_another_program_has_overwritten_the_stream(a: Consumer, b: Consumer) -> Ask:
    token = await running(a)
    await overwrite(a, a.partition.output(RUN, "default"))
    return lambda: write(a, token)
