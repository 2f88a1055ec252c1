"""Does the command line do what its help says, and refuse bad input in one line?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from redisworld import spawn
from redisworld.cli import main
from tests.integration.cli_calls import answer, refusal
from tests.integration.cli_process import APP, ROOT, check_counts, command, demo, environment, eventually, worker

NOWHERE = "redis://:secret@127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)


def test_a_command_imports_nothing_that_only_others_need() -> None:
    program = (
        "import sys; from redisworld import cli; cli.main(['run', '--help']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "redisworld.cli.run" in loaded
    assert not {"redisworld.cli.bench", "consumers", "prometheus_client"} & loaded


# -- what is refused before Redis is asked


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["worker", "no_such_module:wf"], "there is no module 'no_such_module'"),
        (["worker", "app.py:wf"], "write app without .py"),
        (["worker", "not a module"], "write module:attribute"),
        (["worker", f"{APP}:nothing"], f"no attribute 'nothing'; it has {APP}:wf"),
        (["worker", f"{APP}:not_a_workflow"], f"is of type int, not a Workflows object; it has {APP}:wf"),
        (["worker", f"{APP}:doubled"], "a worker takes a Workflows object"),
        (["worker", APP, "--url", "redisworld://embedded"], "nobody else can reach it"),
        (["worker", APP, "--lease", "3 parsecs"], "cannot read duration '3 parsecs'"),
        (["worker", APP, "--grace", "30"], "cannot read duration '30'"),
        (["worker", APP, "--concurrency", "0"], "--concurrency: must be a whole number from 1"),
        (["worker", APP, "--queue", "light"], "no step of the application uses queue 'light'; its queues are heavy"),
        (["worker", APP, "--metrics-port", "70000"], "--metrics-port"),
        (["worker", APP, "--log-level", "loud"], "must be one of debug, info, warning, error"),
        (["worker", APP, "--affinity"], "affinity needs a deployment"),
        (["start", f"{APP}:nothing"], "no workflow 'nothing' is registered"),
        (["start", f"{APP}:nothing"], "it has approved, dawdling, doubled, failing, hooked, order-due, patient"),
        (["start", f"{APP}:double"], "is of type Step, not a workflow"),
        (["start", f"{APP}:wf"], "is the registry, name a workflow in it"),
        (["start", f"{APP}:doubled", "--args", "[1"], "--args is not JSON"),
        (["start", f"{APP}:doubled", "--args", '{"n": 1}'], "--args must be a list"),
        (["start", f"{APP}:doubled", "--kwargs", "[1]"], "--kwargs must be an object"),
        (["start", f"{APP}:doubled"], "missing a required argument: 'n'"),
        (["start", f"{APP}:doubled", "--args", "[1, 2, 3]"], "too many positional arguments"),
        (["start", f"{APP}:doubled", "--args", '["one"]'], "argument 'n': Expected `int`, got `str`"),
        (["start", f"{APP}:order-due", "--args", '[{"item": "x", "due": "soon"}]'], "argument 'order'"),
        (["start", f"{APP}:doubled", "--args", "[1]", "--timeout", "soon"], "cannot read duration 'soon'"),
        (["start", f"{APP}:doubled", "--args", "[1]", "--delay", "soon"], "cannot read duration 'soon'"),
        (
            ["start", f"{APP}:doubled", "--args", "[1]", "--at", "2030-01-31T09:00:00"],
            "must be like 2030-01-31T09:00:00+",
        ),
        (["start", f"{APP}:doubled", "--args", "[1]", "--at", "tomorrow"], "must be like 2030-01-31T09:00:00+01:00"),
        (["start", f"{APP}:doubled", "--args", "[1]", "--url", "ftp://x"], "cannot read Redis URL"),
        (["run", "terminate", "r1"], "add --yes"),
        (["run", "--status", "done"], "--status: must be one of pending, running, completed, failed, cancelled, open"),
        (["runs", "list", "--limit", "0"], "--limit: must be a whole number from 1 to 100000, not '0'"),
        (["run", "list", "--since", "yesterday"], "cannot read duration 'yesterday'"),
        (["run", "why"], "required: ID"),
        (["hooks", "--run", "r1", "--after", "r2"], "give one of the two"),
        (["events"], "required: VERB"),
        (["events", "tail", "r1", "--lines", "5", "--after", "3"], "not allowed with argument"),
        (["completion", "tcsh"], "must be one of bash, zsh, fish, not 'tcsh'"),
        (["hook", "resume"], "required: TOKEN"),
        (["hook", "resume", "t", "{by: kim}"], "the payload is not JSON"),
        (["hook", "resume", "t", "text"], """quote it for the shell, like '{"by": "kim"}' or '"text"'"""),
        (["demo", "--branches", "0"], "must be a whole number from 1 to 100000, not '0'"),
        (["demo", "--branches", "100001"], "must be a whole number from 1 to 100000, not '100001'"),
        (["demo", "--branches", "many"], "must be a whole number from 1 to 100000, not 'many'"),
        (["start", f"{APP}:doubled", "3"], "unrecognized arguments: 3 (see redisworld start --help)"),
        (["worker", f"{APP}:wf", "--queue", ""], "--queue '' names no queue"),
        (["worker", f"{APP}:wf", "--queue", " , "], "--queue ' , ' names no queue"),
        (["top", "--every", "0s"], "--every must be at least 10ms"),
        (["run", "list", "--nope"], "unrecognized arguments: --nope (see redisworld run list --help)"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        ([], "required: COMMAND"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    code, line = refusal(capsys, *arguments)

    assert code == 2
    assert told in line


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import no_such_dependency", "ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_a_module_that_breaks_while_imported_is_told_with_its_own_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, told: str
) -> None:
    name = f"cli_broken_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"{body}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    code, line = refusal(capsys, "worker", f"{name}:wf")

    assert code == 2
    assert f"module {name!r} cannot be imported: {told}" in line


@pytest.mark.parametrize(
    ("variable", "value", "arguments"),
    [
        ("REDISWORLD_PARTITIONS", "many", ["run", "show", "r1"]),
        ("REDISWORLD_LEASE_MS", "long", ["worker", APP]),
        ("REDISWORLD_METRICS_PORT", "many", ["worker", APP]),
        ("REDISWORLD_LOG_FORMAT", "xml", ["worker", APP]),
        ("REDISWORLD_BRANCHES", "0", ["demo"]),
    ],
)
def test_a_bad_environment_variable_is_refused_like_its_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str, value: str, arguments: list[str]
) -> None:
    monkeypatch.setenv(variable, value)

    code, line = refusal(capsys, *arguments)

    assert code == 2
    assert repr(value) in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["worker", APP, "--metrics-port", "none"],
        ["start", f"{APP}:doubled", "--args", "[1]"],
        ["run", "show", "r1"],
        ["hook", "resume", "t"],
        ["hook", "show", "t"],
        ["demo"],
    ],
)
def test_an_unreachable_redis_is_one_line_without_the_password_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("REDISWORLD_RETRY_REDIS_MS", "0")  # a worker waits for a Redis that is down

    code, line = refusal(capsys, *arguments, "--url", NOWHERE)

    assert code == 1
    assert "redis://:***@127.0.0.1:1/0" in line
    assert "secret" not in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["worker"],
        ["start"],
        ["run", "show"],
        ["run", "output"],
        ["run", "cancel"],
        ["hook", "show"],
        ["hook", "resume"],
        ["demo"],
        [],
    ],
)
def test_every_help_has_an_example(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert "  redisworld " in answer(capsys, *arguments, "--help").partition("example")[2]


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--version").startswith("redisworld ")


# -- what Redis says


def test_another_partition_count_is_refused_with_what_to_do(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    answer(capsys, "start", f"{APP}:patient", "--url", redis_url, "--partitions", "2")

    code, line = refusal(capsys, "start", f"{APP}:patient", "--url", redis_url, "--partitions", "3")

    assert code == 2
    assert "has 2 partitions, but this process is set to 3" in line


@pytest.mark.parametrize("count", ["0", "-1", "257", "9223372036854775807", "many"])
def test_a_partition_count_that_is_none_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis, count: str
) -> None:
    answer(capsys, "start", f"{APP}:patient", "--url", redis_url)
    raw.hset("rw:default:meta", "partitions", count)

    code, line = refusal(capsys, "queues", "--url", redis_url)

    assert code == 2
    assert f"cannot be read: rw:default:meta holds [b'{count}'" in line


@pytest.mark.parametrize("arguments", [["show"], ["output"], ["cancel"], ["terminate", "--yes"], ["result"]])
def test_an_unknown_run_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], redis_url: str, arguments: list[str]
) -> None:
    code, line = refusal(capsys, "run", *arguments, "nobody", "--url", redis_url)
    assert code == 1
    assert "there is no namespace 'default'" in line  # and looking for a run has not made one

    answer(capsys, "start", f"{APP}:patient", "--url", redis_url)
    code, line = refusal(capsys, "run", *arguments, "nobody", "--url", redis_url)
    assert code == 1
    assert "there is no run 'nobody'" in line

    code, line = refusal(capsys, "run", *arguments, os.fsdecode(b"\xff"), "--url", redis_url)
    assert code == 2
    assert "'\\udcff' " in line


@pytest.mark.parametrize("words", ["run list", "run list --json", "workers"])
def test_a_closed_stdout_is_like_dev_null(capsys: pytest.CaptureFixture[str], redis_url: str, words: str) -> None:
    """It ended with the traceback of an AttributeError."""
    answer(capsys, "start", f"{APP}:patient", "--url", redis_url)

    done = _by_shell(f"{words} >&-", redis_url)

    assert (done.returncode, done.stderr) == (0, "")


def test_with_a_closed_stderr_no_error_goes_to_stdout() -> None:
    done = _by_shell("run list --json 2>&-", NOWHERE)

    assert (done.returncode, done.stdout) == (1, "")


def _by_shell(words: str, url: str) -> subprocess.CompletedProcess[str]:
    call = ["sh", "-c", f"{sys.executable} -m redisworld {words}"]
    there = environment(REDISWORLD_URL=url)
    return subprocess.run(call, cwd=ROOT, env=there, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["completion bash", "--help", "--version", "run list --help"])
def test_a_full_disk_is_one_line_and_exit_code_1(words: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "redisworld", *words.split()],
            cwd=ROOT, env=environment() | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "no space left" in ended.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_the_terminal_cannot_write_is_escaped_and_json_stays_json(redis_url: str, encoding: str) -> None:
    reason = "zu sp\u00e4t \U0001f600 \u0436"

    def told(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "redisworld", *arguments, "--url", redis_url],
            cwd=ROOT, env=environment() | {"PYTHONIOENCODING": encoding}, capture_output=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode(encoding)

    told("start", f"{APP}:patient", "--run-id", "r1")
    told("run", "cancel", "r1", "--reason", reason)

    assert "zu sp" in told("run", "show", "r1")
    assert json.loads(told("run", "show", "r1", "--json"))["events"][-1]["payload"] == reason


def test_a_run_id_of_another_workflow_is_refused(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    answer(capsys, "start", f"{APP}:patient", "--run-id", "r1", "--url", redis_url)

    code, line = refusal(capsys, "start", f"{APP}:failing", "--run-id", "r1", "--url", redis_url)

    assert code == 2  # repeating it will never help
    assert "belongs to a run of workflow 'patient'" in line


def test_an_argument_can_be_a_dataclass_and_a_date(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    order = json.dumps([{"item": "x", "due": "2025-12-24"}])

    answer(capsys, "start", f"{APP}:order-due", "--args", order, "--run-id", "o1", "--url", redis_url)

    shown = json.loads(answer(capsys, "run", "show", "o1", "--json", "--url", redis_url))
    assert shown["events"][0]["payload"] == {"order": {"item": "x", "due": "2025-12-24"}}


def test_a_run_can_begin_later_is_shown_so_and_cancelled_at_once(
    capsys: pytest.CaptureFixture[str], redis_url: str
) -> None:
    at = "2130-01-31T09:00:00+01:00"
    answer(capsys, "start", f"{APP}:patient", "--run-id", "r1", "--at", at, "--url", redis_url)
    answer(capsys, "start", f"{APP}:patient", "--run-id", "r2", "--delay", "10m", "--url", redis_url)

    shown = answer(capsys, "run", "show", "r1", "--url", redis_url)
    later = json.loads(answer(capsys, "run", "show", "r2", "--json", "--url", redis_url))["run"]
    cancelled = answer(capsys, "run", "cancel", "r1", "--json", "--url", redis_url)

    assert "starts      2130-01-31T08:00:00.000Z" in shown
    assert later["start_at"] == later["created_at"] + 600_000
    assert json.loads(cancelled)["status"] == "cancelled"


def test_a_run_that_has_not_ended_in_time_is_exit_code_1(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    answer(capsys, "start", f"{APP}:patient", "--run-id", "r1", "--url", redis_url)

    code, line = refusal(capsys, "run", "result", "r1", "--timeout", "10ms", "--url", redis_url)

    assert code == 1
    assert "run 'r1' has not ended within 10 ms; it goes on" in line


def test_a_terminated_run_is_cancelled_and_has_no_result(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    answer(capsys, "start", f"{APP}:patient", "--run-id", "r1", "--url", redis_url)

    told = answer(capsys, "run", "terminate", "r1", "--yes", "--reason", "in the way", "--json", "--url", redis_url)
    code, line = refusal(capsys, "run", "result", "r1", "--url", redis_url)

    assert json.loads(told) == {"run_id": "r1", "status": "cancelled"}
    assert code == 1
    assert "run 'r1' was cancelled: in the way" in line


# -- hooks


def test_a_hook_is_shown_resumed_and_told_beside_its_run(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    redis = ("--url", redis_url)
    with worker(redis_url):
        answer(capsys, "start", f"{APP}:approved", "--args", '["order:42"]', "--run-id", "r1", *redis)
        eventually(lambda: main(["hook", "show", "order:42", *redis]) == 0)
        capsys.readouterr()

        text = answer(capsys, "hook", "show", "order:42", *redis)
        shown = json.loads(answer(capsys, "hook", "show", "order:42", "--json", *redis))
        resume = ("hook", "resume", "order:42", '{"by": "kim", "due": "2025-12-24"}', "--resume-id", "mail-7")
        assert answer(capsys, *resume, *redis) == "r1\n"
        assert json.loads(answer(capsys, *resume, "--json", *redis)) == {"run_id": "r1", "token": "order:42"}

        result = answer(capsys, "run", "result", "r1", "--timeout", "30s", *redis)
    assert json.loads(result) == ["Approval", "kim", "2025-12-24"]
    assert "run         r1  (approved, running)" in text
    assert 'metadata    {"asks": "kim"}\nreceived    0 payloads' in text
    assert shown.keys() == {"token", "run_id", "hook_id", "created_at", "metadata", "received", "workflow", "status"}
    told = json.loads(answer(capsys, "run", "show", "r1", "--json", *redis))
    assert told["hooks"] == [
        {"id": shown["hook_id"], "token": "order:42", "state": "disposed", "holder": "", "received": 1}
    ]

    code, line = refusal(capsys, "hook", "resume", "order:42", "1", *redis)
    assert code == 1
    assert "the run 'r1' of hook token 'order:42' has ended" in line
    code, line = refusal(capsys, "hook", "resume", "order:42", '{"by": "lee"}', "--resume-id", "mail-7", *redis)
    assert code == 2  # repeating it will never help
    assert "resume id 'mail-7' was used with another payload" in line


def test_run_show_lists_the_hooks_of_a_run_with_their_state(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    redis = ("--url", redis_url)
    with worker(redis_url):
        answer(capsys, "start", f"{APP}:hooked", "--args", '["a", "b"]', "--run-id", "r1", *redis)
        eventually(lambda: main(["hook", "resume", "a", '"x"', *redis]) == 0)
        eventually(lambda: main(["hook", "show", "b", *redis]) == 0)
        answer(capsys, "start", f"{APP}:approved", "--args", '["b"]', "--run-id", "r2", *redis)
        eventually(lambda: main(["run", "result", "r2", "--timeout", "30s", *redis]) == 1)
        capsys.readouterr()

        first, second = (answer(capsys, "run", "show", run, *redis).split("\n\n") for run in ("r1", "r2"))

    [hooks] = [part.splitlines() for part in first if part.startswith("HOOK")]
    assert [line.split()[1:] for line in hooks] == [
        ["TOKEN", "STATE", "RECEIVED"],
        ["a", "disposed", "1"],
        ["b", "open", "0"],
    ]
    assert any(part.startswith("HOOK") and "conflict: run r1 holds it" in part for part in second)


@pytest.mark.parametrize("verb", ["show", "resume"])
def test_an_unknown_token_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], redis_url: str, verb: str
) -> None:
    code, line = refusal(capsys, "hook", verb, "nobody", "--url", redis_url)
    assert code == 1
    assert "there is no namespace 'default'" in line

    answer(capsys, "start", f"{APP}:patient", "--url", redis_url)
    code, line = refusal(capsys, "hook", verb, "nobody", "--url", redis_url)
    assert code == 1
    assert "no hook holds the token 'nobody' (never created, disposed, or its run has ended)" in line


# -- a worker


def test_a_worker_runs_what_start_starts_and_run_show_tells_it(
    capsys: pytest.CaptureFixture[str], redis_url: str
) -> None:
    redis = ("--url", redis_url)
    with worker(redis_url):
        waited = answer(
            capsys, "start", f"{APP}:doubled", "--args", "[4]", "--kwargs", '{"times": 3}', "--run-id", "r1",
            "--wait", "--timeout", "30s", *redis,
        )  # fmt: skip
        failed = main(["start", f"{APP}:failing", "--run-id", "r2", "--wait", "--timeout", "30s", *redis])
        complaint = capsys.readouterr().err
        also_failed = main(["start", f"{APP}:failing", "--run-id", "r2", "--wait", "--json", *redis])
        told = json.loads(capsys.readouterr().out)
        whole = answer(capsys, "run", "show", "r2", "--payloads", *redis)

    assert "\nTraceback (most recent call last):\n" in whole
    assert "second \\x1b[31mtry\n" in whole
    assert "\x1b" not in whole
    assert also_failed == 1
    assert told == {
        "run_id": "r2",
        "status": "failed",
        "code": "USER_ERROR",
        "error": "redisworld.errors.FatalError: there is no\nsecond \x1b[31mtry",
    }
    assert waited == "r1\n[8, 8, 8, 4]\n"
    assert failed == 1
    assert complaint.count("\n") == 1
    assert "run 'r2' failed with USER_ERROR: redisworld.errors.FatalError: there is no second \\x1b[31mtry" in complaint
    assert answer(capsys, "run", "result", "r1", *redis) == "[8, 8, 8, 4]\n"

    shown = json.loads(answer(capsys, "run", "show", "r1", "--json", *redis))
    assert shown["run"]["status"] == "completed"
    assert sorted((step["name"], step["status"], step["attempt"]) for step in shown["steps"]) == [
        *[("double", "completed", 1)] * 3,
        ("flaky", "completed", 2),
    ]
    assert [event["number"] for event in shown["events"]] == list(range(1, shown["run"]["log_length"] + 1))
    assert shown["events"][-1]["payload"] == [8, 8, 8, 4]

    text = answer(capsys, "run", "show", "r1", *redis)
    assert "status      completed" in text
    assert "ValueError: not at the first time" in text


def test_a_worker_answers_probes_and_metrics_on_the_port_it_prints(redis_url: str) -> None:
    with worker(redis_url) as process:
        eventually(lambda: process.get("/readyz")[0] == 200)

        assert process.get("/healthz") == (200, "ok\n")
        status, metrics = process.get("/metrics")
        assert status == 200
        assert 'redisworld_step_prologue_total{path="run_context"} 0.0' in metrics
        assert process.get("/nothing")[0] == 404


def test_a_workers_first_line_tells_who_it_is_and_json_logs_are_objects(redis_url: str) -> None:
    with worker(redis_url, "--log-format", "json", "--namespace", "logs", "--queue", "heavy") as process:
        first = json.loads(process.first_line)

    assert (first["level"], first["message"]) == ("info", "worker")
    assert first["consumer"]
    assert (first["namespace"], first["url"]) == ("logs", redis_url)
    assert first["streams"] == "workflows,steps,steps:heavy"
    assert (first["concurrency"], first["tracing"]) == (64, "off")
    assert "on http://127" in first["serving"]


def test_sigterm_lets_the_body_finish_and_the_worker_exits_0(
    capsys: pytest.CaptureFixture[str], redis_url: str
) -> None:
    redis = ("--url", redis_url)
    with worker(redis_url) as process:
        answer(capsys, "start", f"{APP}:dawdling", "--args", "[1]", "--run-id", "r1", *redis)
        eventually(lambda: '"step_started"' in answer(capsys, "run", "show", "r1", "--json", *redis))

        process.process.send_signal(signal.SIGTERM)

        assert process.process.wait(timeout=60) == 0
    assert answer(capsys, "run", "result", "r1", *redis) == '"slept"\n'


def test_a_long_log_is_shown_by_its_end(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    redis = ("--url", redis_url)
    with worker(redis_url):
        start = ("start", f"{APP}:doubled", "--args", "[1, 100]", "--run-id", "r1")
        answer(capsys, *start, "--wait", "--timeout", "30s", *redis)

    bounded = json.loads(answer(capsys, "run", "show", "r1", "--json", *redis))
    whole = json.loads(answer(capsys, "run", "show", "r1", "--json", "--all", *redis))

    assert len(bounded["events"]) == 200
    assert bounded["events_before"] + 200 == len(whole["events"]) == whole["run"]["log_length"]
    assert bounded["events"] == whole["events"][-200:]
    assert "earlier events not shown" in answer(capsys, "run", "show", "r1", *redis)


def test_a_run_that_is_waited_for_in_vain_has_its_id_told(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    waiting = ["start", f"{APP}:patient", "--wait", "--timeout", "50ms", "--json", "--url", redis_url]

    assert main(waiting) == 1
    assert list(json.loads(capsys.readouterr().out)) == ["run_id"]


def test_ctrl_c_while_waiting_is_quiet_and_exit_code_130(redis_url: str) -> None:
    waiting = subprocess.Popen(
        [sys.executable, "-m", "redisworld", "start", f"{APP}:patient", "--wait", "--url", redis_url],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509  # no threads here
    )  # fmt: skip
    with waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()

        waiting.send_signal(signal.SIGINT)

        _, complaint = waiting.communicate(timeout=30)
    assert (waiting.returncode, complaint) == (130, "")


def test_a_reader_that_goes_away_leaves_no_traceback(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    answer(capsys, "start", f"{APP}:patient", "--run-id", "r1", "--url", redis_url)
    show = [sys.executable, "-m", "redisworld", "run", "show", "r1", "--url", redis_url]

    shown = subprocess.Popen(show, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with shown:
        assert shown.stdout is not None
        assert shown.stderr is not None
        shown.stdout.close()
        complaint = shown.stderr.read()

    assert complaint == b""


# -- the demo


@pytest.mark.parametrize("branches", [1, 64])
def test_the_demo_reads_no_run_before_a_step_and_one_for_the_fan_out(redis_url: str, branches: int) -> None:
    report = demo("--branches", str(branches), "--url", redis_url)

    assert report["redis"] == "url"
    check_counts(report, branches)


@pytest.mark.skipif(spawn.find_server() is None, reason="needs a redis-server on PATH")
def test_the_demo_brings_its_own_redis_where_none_is_given() -> None:
    report = demo("--branches", "8")

    assert report["redis"] == "spawned"
    check_counts(report, 8)


def test_the_demo_on_a_given_redis_tells_how_to_look_inside(redis_url: str) -> None:
    done = command("demo", "--branches", "2", REDISWORLD_URL=redis_url)

    assert done.returncode == 0
    hints = [line for line in done.stdout.splitlines() if "redis-cli -s " in line]
    assert [word for hint in hints for word in ("HGETALL", "LRANGE", "XINFO GROUPS") if word in hint] == [
        "HGETALL",
        "LRANGE",
        "XINFO GROUPS",
    ]
    assert "rw:{demo:" in hints[0]
