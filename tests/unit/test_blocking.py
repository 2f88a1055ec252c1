"""Is what reaches out of a body refused, by name and line, and left alone everywhere else?"""

# ruff: noqa: ASYNC240, ASYNC221  # bodies that do what a body must not
from __future__ import annotations

import builtins
import contextlib
import importlib
import inspect
import json
import logging
import logging.handlers
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from redisworld.replay import install
from redisworld.replay.blocking import EVENTS, audit
from redisworld.workflows import Workflows
from tests.unit import early
from tests.unit.replay_driver import START, Driver

install()

wf = Workflows()
log = logging.getLogger("tests.blocking")


@wf.workflow
async def reads(path: str) -> str:
    return Path(path).read_text()


@wf.workflow
async def through_a_helper() -> None:
    early.nap()


@wf.workflow
async def catches() -> str:
    try:
        subprocess.run(["true"], check=True)
    except Exception as error:
        return type(error).__name__
    return "not refused"


@wf.workflow
async def asks_for_the_temporary_directory() -> list[str]:
    refused = []
    for ask in (tempfile.gettempdir, tempfile.mktemp, tempfile.TemporaryDirectory):
        try:
            ask()
        except Exception as error:
            refused.append(type(error).__name__)
    return refused


@wf.workflow
async def spawns() -> None:
    multiprocessing.get_context("spawn").Process(target=print).start()


@wf.workflow
async def cleans_up(path: str) -> None:
    try:
        await wait()
    finally:
        Path(path).write_text("from a body that was dropped")


@wf.step
async def wait() -> None:
    pass


@wf.workflow
async def imports(name: str) -> list[str]:
    module = importlib.import_module(name)
    return [module.__name__, repr(random.random()), str(uuid.uuid4()), repr(time.time())]


@wf.workflow
async def does_something() -> float:
    will_do.pop()()
    return random.random()


will_do: list[Callable[[], object]] = []


@wf.workflow
async def sets_a_handler() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


@wf.workflow
async def logs() -> None:
    log.warning("from the body")
    print("from the body")
    print("from the body", file=sys.stderr)


@wf.workflow
async def releases_the_other() -> None:
    barrier.wait()
    barrier.wait()


barrier = threading.Barrier(2, timeout=10)


@wf.workflow
async def is_interrupted() -> float:
    spins.set()
    while not heard:
        pass
    return random.random()


spins = threading.Event()
heard: list[float] = []


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return start + next(number for number, line in enumerate(lines) if text in line)


def test_the_error_names_the_call_and_the_line_of_the_body() -> None:
    error = Driver(reads, "/etc/hosts").run()

    assert error.type == "redisworld.errors.ForbiddenInWorkflow"
    assert error.message == (
        "open('/etc/hosts') in a workflow body cannot be replayed: move it into a step "
        f"({__file__}:{line_of(reads.func, 'read_text')})"
    )


def test_the_error_names_the_line_of_a_helper() -> None:
    error = Driver(through_a_helper).run()

    assert error.message.startswith("time.sleep() in a workflow body cannot be replayed: use redisworld.sleep()")
    assert error.message.endswith(f"({early.__file__}:{line_of(early.nap, 'sleep(0.001)')})")


def test_a_body_may_catch_the_refusal() -> None:
    assert Driver(catches).run() == "ForbiddenInWorkflow"


def test_the_clean_up_of_a_dropped_body_reaches_nothing_either(tmp_path: Path) -> None:
    driver = Driver(cleans_up, str(tmp_path / "file"))
    driver.instance.close()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["redis", "asyncio", "ssl", "http.client", "decimal", "zoneinfo", "hypothesis", "pydantic", "uuid", "anyio"]
)
def test_ordinary_libraries_are_imported_after_the_guard(name: str) -> None:
    program = f"from redisworld.replay import install\ninstall()\nimport {name}\n"
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"PYTHONPATH": str(root())})


def root() -> Path:
    return Path(__file__).parents[2]


def test_an_import_in_a_body_works_and_takes_nothing_from_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "greedy_library.py").write_text(
        "import random, socket, threading, time, uuid, pathlib\n"
        "drawn = [random.random(), random.Random().random(), uuid.uuid4(), random.gauss(0, 1)]\n"
        "at = time.time()\n"
        "socket.socket().close()\n"
        "threading.Thread(target=print, args=('', )).start()\n"
        "pathlib.Path(__file__).read_text()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before = time.time()
    first = Driver(imports, "greedy_library").run()
    again = Driver(imports, "greedy_library").run()

    assert first == again
    assert before <= sys.modules["greedy_library"].at
    assert first[-1] == repr(START / 1_000)


@pytest.mark.parametrize("module", [json, pytest], ids=("standard library", "installed"))
def test_what_a_package_brings_along_can_be_read_at_any_time(module: ModuleType) -> None:
    # It is read on first use and kept, so a refusal would depend on what this process has done before.
    assert Driver(reads, module.__file__).run() == Path(str(module.__file__)).read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="starts processes in another way")
def test_a_process_of_multiprocessing_is_refused_before_it_is_started() -> None:
    """It was refused when the body wrote to it, and told of a broken pipe on stderr."""
    error = Driver(spawns).run()

    assert error.message.startswith("starting a process in a workflow body cannot be replayed")


def test_the_place_of_temporary_files_is_refused_also_where_the_process_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = Driver(asks_for_the_temporary_directory).run()
    monkeypatch.setattr(tempfile, "tempdir", None)
    unknown = Driver(asks_for_the_temporary_directory).run()

    assert known == unknown == ["ForbiddenInWorkflow"] * 3


REACHES = """
def reach():
    threading.Thread(target=print, args=("",)).start()
    return random.random()

@contextlib.contextmanager
def span():
    reach()
    yield

def around(function):
    def call(*args):
        return function(*args)
    return call
"""


def from_module(name: str, what: str, source: str = REACHES) -> Any:
    """Something of a module of that name, which need not be installed."""
    space: dict[str, Any] = {"__name__": name, "threading": threading, "random": random, "contextlib": contextlib}
    exec(source, space)
    return space[what]


def drawn_after(does: Callable[[], object]) -> Any:
    """A random number of a body that has done something before, or its error."""
    will_do.append(does)
    return Driver(does_something).run()


@pytest.mark.parametrize("debugger", ["pdb", "bdb", "_pydevd_bundle.pydevd_timeout", "pydevd", "debugpy.server.api"])
def test_a_debugger_in_a_body_may_do_what_it_likes(debugger: str) -> None:
    """VS Code could evaluate nothing in a body: pydevd starts a thread for that."""
    assert drawn_after(from_module(debugger, "reach")) == drawn_after(int)


@pytest.mark.parametrize("name", ["opentelemetry.sdk.trace", "sentry_sdk.worker", "loguru._file_sink", "structlog"])
def test_telemetry_in_a_body_may_reach_out_and_takes_nothing_from_the_run(name: str) -> None:
    """A span in a body shifted its random numbers, so that a worker without tracing diverged; Sentry failed the run."""

    def with_a_span() -> None:
        with from_module(name, "span")():
            pass

    assert drawn_after(from_module(name, "reach")) == drawn_after(with_a_span) == drawn_after(int)


@pytest.mark.parametrize(
    "does",
    [
        from_module("opentelemetry.trace", "around")(from_module("app", "reach")),
        from_module("sentry_sdk.integrations.threading", "around")(from_module("subprocess", "reach")),
        from_module("subprocess", "around")(from_module("sentry_sdk.utils", "reach")),
    ],
    ids=["decorates", "stands around a function", "stands within a function"],
)
def test_what_telemetry_decorates_or_stands_around_is_refused_as_ever(does: Callable[[], object]) -> None:
    assert drawn_after(does).message.startswith("starting a thread in a workflow body cannot be replayed")


def test_logging_and_print_work_in_a_body(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Given handlers that open their file with the first record, and one that rotates it
    records: list[logging.LogRecord] = []
    keep = logging.Handler()
    keep.emit = records.append  # type: ignore[method-assign]
    handlers: list[logging.Handler] = [
        logging.FileHandler(tmp_path / "late.log", delay=True),
        logging.handlers.RotatingFileHandler(tmp_path / "rotated.log", maxBytes=5, backupCount=2),
        keep,
    ]
    for handler in handlers:
        log.addHandler(handler)
    before = time.time()
    try:
        # When a body logs, twice
        assert Driver(logs).run() is None
        assert Driver(logs).run() is None
    finally:
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()

    # Then every record arrives, with the real time
    assert (tmp_path / "late.log").read_text() == "from the body\n" * 2
    assert (tmp_path / "rotated.log.1").exists()
    assert all(record.created >= before - 1 for record in records)
    assert capsys.readouterr().out == "from the body\n" * 2


def test_a_step_in_a_thread_may_do_everything_while_a_body_runs(tmp_path: Path) -> None:
    done: list[str] = []

    def step_in_a_thread() -> None:
        barrier.wait()
        try:
            (tmp_path / "file").write_text("x")
            socket.socket().close()
            subprocess.run(["true"], check=True)
            threading.Thread(target=lambda: done.append("thread")).start()
            time.sleep(0)
            done.append("all")
        finally:
            barrier.wait()

    thread = threading.Thread(target=step_in_a_thread)
    thread.start()
    assert Driver(releases_the_other).run() is None
    thread.join()

    assert sorted(done) == ["all", "thread"]


def hears(name: str, number: int, frame: object) -> None:
    """A handler that does what a worker's does, and more."""
    ours, theirs = socket.socketpair()
    with ours, theirs, open(os.devnull) as null:
        ours.send(b"x")
        random.seed(name + null.read())
    heard.append(time.time())


class Hearing:
    def handle(self, number: int, frame: object) -> None:
        hears("method", number, frame)

    def __call__(self, number: int, frame: object) -> None:
        hears("object", number, frame)


@pytest.mark.parametrize(
    "handler",
    [lambda number, frame: hears("function", number, frame), Hearing().handle, Hearing(), partial(hears, "partial")],
    ids=["function", "method", "object", "partial"],
)
def test_a_handler_of_a_signal_that_interrupts_a_body_is_none_of_it(handler: Callable[[int, object], None]) -> None:
    """A SIGTERM failed the run whose body was running: to wake the worker's loop, its handler writes to a socket."""
    heard.clear()
    spins.clear()
    before = time.time()
    sends = threading.Thread(target=lambda: spins.wait() and os.kill(os.getpid(), signal.SIGUSR1))
    sends.start()
    others = signal.signal(signal.SIGUSR1, handler)
    try:
        interrupted = Driver(is_interrupted).run()
    finally:
        signal.signal(signal.SIGUSR1, others)
        sends.join()
    assert len(heard) == 1
    assert heard[0] >= before - 1
    assert Driver(is_interrupted).run() == interrupted


def test_a_body_sets_no_handler_of_a_signal() -> None:
    error = Driver(sets_a_handler).run()

    assert error.message.startswith("signal.signal() in a workflow body cannot be replayed: move it into a step")


def test_outside_of_bodies_nothing_is_refused(tmp_path: Path) -> None:
    for event in EVENTS:
        audit(event, ())
    with tempfile.TemporaryFile() as file, builtins.open(tmp_path / "x", "w") as other:
        assert file.fileno() != other.fileno()
    early.nap()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"x")
        assert theirs.recv(1) == b"x"
