"""Has the log one line for each fact, at a level that respects people, with fields that mean the same everywhere?"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import redis

from redisworld import World, messages
from redisworld.cli import logs
from redisworld.errors import RunFailed
from redisworld.facts import fact
from redisworld.messages import RunContext, StepMessage
from redisworld.spawn import private_redis
from tests.apps import seen_app
from tests.chaos.probing import cli_worker
from tests.chaos.processes import ROOT, WorkerProcess, eventually, running
from tests.observability.facts import Line, lines

pytestmark = pytest.mark.anyio

APP = "tests.apps.seen_app:wf"
PAGE = ROOT / "docs/logs.md"
OWN_KEYS = {"time", "level", "logger", "message", "exc", "trace_id", "span_id"}
"""Of every JSON line; no field of a fact is called so."""


def documented() -> dict[str, Line]:
    rows = re.findall(r"^\| ([^|`]+?) \| ([^|]*) \| ([^|]*) \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    words = [(what, *(frozenset(re.findall(r"`(\w+)`", cell)) for cell in cells)) for what, *cells in rows]
    found = {what: Line(levels, fields) for what, levels, fields in words if levels}
    assert len(found) == len([row for row in words if row[1]]), "a line is there twice"
    return found


def test_every_line_of_the_source_is_on_the_page_with_its_levels_and_fields_and_no_other_is() -> None:
    in_source = {what: Line(line.levels, line.fields - {"more"}) for what, line in lines().items()}

    assert in_source == documented()
    assert not OWN_KEYS & frozenset().union(*(line.fields for line in in_source.values()))


def test_everything_that_is_logged_is_a_fact() -> None:
    for package in ("redisworld", "consumers"):
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "facts.py":
                said = re.findall(
                    r"\blog\w*\.(?:debug|info|warning|error|exception|critical|log)\(.*", path.read_text()
                )
                assert said == [], path


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("two words", '"two words"'),
        ('with "quotes"', '"with \\"quotes\\""'),
        ("two\nlines", '"two\\nlines"'),
        ("", '""'),
        ("größer", "größer"),
        (7, "7"),
        ("a=b", "a=b"),
    ],
)
def test_a_field_is_one_word_or_in_quotes(caplog: pytest.LogCaptureFixture, value: object, text: str) -> None:
    with caplog.at_level(logging.INFO, "redisworld"):
        fact(logging.INFO, "it was so", value=value, unknown=None)

    assert caplog.messages == [f"it was so: value={text}"]


def test_a_json_line_has_the_fields_of_a_fact_as_keys_and_of_any_other_log_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with logs.to_stderr("info", "json"):
        fact(logging.WARNING, "step failed", {"run": "r"}, trace=ValueError("no"), attempt=2, error="no")
        fact(logging.DEBUG, "lease lost", run="r")
        logging.getLogger("app").warning("from %s", "the application")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert "ValueError: no" in first.pop("exc")
    assert first == {
        "level": "warning", "logger": "redisworld", "message": "step failed", "run": "r", "attempt": 2, "error": "no"
    }  # fmt: skip
    assert (second["logger"], second["message"]) == ("app", "from the application")


def told(worker: WorkerProcess) -> list[dict[str, Any]]:
    """The lines of a worker that writes JSON."""
    return [json.loads(line) for line in worker.log().splitlines()]


async def test_real_workers_write_what_the_page_says_over_work_of_every_kind(tmp_path: Path) -> None:
    with private_redis(allow_wheel=True) as server, running(server.url, tmp_path) as workers:
        options = ("--lease", "1s", "--grace", "200ms", "--log-level", "debug")
        one = cli_worker(workers, APP, *options, "--log-format", "json")
        two = cli_worker(workers, APP, *options)
        with redis.Redis.from_url(server.url) as raw:
            async with World.connect(server.url) as world:
                await mix(world, raw, [one, two])
                for worker in (one, two):
                    if worker.returncode is None:
                        worker.stop()
                assert {one.wait(20), two.wait(20)} == {0, -signal.SIGKILL}
            survivor = two if one.returncode else one
            # the killed one was the one that held the gate: the other reclaims, drains, and has a body to hand back
            assert "reclaimed" in survivor.log()

        rows = documented() | {f"cannot read {loop}": documented()["cannot read …"] for loop in ("steps", "workflows")}
        found = told(one) + [parsed(line) for line in two.log().splitlines()]
        found = [line for line in found if line["message"] != "Using selector: EpollSelector"]  # asyncio's own
    seen = {line["message"] for line in found}
    for line in found:
        row = rows[line["message"]]
        assert line["level"] in row.levels, line
        assert set(line) - OWN_KEYS <= row.fields | {"more"}, line
        assert not row.fields & {"run"} or line.get("run") or line["message"] == "dead letter", line
    assert seen >= {
        "worker", "worker started", "run completed", "run failed", "step retrying", "step failed", "dead letter",
        "reclaimed", "step not started", "draining", "grace is over, handing back what runs", "worker stopped",
    }  # fmt: skip
    loud = {line["message"] for line in found if line["level"] in ("warning", "error")}
    assert loud <= {"run failed", "step failed", "dead letter", "grace is over, handing back what runs"}


def parsed(line: str) -> dict[str, Any]:
    """A line of text as the JSON object that it would be."""
    found = re.fullmatch(r"\S+Z (debug|info|warning|error) +(.*)", line)
    assert found is not None, line
    level, text = found[1], found[2]
    fields = re.findall(r'(?:(?<=: )|(?<= ))(\w+)=("(?:[^"\\]|\\.)*"|\S+)(?= |$)', text)
    said = " ".join(f"{name}={value}" for name, value in fields)
    what = text.removesuffix(f": {said}") if said else text
    assert what != text or not fields, f"not a fact and its fields: {line}"
    return {"level": level, "message": what} | {n: json.loads(v) if v[0] == '"' else v for n, v in fields}


async def mix(world: World, raw: redis.Redis, workers: list[WorkerProcess]) -> None:
    """Completed, retried, failed; a dead letter, a message of a finished run, a killed worker, a body at the end."""
    await (await world.start(seen_app.fans_out, 3, run_id="fans")).result(timeout=20)
    await (await world.start(seen_app.retries, run_id="retries")).result(timeout=20)
    with pytest.raises(RunFailed):
        await (await world.start(seen_app.fails, run_id="fails")).result(timeout=20)
    raw.xadd(world.partitions[0].steps(), {"kind": "step", "msg": b"\xc1"})
    await eventually(lambda: sum(raw.xlen(partition.dead) for partition in world.partitions))
    late = StepMessage(
        message_id="s", run_id="fans", workflow_name="fans_out", step_id="s", step_name="leaf",
        run_context=RunContext("", 1), step_input=b"\x92\x90\x80",
    )  # fmt: skip
    raw.xadd(
        world.partition("fans").steps(),
        {"kind": "step", "spec": "1", "run": "fans", "step": "s", "name": "leaf", "msg": messages.encode(late)},
    )
    await eventually(lambda: any("step not started" in worker.log() for worker in workers))
    run = await world.start(seen_app.waits, "probe:gate", run_id="gated")
    await eventually(lambda: raw.llen("probe:gate:held"))
    os.kill(int(raw.lindex("probe:gate:held", 0)), signal.SIGKILL)
    await eventually(lambda: raw.llen("probe:gate:held") == 2, what="another worker has it")
    raw.set("probe:gate", 1)
    await run.result(timeout=20)
    await world.start(seen_app.waits, "probe:other", run_id="open")
    await eventually(lambda: raw.llen("probe:other:held"))
