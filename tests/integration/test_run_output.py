"""Does ``redisworld run output`` print what steps wrote, and ``run show`` the output streams and attributes?"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import anyio
import pytest

from consumers.worker import Worker
from redisworld import Settings, World
from redisworld.cli import main
from tests.apps import outside_app
from tests.integration.cli_calls import answer
from tests.integration.cli_process import ROOT, environment


@pytest.fixture
def redis(redis_url: str) -> tuple[str, str]:
    """Options of a Redis with two finished runs, ``talk`` and ``stumbling``, and one that nobody works on."""

    async def play() -> None:
        async with World.connect(settings=Settings(url=redis_url)) as world, anyio.create_task_group() as tasks:
            worker = Worker(world, outside_app.wf)
            tasks.start_soon(worker.run)
            for run in (
                await world.start(outside_app.talk, 2, run_id="talk"),
                await world.start(outside_app.stumbling, 1, run_id="stumbling"),
                await world.start(outside_app.attributed, 0, run_id="attributed"),
            ):
                await run.result(timeout=20)
            worker.stop()
        async with World.connect(settings=Settings(url=redis_url)) as world:
            await world.start(outside_app.talk, 2, run_id="open")

    asyncio.run(play())
    return ("--url", redis_url)


def test_texts_are_printed_as_they_are_and_other_values_as_json(
    capsys: pytest.CaptureFixture[str], redis: tuple[str, str]
) -> None:
    assert answer(capsys, "run", "output", "talk", *redis) == '{"text": "t0", "n": 0}\n{"text": "t1", "n": 1}\n'
    assert answer(capsys, "run", "output", "stumbling", "--name", "progress", "--follow", *redis) == "1a\n1b\n2a\n2b\n"


def test_json_tells_each_chunk_and_after_goes_on_from_one(
    capsys: pytest.CaptureFixture[str], redis: tuple[str, str]
) -> None:
    command = ("run", "output", "stumbling", "--name", "progress", "--json", *redis)
    chunks = [json.loads(line) for line in answer(capsys, *command).splitlines()]

    assert [(c["number"], c["attempt"], c["index"], c["value"]) for c in chunks] == [
        *((1, 1, 0, "1a"), (2, 1, 1, "1b"), (3, 2, 0, "2a"), (4, 2, 1, "2b"))
    ]
    assert chunks[0].keys() == {"id", "number", "step_id", "attempt", "index", "value", "at"}
    assert [json.loads(line) for line in answer(capsys, *command, "--after", chunks[2]["id"]).splitlines()] == [
        chunks[3]
    ]


def test_without_follow_an_open_run_is_not_waited_for(
    capsys: pytest.CaptureFixture[str], redis: tuple[str, str]
) -> None:
    assert answer(capsys, "run", "output", "open", *redis) == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--name", "a b"), "output stream 'a b': a name is 1 to 64"),
        (("--after", "7"), "'7' is no id of a chunk"),
        (("--after", "\u0663-\u0661"), "'\u0663-\u0661' is no id of a chunk"),
        (("--after", f"{2**64}-0"), f"'{2**64}-0' is no id of a chunk"),
    ],
)
def test_what_cannot_be_a_name_or_an_id_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], redis: tuple[str, str], arguments: tuple[str, str], complaint: str
) -> None:
    assert main(["run", "output", "talk", *arguments, *redis]) == 2
    assert complaint in capsys.readouterr().err


def test_a_reader_that_goes_away_ends_it_without_a_traceback(redis: tuple[str, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "redisworld", "run", "output", "talk", *redis],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_run_show_tells_attributes_and_output_streams(
    capsys: pytest.CaptureFixture[str], redis: tuple[str, str]
) -> None:
    text = answer(capsys, "run", "show", "attributed", *redis)
    assert "ATTRIBUTE  VALUE\n" in text
    assert "stage      done" in text
    assert '"stage": "done"' in text.partition("NR")[2]  # the events show what was set

    parts = answer(capsys, "run", "show", "stumbling", *redis).split("\n\n")
    assert "OUTPUT    CHUNKS  CLOSED\nprogress  4       yes" in parts

    told = json.loads(answer(capsys, "run", "show", "stumbling", "--json", *redis))
    assert told["outputs"] == [{"name": "progress", "chunks": 4, "closed": True}]
    assert told["attributes"] == {}
