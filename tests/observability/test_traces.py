"""Is a run one story, whoever worked on it? Its spans, from real workers and from a tracer in memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from consumers.attempts import Attempts
from consumers.traced import parts
from consumers.worker import Worker
from consumers.workflows import Orchestrator
from redisworld import World
from redisworld.errors import InvalidInput
from redisworld.spawn import PrivateRedis, private_redis
from tests.chaos.probing import cli_worker
from tests.chaos.processes import ROOT, eventually, running

pytest.importorskip("opentelemetry.sdk", reason="traces need the extra otel, and their tests the SDK (extra test)")

from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redisworld.tracing import Tracing, tracing
from tests.apps import traced_app

pytestmark = pytest.mark.anyio

APP = "tests.apps.traced_app:wf"
PAGE = ROOT / "docs/tracing.md"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateRedis]:
    with private_redis(allow_wheel=True) as server:
        monkeypatch.setenv("CHAOS_REDIS", server.url)
        yield server


class Memory:
    """Spans of this process."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("a test")

    def named(self, name: str) -> list[ReadableSpan]:
        """Spans whose name begins so, in the order of their beginnings."""
        found = [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]
        return sorted(found, key=lambda span: span.start_time or 0)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@contextmanager
def starter(memory: Memory) -> Iterator[ReadableSpan]:
    """The span of a web request that starts a run, with baggage."""
    token = context.attach(baggage.set_baggage("tenant", "blue"))
    with memory.tracer.start_as_current_span("POST /orders") as span:
        assert isinstance(span, ReadableSpan)
        yield span
    context.detach(token)


def spans_in(path: Path) -> list[dict[str, Any]]:
    """What workers have told, in the order of their beginnings."""
    spans = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return sorted(spans, key=lambda span: span["start_time"])


async def test_one_run_is_one_trace_through_two_workers_a_retry_and_a_crash(
    server: PrivateRedis, tmp_path: Path, memory: Memory
) -> None:
    told = tmp_path / "spans"
    env = {"TRACED_TO": str(told)}
    with running(server.url, tmp_path) as workers, tracing(memory.provider):
        options = ("--lease", "1s", "--log-format", "json")
        both = [cli_worker(workers, APP, *options, "--queue", queue, env=env) for queue in ("left", "right")]
        async with World.connect(server.url) as world:
            with starter(memory) as request:
                run = await world.start(traced_app.travels)
            await eventually(lambda: any(worker.returncode is not None for worker in both), what="one is killed")
            assert await run.result(timeout=30) == sorted(worker.pid for worker in both), "both took part"
            ended = [w.returncode for w in both if w.returncode is not None]
            assert ended == [-9]
            await eventually(lambda: any(span["attributes"].get("workflow.status") for span in spans_in(told)))

    [start] = memory.named("workflow.start")
    assert start.context is not None
    assert start.parent == request.context
    assert request.context is not None
    spans = spans_in(told)
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{request.context.trace_id:032x}"}
    ids = {span["context"]["span_id"]: span for span in spans}
    parents = [span for span in spans if span["parent_id"] not in ids]
    here = f"0x{start.context.span_id:016x}"
    # what the killed worker was in the middle of is told by nobody: its children know their parent all the same
    replays = [span for span in parents if span["name"] == "workflow.replay travels"]
    assert {span["parent_id"] for span in replays} == {here}
    lost = {span["parent_id"] for span in parents} - {here}
    assert len(lost) <= 1

    def steps(name: str) -> list[tuple[int, str, str, str]]:
        found = [span["attributes"] for span in spans if span["name"] == f"step.execute {name}"]
        return [
            (
                a["step.attempt"],
                a["step.outcome"],
                a.get("step.cause", ""),
                a.get("workflow.step.dispatch_prologue", ""),
            )
            for a in found
        ]

    assert {outcome for _, outcome, *_ in steps("left") + steps("right")} == {"completed"}
    assert steps("second_time") == [(1, "retrying", "error", ""), (2, "completed", "", "run_context")]
    assert [attempt for attempt, *_ in steps("kills_once")] == [2], "the first ended with its process"
    for name in ("meeting left", "meeting right", "in a thread"):
        for span in (span for span in spans if span["name"] == name):
            assert ids[span["parent_id"]]["name"].startswith("step.execute ")
    queued = [s for s in spans if s["name"] in ("step.execute left", "step.execute right") and is_queued(s)]
    dispatches = {span["context"]["span_id"]: ids[span["parent_id"]] for span in queued}
    for dispatch in dispatches.values():
        assert dispatch["name"] == "workflow.dispatch travels"
        assert dispatch["attributes"]["workflow.pass.steps"] == 2
    elsewhere = [s for s in queued if s["resource"] != dispatches[s["context"]["span_id"]]["resource"]]
    assert elsewhere, "one ran in another process than the one that dispatched it"
    failed = next(s for s in spans if s["name"] == "step.execute second_time")
    assert failed["status"] == {"status_code": "ERROR", "description": "ValueError: not at the first time"}
    assert [event["name"] for event in failed["events"]] == ["exception"]
    logged = [json.loads(line) for worker in both for line in worker.log().splitlines()]
    [retrying] = [line for line in logged if line["message"] == "step retrying"]
    ids_of_failed = (failed["context"]["trace_id"], failed["context"]["span_id"])
    assert (f"0x{retrying['trace_id']}", f"0x{retrying['span_id']}") == ids_of_failed


def test_the_page_has_the_spans_and_attributes_of_the_source_and_what_a_starter_has_to_say(
    server: PrivateRedis, tmp_path: Path
) -> None:
    page, source = PAGE.read_text(), (ROOT / "redisworld/tracing.py").read_text()
    own = {"workflow.name", "workflow.run.id"}
    table = {word for row in re.findall(r"^\| `.*", page, re.MULTILINE) for word in re.findall(r"`([\w. ]+)`", row)}
    words = table | own
    assert own <= set(re.findall(r"`([\w.]+)`", page))
    spans = {f"{name} NAME" for name in re.findall(r'f"((?:workflow|step)\.\w+) \{', source)}
    assert words == spans | set(re.findall(r'"((?:workflow|step)\.[\w.]+)"', source))

    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "app.py").write_text(
        "from redisworld import Workflows\nwf = Workflows()\n\n@wf.workflow\nasync def publish(image: str) -> str:\n"
        "    return image\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "REDISWORLD_URL": server.url}
    with running(server.url, tmp_path) as workers:
        cli_worker(workers, "app:wf", env=environment)
        answer = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    assert answer.stdout == "cat.png\n", answer.stderr


def is_queued(span: dict[str, Any]) -> bool:
    """Whether the step came as a message."""
    return bool(span["attributes"].get("workflow.step.dispatch_prologue") == "run_context")


async def finished(world: World, run_id: str) -> None:
    """The run ends with a worker of this process."""
    worker = Worker(world, traced_app.wf)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await world.run(run_id).result(timeout=20)
        worker.stop()


@pytest.mark.parametrize(
    "carrier",
    [
        {"traceparent": "00-zz"},
        {
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate": "=,=",
            "baggage": "%;=",
        },
        {"traceparent": "\x00\uffff", "": ""},
    ],
)
async def test_a_malformed_carrier_costs_its_trace_and_nothing_else(
    server: PrivateRedis, memory: Memory, monkeypatch: pytest.MonkeyPatch, carrier: dict[str, str]
) -> None:
    with tracing(memory.provider):
        async with World.connect(server.url) as world:
            arguments = traced_app.stays.signature.encode_call((), {}, max_bytes=100)
            await world.create_run("r", "stays", arguments, trace_carrier=carrier)
            await finished(world, "r")

    assert memory.named("workflow.replay stays")
    assert len(memory.named("step.execute")) == 4


async def test_what_comes_long_after_the_start_is_a_trace_of_its_own_linked_to_it(
    server: PrivateRedis, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tracing(memory.provider, together="3s"):
        async with World.connect(server.url) as world:
            with starter(memory):
                await world.start(traced_app.stays, run_id="r")
            await anyio.sleep(3.1)  # the limit is one of wall time
            await finished(world, "r")

    [start] = memory.named("workflow.start")
    replays = memory.named("workflow.replay")
    assert start.context is not None
    for replay in replays:
        assert replay.parent is None
        assert replay.context is not None
        assert replay.context.trace_id != start.context.trace_id
        assert [link.context.span_id for link in replay.links] == [start.context.span_id]
    for queued in (span for span in memory.named("step.execute") if span.kind is trace.SpanKind.CONSUMER):
        assert queued.parent is not None, "it came soon after its dispatch"


async def test_a_process_whose_clock_is_behind_that_of_redis_leaves_its_runs_in_the_trace_of_their_start(
    server: PrivateRedis, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages say by the clock of Redis when they were asked for: skew looked like waiting."""
    with tracing(memory.provider):
        async with World.connect(server.url) as world:
            world.clock = lambda: time.time_ns() // 1_000_000 + 360_000
            with starter(memory):
                await world.start(traced_app.stays, run_id="r")
            await finished(world, "r")

    [start] = memory.named("workflow.start")
    assert start.context is not None
    assert {replay.context.trace_id for replay in memory.named("workflow.replay")} == {start.context.trace_id}


async def test_the_body_of_a_step_has_the_baggage_of_the_starter(
    server: PrivateRedis, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    class Watching:
        def start_as_current_span(self, name: str) -> Any:
            found.append((name, baggage.get_baggage("tenant")))
            return memory.tracer.start_as_current_span(name)

    monkeypatch.setattr(traced_app, "mine", Watching())
    with tracing(memory.provider):
        async with World.connect(server.url) as world:
            with starter(memory):
                await world.start(traced_app.stays, run_id="r")
            await finished(world, "r")

    assert sorted(set(found)) == [("in a thread", "blue"), ("meeting left", "blue"), ("meeting right", "blue")]


async def test_a_worker_that_does_not_trace_is_made_of_the_plain_parts_and_hands_carriers_on(
    server: PrivateRedis, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parts(None) == (Attempts, Orchestrator)
    async with World.connect(server.url) as world:
        with tracing(memory.provider), starter(memory):
            await world.start(traced_app.stays, run_id="r")
        await finished(world, "r")
        created = (await world.log("r"))[0]

    [start] = memory.named("workflow.start")
    assert start.context is not None
    assert f"{start.context.trace_id:032x}".encode() in created
    assert not memory.named("step.execute")


def without_opentelemetry(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where it is not installed."""
    code = f"import sys; sys.modules['opentelemetry'] = None\n{code}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_without_the_extra_everything_else_works_and_asking_for_traces_says_what_is_missing() -> None:
    code = "import redisworld, consumers.worker; from redisworld.cli import traces"

    plain = without_opentelemetry(f"{code}\nwith traces.traced(None): print('on')")
    asked = without_opentelemetry(f"{code}\ntraces.traced(True)")

    assert (plain.returncode, plain.stdout) == (0, "on\n"), plain.stderr
    assert "InvalidInput: --tracing needs the extra: pip install 'redisworld[otel]'" in asked.stderr


def test_tracing_twice_in_a_process_is_refused(memory: Memory) -> None:
    with tracing(memory.provider), pytest.raises(InvalidInput, match="on already"), tracing(memory.provider):
        pass


def test_asked_to_trace_without_a_provider_a_worker_says_what_to_do(server: PrivateRedis) -> None:
    command = [sys.executable, "-m", "redisworld", "worker", "tests.apps.shop_app", "--url", server.url, "--tracing"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert answer.returncode == 2
    assert "opentelemetry-instrument" in answer.stderr


def test_a_tracer_has_all_that_the_seam_asks_for(memory: Memory) -> None:
    tracer = Tracing(memory.provider)

    assert tracer.ids() == {}
    assert tracer.carrier() is None
    with memory.tracer.start_as_current_span("here") as here:
        found = here.get_span_context()
        assert tracer.ids() == {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}
