"""Does every command of docs/redis-cli.md work on a real run, and does it show what the page says?"""

from __future__ import annotations

import asyncio
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from consumers.worker import Worker
from redisworld import HookNotFound, Settings, Workflows, World, get_writable, hook, set_attributes, sleep

PAGE = Path(__file__).parents[2] / "docs" / "redis-cli.md"
COMMANDS = re.findall(r"^redis-cli (.+)$", PAGE.read_text(), re.MULTILINE)

wf = Workflows()


@wf.step
async def thumbnail(image: str, width: int) -> str:
    return f"{image}@{width}"


@wf.workflow
async def publish(image: str) -> list[str]:
    thumbs = await asyncio.gather(*(thumbnail(image, w) for w in (64, 256, 1024)))
    await sleep("1h")
    return thumbs


@wf.workflow
async def fulfil(order: str) -> str:
    return str(await hook(str, token=f"order:{order}", metadata={"asks": "sales"}))


@wf.step
async def tell() -> None:
    async with get_writable() as out:
        await out.write(*["Once", "upon", "a", "time", "there", "was", "a", "cat", "."])


@wf.workflow
async def story() -> None:
    await set_attributes(stage="telling")
    await tell()


@pytest.fixture
async def sleeping_run(redis_url: str, raw: Any) -> None:
    """The run of the page, asleep, with one step message left for a queue nobody serves."""
    async with World.connect(settings=Settings(url=redis_url)) as world:
        worker = Worker(world, wf)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await world.start(publish, "cat.png", run_id="publish-cat")
            with anyio.fail_after(20):
                while not await world.connection.commands.zcard("rw:{default:2}:delayed"):  # noqa: ASYNC110
                    await anyio.sleep(0.02)
            worker.stop()


@pytest.fixture
async def waiting_run(redis_url: str) -> str:
    """The run of the page that waits at a hook; the hook's id."""
    async with World.connect(settings=Settings(url=redis_url)) as world:
        worker = Worker(world, wf)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await world.start(fulfil, "42", run_id="fulfil-42")
            with anyio.fail_after(20):
                while True:
                    with suppress(HookNotFound):
                        found = await world.hook("order:42")
                        break
                    await anyio.sleep(0.02)
            worker.stop()
        return found.hook_id


def run(raw: Any, command: str) -> Any:
    words = [word for word in shlex.split(command) if word != "--no-raw"]
    if words[0] == "--scan":
        return sorted(raw.scan_iter(match=words[2]))
    connection = raw.connection_pool.get_connection()  # the reply as redis-cli gets it, no client's parsing
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        raw.connection_pool.release(connection)


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) >= 15


@pytest.mark.anyio
@pytest.mark.usefixtures("sleeping_run", "waiting_run")
async def test_every_command_of_the_page_reads_without_error(raw: Any) -> None:
    before = sorted(raw.scan_iter())
    for command in COMMANDS:
        run(raw, command)
    assert sorted(raw.scan_iter()) == before  # and none of them writes


@pytest.mark.anyio
@pytest.mark.usefixtures("sleeping_run")
async def test_the_row_and_the_log_show_in_clear_what_the_page_says(raw: Any) -> None:
    assert run(raw, COMMANDS[0]) == [b"rw:{default:2}:run:publish-cat"]
    row = raw.hgetall("rw:{default:2}:run:publish-cat")
    assert row[b"status"] == b"running"
    assert row[b"workflow"] == b"publish"
    steps = [value for field, value in row.items() if field.startswith(b"s:s")]
    assert [value.split(b"|")[0] for value in steps] == [b"completed"] * 3
    headers = [element.split(b"\n")[0].decode() for element in raw.lrange("rw:{default:2}:run:publish-cat:log", 0, -1)]
    assert all(re.fullmatch(r"[a-z_]+ \S+ (-|\d+) \d{13}( \S+)?", header) for header in headers)
    assert [header.split()[0] for header in headers][:2] == ["run_created", "run_started"]
    assert headers[-1].startswith("wait_created w4_")


@pytest.mark.anyio
async def test_a_hook_shows_in_the_row_and_at_its_token_what_the_page_says(
    raw: Any, redis_url: str, waiting_run: str
) -> None:
    at = next(number for number, command in enumerate(COMMANDS) if command.startswith("HSCAN"))
    state, held, pointer, life, resumes, releases = (run(raw, command) for command in COMMANDS[at : at + 6])

    hook_id = waiting_run.encode()
    assert state[1] == [b"h:" + hook_id, b"open"]
    assert held == {hook_id: b"order:42"}
    assert pointer == {b"run": b"fulfil-42", b"hook": hook_id}
    assert life == -1
    assert resumes == releases == {}

    async with World.connect(settings=Settings(url=redis_url)) as world:
        await world.resume("order:42", "yes", resume_id="mail-7")
    known = run(raw, COMMANDS[at + 4])[b"mail-7"]
    assert re.fullmatch(rb"\d+\|[0-9a-f]{40}\|order:42", known)


@pytest.mark.anyio
async def test_an_output_stream_and_attributes_show_in_clear_what_the_page_says(raw: Any, redis_url: str) -> None:
    async with World.connect(settings=Settings(url=redis_url)) as world:
        worker = Worker(world, wf)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await (await world.start(story, run_id="story-1")).result(timeout=20)
            worker.stop()
    at = next(number for number, command in enumerate(COMMANDS) if "out:default" in command)
    entries, names, attributes = (run(raw, command) for command in COMMANDS[at : at + 3])

    [step_id] = {fields[fields.index(b"step") + 1].decode() for _, fields in entries}
    assert [fields[fields.index(b"number") + 1] for _, fields in entries] == [b"1", b"2", b"3", b"4", b"5"]
    pairs = names if isinstance(names, dict) else dict(zip(names[::2], names[1::2], strict=True))
    assert {key.decode(): value.decode() for key, value in pairs.items()} == {
        "names": "default",
        "s:default": f"9|{step_id}|1",
        f"w:default:{step_id}": "1|9",
    }
    assert step_id in PAGE.read_text()
    assert attributes == b'{"stage":"telling"}'
