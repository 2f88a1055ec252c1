"""Is docs/hooks.md true? Its code runs, its console says what it shows, and each line of its table has a test."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
import redis

from consumers.worker import Worker
from redisworld import HookNotFound, Settings, World
from redisworld.cli import main
from tests.integration.cli_process import ROOT, environment, eventually

PAGE = (ROOT / "docs" / "hooks.md").read_text()
EXAMPLE, *BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PROCESSES, SESSION = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)

CONFORMANCE, CHAOS, STORE = "conformance/test_hooks.py", "chaos/test_hooks.py", "scripts/test_hooks.py"
TESTED = {
    "the hook is open": (CONFORMANCE, "five_hundred_payloads_arrive_in_order_each_once"),
    "the hook is just being created": (STORE, "a_resume_that_comes_while_a_token_changes_hooks_goes_to_the_new_one"),
    "nobody awaits the hook yet": (CONFORMANCE, "what_comes_before_the_body_asks_again_is_kept"),
    "the payload does not fit the type": (CONFORMANCE, "a_payload_that_does_not_fit_is_the_bodys_to_catch"),
    "more payloads than the body takes": (CONFORMANCE, "what_the_body_has_not_taken_when_it_disposes_of_the_hook"),
    "a payload and a timer race": (CHAOS, "of_a_payload_and_a_timer_that_race_the_body_sees_the_one_the_log_has_first"),
    "no hook has the token": (CONFORMANCE, "an_unknown_token_is_not_found_and_stores_nothing"),
    "the hook is disposed of and its run goes on": (CONFORMANCE, "a_hook_that_is_disposed_of_takes_no_more"),
    "the run has ended": (CONFORMANCE, "a_resume_after_the_end_of_the_run_says_that_it_has_ended"),
    "another run has claimed the token since": (CONFORMANCE, "a_token_goes_to_the_next_run_when_its_run_completes"),
    "the same resume id and payload again": (CONFORMANCE, "a_resume_id_counts_once_and_its_repeats_succeed"),
    "the same resume id with another payload": (CONFORMANCE, "a_resume_id_with_another_payload_is_refused"),
    "the reply is lost, or the caller dies": (CHAOS, "a_resume_whose_reply_was_lost_is_stored_once"),
    "another run holds the token": (CONFORMANCE, "a_token_that_another_run_holds_is_a_conflict"),
    "a living hook of the same run holds the token": (CONFORMANCE, "a_second_living_hook_of_the_same_run_conflicts"),
    "a worker dies while it makes the hook": (CHAOS, "a_worker_killed_before_or_after_any_call_of_the_passes"),
}


def test_each_line_of_the_table_has_a_test() -> None:
    lines = re.findall(r"^\| ([^|]+) \|", PAGE, re.MULTILINE)
    assert [line for line in lines if line not in ("situation", "---")] == list(TESTED)
    for file, name in TESTED.values():
        assert f"def test_{name}" in (ROOT / "tests" / file).read_text(), name


def test_the_example_on_the_page_is_the_file_it_names() -> None:
    assert (ROOT / "examples" / "approval.py").read_text().partition("\n\n")[2] == EXAMPLE


# -- the code


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the example defines; the other blocks go on from there."""
    module = types.ModuleType("approval")
    monkeypatch.setitem(sys.modules, "approval", module)
    exec(compile(EXAMPLE, "docs/hooks.md", "exec"), vars(module))
    return vars(module)


async def run_block(block: str, names: dict[str, Any]) -> None:
    code = compile(block, "docs/hooks.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if (waits := eval(code, names)) is not None:
        await waits


async def open_hook(world: World, token: str) -> None:
    with anyio.fail_after(20):
        while True:
            try:
                await world.hook(token)
                return
            except HookNotFound:
                await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_the_code_of_the_page_runs(
    redis_url: str, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    bodies = [block for block in BLOCKS if "@wf.workflow" in block]
    calls = [block for block in BLOCKS if "@wf.workflow" not in block]
    assert (len(bodies), len(calls)) == (2, 3)
    for block in bodies:
        await run_block(block, names)
    async with World.connect(settings=Settings(url=redis_url)) as world, anyio.create_task_group() as tasks:
        names["world"] = world
        worker = Worker(world, names["wf"])
        tasks.start_soon(worker.run)
        await world.start(names["fulfil"], "42", run_id="fulfil-42")
        chat = await world.start(names["chat"], "7", run_id="chat-7")
        tidy = await world.start(names["tidy"], "7", run_id="tidy-7")
        for token in ("order:42", "chat:7"):
            await open_hook(world, token)

        for block in calls:
            await run_block(block, names)
        await world.resume("chat:7", "bye")

        assert await chat.result(timeout=20) == 1  # the resume id counted once
        assert await tidy.result(timeout=20) == "tidied"
        worker.stop()
    assert capsys.readouterr().out == "order 42 shipped, approved by kim\nchat-7 1 None\n"


# -- the console


@contextmanager
def process(command: str, url: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    words = command.split()
    words = [sys.executable, *(["-m", *words] if words[0] == "redisworld" else words[1:]), *url]
    with subprocess.Popen(
        words, cwd=ROOT / "examples", env=environment(PYTHONPATH=str(ROOT)), stdout=subprocess.PIPE
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def commands(block: str) -> list[tuple[str, str]]:
    """(command, what it prints) of a console block."""
    return re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)


def test_the_console_of_the_page_shows_what_it_says(
    redis_url: str, raw: redis.Redis, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDISWORLD_URL", redis_url)
    (worker, _), (script, _) = commands(PROCESSES)
    with process(f"{worker} --metrics-port none", ["--url", redis_url]), process(script, [redis_url]) as run:
        eventually(lambda: main(["hook", "show", "order:42"]) == 0)
        capfd.readouterr()
        for command, shown in commands(SESSION):
            assert main(shlex.split(command)[1:]) == 0
            pattern = re.escape(shown).replace("…", ".+")
            assert re.fullmatch(pattern, capfd.readouterr().out), command
        assert run.stdout is not None
        assert run.stdout.read() == b"order 42 shipped, approved by kim\n"
