"""Do the commands that go on (tail, watch, top) and those for other programs (export, completion) do what they say?"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator

import pytest
import redis

from redisworld import events, spawn
from redisworld.cli import tables
from redisworld.cli.program import parser
from redisworld.cli.top_screen import as_text, rates_of
from redisworld.keys import Partition, partition_of
from redisworld.state import Backlog, State, StreamState, WorkerState
from tests.apps import outside_app, shop_app
from tests.integration.cli_calls import answer, answer_json, called, refusal
from tests.integration.cli_process import ROOT, WAIT_S, command, environment, worker
from tests.integration.operations_scenes import SHOP, start, until_waits, until_worker_is_listed

OUTSIDE = "tests.apps.outside_app"
NEW = [
    ["run", "list"], ["run", "why", "r1"], ["run", "watch", "r1"], ["run", "export", "r1"], ["steps", "r1"],
    ["events", "tail", "r1"], ["hooks"], ["timers"], ["queues"], ["workers"], ["deployments"], ["top", "--once"],
]  # fmt: skip


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)


# -- errors


@pytest.mark.parametrize("arguments", NEW)
def test_no_command_prints_the_password_of_its_url_when_redis_is_down(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    code, line = refusal(capsys, *arguments, "--url", "redis://me:secret@127.0.0.1:1/0")

    assert code == 1
    assert "redis://me:***@127.0.0.1:1/0" in line
    assert "secret" not in line


@pytest.mark.parametrize("arguments", NEW)
def test_a_namespace_that_nobody_has_made_is_told_and_not_made(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, arguments: list[str]
) -> None:
    code, line = refusal(capsys, *arguments, "--namespace", "typo", "--url", redis_url)

    assert (code, "there is no namespace 'typo'" in line) == (1, True)
    assert raw.keys("*") == []


# -- tail, watch, export


def test_tail_begins_with_the_last_events_and_goes_on_until_the_run_ends(
    capsys: pytest.CaptureFixture[str], redis_url: str
) -> None:
    with worker(redis_url, app=SHOP):
        start(redis_url, shop_app.fulfil, "42", run_id="r1")
        until_waits(redis_url, "r1", "hook")
        resuming = threading.Timer(0.5, lambda: command("hook", "resume", "order:42", '"yes"', "--url", redis_url))
        resuming.start()
        live = answer(capsys, "events", "tail", "r1", "--lines", "1", "--json", "--url", redis_url).splitlines()
        resuming.join()

    assert [json.loads(line)["kind"] for line in live] == ["hook_created", "hook_received", "run_completed"]
    assert json.loads(live[1])["payload"] == "yes"
    behind = answer(capsys, "events", "tail", "r1", "--after", "4", "--url", redis_url)
    assert [line.split()[2] for line in behind.splitlines()] == ["run_completed"]
    assert '"yes"' in behind


def test_watch_tells_each_change_and_ends_with_the_run(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    with worker(redis_url, app=SHOP):
        start(redis_url, shop_app.fulfil, "42", run_id="r1")
        until_waits(redis_url, "r1", "hook")
        resuming = threading.Timer(0.5, lambda: command("hook", "resume", "order:42", '"yes"', "--url", redis_url))
        resuming.start()
        first, *_, last = answer(capsys, "run", "watch", "r1", "--url", redis_url).splitlines()
        resuming.join()
        start(redis_url, shop_app.invite, "nobody@example.com", run_id="r2")
        failed = called(capsys, "run", "watch", "r2", "--json", "--url", redis_url)

    assert first.endswith("  running  waits for hook order:42")
    assert last.endswith("  completed")
    assert failed[0] == 1
    end = json.loads(failed[1].splitlines()[-1])
    assert (end["run"]["status"], end["steps"]["failed"], end["waits_for"]) == ("failed", 1, [])


def test_an_export_has_every_byte_of_the_log_and_what_the_run_has_written(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    with worker(redis_url, app=OUTSIDE):
        start(redis_url, outside_app.talk, 2, run_id="talk")
        start(redis_url, outside_app.attributed, 0, run_id="attributed")
        until_waits(redis_url, "talk")
        until_waits(redis_url, "attributed")

    lines = [
        json.loads(line)
        for line in answer(capsys, "run", "export", "talk", "attributed", "--url", redis_url).splitlines()
    ]

    assert [line["run_id"] for line in lines if line["record"] == "run"] == ["talk", "attributed"]
    log = raw.lrange(Partition("default", partition_of("talk", 4)).log("talk"), 0, -1)
    told = [line for line in lines if line["record"] == "event" and line["run_id"] == "talk"]
    assert [base64.b64decode(line["data"]) for line in told] == [events.parse(element).payload for element in log]
    assert [line["number"] for line in told] == list(range(1, len(log) + 1))
    assert [line["value"]["text"] for line in lines if line["record"] == "chunk"] == ["t0", "t1"]


# -- top


def state(streams: int = 3, workers: int = 2, **more: int) -> State:
    """A namespace with so much in it."""
    return State(
        namespace="default",
        at_ms=1_700_000_000_000 + more.pop("later_ms", 0),
        streams=tuple(
            StreamState(partition=p, stream=f"steps:queue-{n}", backlog=Backlog(length=10**n, lag=10**n))
            for n in range(streams)
            for p in range(4)
        ),
        workers=tuple(
            WorkerState(consumer=f"a-host-with-a-long-name-{n}:{n}:abcdef01", state="ready", deployment="v1")
            for n in range(workers)
        ),
        runs=dict.fromkeys(("pending", "running", "completed", "failed", "cancelled"), 10**6),
        recorded=more,
    )


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 12)])
@pytest.mark.parametrize(("streams", "workers"), [(0, 0), (3, 2), (3, 500), (12, 0), (12, 500)])
def test_a_screen_fits_its_terminal_however_much_there_is(size: tuple[int, int], streams: int, workers: int) -> None:
    lines = as_text(state(streams, workers), None, url="redis://" + "x" * 100, size=size)

    assert len(lines) <= max(size[1], 15)
    assert max(map(len, lines)) <= size[0]
    left_out = [int(line.split()[2]) for line in lines if line.startswith("… and ")]
    assert workers < 500 or max(left_out) > 400  # what does not fit is counted


def test_rates_are_what_the_scripts_counted_between_two_looks() -> None:
    before, now = state(runs_created=10, buried=5), state(runs_created=30, buried=5, later_ms=2_000)

    assert rates_of(now, before) | {} == {**dict.fromkeys(rates_of(now, before), 0.0), "runs_created": 10.0}
    assert rates_of(before, before) == rates_of(now, None) == {}


class Terminal:
    """A command on a terminal of 80 by 24."""

    def __init__(self, url: str, *arguments: str) -> None:
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.chdir(ROOT)
            program = [sys.executable, "-m", "redisworld", *arguments, "--url", url]
            os.execve(sys.executable, program, environment(TERM="xterm"))
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.shown = ""

    def until(self, true: str) -> None:
        """Read until the text is there."""
        deadline = time.monotonic() + WAIT_S
        while true not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.fd], [], [], 0.1)[0]:
                self.shown += os.read(self.fd, 65_536).decode()

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self.fd, keys)

    def exit_code(self) -> int:
        """Wait for its end."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_on_a_terminal_draws_over_itself_and_gives_the_screen_back(redis_url: str, key: bytes) -> None:
    with worker(redis_url, app=SHOP):
        until_worker_is_listed(redis_url, 1)
        terminal = Terminal(redis_url, "top", "--every", "50ms")
        terminal.until("\x1b[H\x1b[1mredisworld top")
        terminal.until("started 0")  # the second look has rates
        terminal.press(key)
        terminal.until("\x1b[?25h\x1b[?1049l")

    assert terminal.exit_code() == 0
    assert terminal.shown.startswith("\x1b[?1049h\x1b[?25l")
    frame = terminal.shown.split("\x1b[H")[1]
    lines = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", frame).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_top_outlasts_a_redis_that_is_down(private: spawn.PrivateRedis) -> None:
    start(private.url, shop_app.remind, "x", run_id="r1")
    terminal = Terminal(private.url, "top", "--every", "50ms")
    terminal.until("1 pending")
    private.kill()
    terminal.until("cannot be used now")
    private.restart()
    terminal.shown = ""
    terminal.until("dead letters 0")
    terminal.press(b"q")

    assert terminal.exit_code() == 0


@pytest.fixture
def private() -> Iterator[spawn.PrivateRedis]:
    """A server that may be killed."""
    with spawn.private_redis(args=("--appendonly", "yes"), allow_wheel=True) as server:
        yield server


def test_top_once_as_json_is_one_object(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    start(redis_url, shop_app.remind, "x", run_id="r1")

    told = answer_json(capsys, "top", "--once", "--every", "10ms", "--url", redis_url)

    assert told["runs"]["pending"] == 1
    assert {line["stream"]: line["unread"] for line in told["queues"]} == {"steps": 0, "workflows": 1}
    assert told["rates"]["runs_created"] == 0


# -- colours


def test_colours_are_for_terminals_and_only_where_nobody_has_said_no(
    monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    start(redis_url, shop_app.remind, "x", run_id="r1")
    terminal = Terminal(redis_url, "run", "list")
    terminal.until("remind")
    assert terminal.exit_code() == 0
    assert "\x1b[33mpending" in terminal.shown

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not tables.coloured()
    assert "\x1b" not in command("run", "list", "--url", redis_url).stdout


# -- completion


def _commands() -> dict[str, set[str]]:
    """The words of each place of the command line, from its help."""
    places: dict[str, set[str]] = {}

    def walk(found: object, path: str) -> None:
        places[path] = set()
        for action in found._actions:  # type: ignore[attr-defined]
            places[path] |= set(action.option_strings)
            if isinstance(action.choices, dict):
                places[path] |= set(action.choices)
                for name, below in action.choices.items():
                    walk(below, f"{path} {name}".strip())

    walk(parser(), "")
    return places


def test_bash_completes_every_word_there_is_at_every_place(tmp_path: object) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = command("completion", "bash").stdout
    places = _commands()
    asks = "\n".join(f'try redisworld {path} ""' for path in places)
    helper = 'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); _redisworld; echo "${COMPREPLY[@]}"; }\n'
    done = subprocess.run([bash], input=f"{script}\n{helper}{asks}\n", capture_output=True, text=True, check=True)

    told = dict(zip(places, done.stdout.splitlines(), strict=True))
    assert done.stderr == ""
    for path, words in places.items():
        if path != "completion":
            assert set(told[path].split()) == words, path
    assert told["completion"].split()[:3] == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_have_every_command_and_option(shell: str) -> None:
    script = command("completion", shell).stdout

    for path, words in _commands().items():
        for word in words - {"-h"}:
            assert f"'{word}:" in script or f" -a {word} " in script or f" -l {word[2:]} " in script, (path, word)
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_every_command_and_option_is_on_the_page_of_the_command_line() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()

    for path, words in _commands().items():
        noun = path.partition(" ")[0]
        if noun and noun not in ("runs", "hooks"):
            assert (
                f"redisworld {noun if noun == 'bench' else path}" in page
            )  # the page performance.md has the workloads
        for word in words if noun != "bench" else ():
            assert word.replace("--no-", "--") in page, f"{path} {word}"
