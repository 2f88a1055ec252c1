"""Is docs/streams.md true? Its code runs, its console says what it shows, and each line of its table has a test."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import types
from typing import Any

import anyio
import pytest

from consumers.worker import Worker
from redisworld import Settings, World
from redisworld.cli import main
from tests.integration.cli_process import ROOT, environment

PAGE = (ROOT / "docs" / "streams.md").read_text()
EXAMPLE, *BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PROCESSES, SESSION = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)

OUTPUTS, SCENES = "conformance/test_outputs.py", "scripts/scenes/outputs.py"
TESTED = {
    "the reply to a write is lost": (OUTPUTS, "test_a_chunk_whose_reply_was_lost_is_written_once"),
    "an attempt fails and the step is tried again": (OUTPUTS, "test_what_an_attempt_wrote_that_is_tried_again"),
    "the worker dies": ("chaos/test_outputs.py", "test_a_worker_killed_while_its_step_writes"),
    "a worker that lost its lease, or a timed-out thread, goes on writing": (
        OUTPUTS,
        "test_an_attempt_that_is_not_the_running_one_writes_nothing",
    ),
    "a step closes the stream and is tried again after it": (SCENES, "a_later_attempt_writes_from_the_start"),
    "another step writes after the close": (OUTPUTS, "test_a_closed_stream_takes_no_more_and_names_who_closed_it"),
    "the run has ended": (OUTPUTS, "test_after_the_end_of_the_run_nothing_is_written"),
    "the stream is longer than `output_length`": (OUTPUTS, "test_a_stream_keeps_its_newest_chunks"),
}


def test_each_line_of_the_table_of_repeats_has_a_test() -> None:
    section = PAGE.partition("## What repeats")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    assert [line for line in lines if line not in ("situation", "---")] == list(TESTED)
    for file, name in TESTED.values():
        assert f"def {name}" in (ROOT / "tests" / file).read_text(), name


def test_the_example_on_the_page_is_the_file_it_names() -> None:
    assert (ROOT / "examples" / "story.py").read_text().partition("\n\n")[2] == EXAMPLE


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the example and the other blocks define."""
    module = types.ModuleType("story")
    monkeypatch.setitem(sys.modules, "story", module)
    for block in (EXAMPLE, *BLOCKS):
        assert not eval(compile(block, "docs/streams.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), vars(module))
    return vars(module)


@pytest.mark.anyio
async def test_the_code_of_the_page_runs(redis_url: str, names: dict[str, Any]) -> None:
    async with World.connect(settings=Settings(url=redis_url)) as world, anyio.create_task_group() as tasks:
        names["world"] = world
        worker = Worker(world, names["wf"])
        tasks.start_soon(worker.run)
        told = await world.start(names["story"], "a cat", run_id="told")
        built = await world.start(names["build"], 3, run_id="built")
        packed = await world.start(names["packing"], run_id="packed")
        waiting = await world.start(names["build"], 0, run_id="marked")

        words = [word async for word in told.read(type=str)]
        assert words == ["Once", "upon", "a", "time", "there", "was", "a", "cat", "."]
        assert await told.result(timeout=20) == 9
        assert await told.attributes() == {"prompt": "a cat", "stage": "told"}
        assert await names["last_attempts"]("told") == await names["each_once"]("told") == words
        assert sorted(await names["follow"]("built")) == ["part 0", "part 1", "part 2"]
        assert [line async for line in packed.read("lines")] == ["compressing cat.png"]
        await built.result(timeout=20)
        await waiting.result(timeout=20)
        worker.stop()
        sleeping = await world.start(names["build"], 0, run_id="sleeping")
        assert await names["mark"](sleeping.run_id) == {"order id": "42", "stage": "checked"}
        assert await names["of_order"]("42") == [sleeping.run_id]


def commands(block: str) -> list[tuple[str, str]]:
    """(command, what it prints) of a console block."""
    return re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)


def test_the_console_of_the_page_shows_what_it_says(
    redis_url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDISWORLD_URL", redis_url)
    (worker, _), (script, printed) = commands(PROCESSES)
    options = {"cwd": ROOT / "examples", "env": environment(PYTHONPATH=str(ROOT))}
    words = [sys.executable, "-m", *worker.split(), "--url", redis_url, "--metrics-port", "none"]
    with subprocess.Popen(words, **options) as started:  # type: ignore[call-overload]
        try:
            done = subprocess.run(
                [sys.executable, *script.split()[1:], redis_url], capture_output=True, timeout=60, check=True, **options
            )  # type: ignore[call-overload]
        finally:
            started.kill()
    assert done.stdout.decode() == printed
    [(command, shown)] = commands(SESSION)
    capfd.readouterr()
    assert main(shlex.split(command)[1:]) == 0
    assert capfd.readouterr().out == shown
