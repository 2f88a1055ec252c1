"""Does ``redisworld run replay`` tell before a deployment what would diverge, by its lines and its exit code?"""

from __future__ import annotations

import json
import os

import pytest
import redis

from redisworld.cli import main
from redisworld.keys import Partition
from tests.integration.cli_process import APP, command, environment, eventually, worker

NEXT = "tests.apps.cli_next_app"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)


@pytest.fixture
def url(redis_url: str, raw: redis.Redis, capsys: pytest.CaptureFixture[str]) -> str:
    """A namespace with the finished run ``done`` and the run ``asleep``, both of a real worker."""
    asked = ["--url", redis_url, "--partitions", "1"]
    with worker(redis_url, "--partitions", "1"):
        assert main(["start", f"{APP}:patient", "--run-id", "asleep", *asked]) == 0
        assert main(["start", f"{APP}:doubled", "--args", "[4]", "--run-id", "done", "--wait", *asked]) == 0
        eventually(lambda: any(event.startswith(b"wait_created") for event in raw.lrange(log_of("asleep"), 0, -1)))
    capsys.readouterr()
    return redis_url


def log_of(run_id: str) -> str:
    return Partition("default", 0).log(run_id)


def replay(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> tuple[int, list[str], str]:
    """Exit code, lines on stdout, stderr."""
    code = main(["run", "replay", "--url", url, *arguments])
    shown = capsys.readouterr()
    return code, shown.out.splitlines(), shown.err


def test_runs_fit_the_code_they_run_and_nothing_is_written(
    url: str, raw: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {key: raw.dump(key) for key in raw.scan_iter()}

    assert replay(capsys, url, "--all-open", "--app", APP) == (
        0,
        ["asleep  fits  3 events", "1 runs replayed: 1 fits"],
        "",
    )
    events = raw.llen(log_of("done"))
    assert replay(capsys, url, "asleep", "done", "--app", f"{APP}:wf")[:2] == (
        0,
        ["asleep  fits  3 events", f"done  fits  {events} events", "2 runs replayed: 2 fits"],
    )
    assert {key: raw.dump(key) for key in raw.scan_iter()} == before


def test_a_run_that_the_new_code_does_not_follow_fails_the_build_and_both_sides_are_named(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, _ = replay(capsys, url, "--all-open", "--app", NEXT)

    assert code == 1
    assert lines[0].startswith("asleep  diverges  event 3: the log has wait_created w1_")
    assert lines[0].endswith("the code asked for step 'slow'")
    assert lines[1:] == ["1 runs replayed: 1 diverges"]


def test_a_run_that_took_the_time_and_drew_fits_in_a_process_of_its_own(redis_url: str, raw: redis.Redis) -> None:
    """It used to diverge: the check did not give bodies the time and the chance of their run."""
    asked = ["--url", redis_url, "--partitions", "1"]
    with worker(redis_url, "--partitions", "1"):
        assert main(["start", f"{APP}:stamped", "--run-id", "stamped", *asked]) == 0
        eventually(lambda: any(event.startswith(b"wait_created") for event in raw.lrange(log_of("stamped"), 0, -1)))

    done = command("run", "replay", "stamped", "--app", APP, "--url", redis_url)

    assert done.stdout.splitlines()[-1] == "1 runs replayed: 1 fits", done.stdout
    assert done.returncode == 0


def test_the_same_change_behind_a_gate_passes(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = replay(capsys, url, "--all-open", "--app", f"{NEXT}:gated")

    assert (code, lines[0]) == (0, "asleep  fits  3 events")


def test_json_is_one_list_whatever_a_body_prints(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, err = replay(capsys, url, "done", "asleep", "--json", "--app", NEXT)

    done, asleep = json.loads("\n".join(lines))
    assert code == 1
    assert err == "a body may print\n"
    assert (done["run_id"], done["workflow"], done["status"]) == ("done", "doubled", "completed")
    assert (done["verdict"], done["early"]) == ("fits", [])
    assert (asleep["verdict"], asleep["event"]) == ("diverges", 3)
    assert "the code asked for step 'slow'" in asleep["detail"]


def test_an_open_run_of_another_application_is_shown_and_passes_a_run_asked_for_by_id_does_not(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "asleep  not registered  the application has no workflow 'patient'"

    assert replay(capsys, url, "--all-open", "--app", "tests.apps.conf_app")[:2] == (
        0,
        [line, "1 runs replayed: 1 not registered"],
    )
    code, lines, _ = replay(capsys, url, "asleep", "--app", "tests.apps.conf_app")
    assert (code, lines[0]) == (1, line)


def test_a_log_that_cannot_be_read_fails(url: str, raw: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    raw.lset(log_of("asleep"), 1, b"garbage")

    code, lines, _ = replay(capsys, url, "asleep", "--app", APP)
    assert code == 1
    assert lines[0].startswith("asleep  unreadable  event 2: ")


def test_open_runs_are_found_in_all_partitions_pending_ones_too(
    redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        workflow = "patient" if number % 3 else "failing"
        assert main(["start", f"{APP}:{workflow}", "--run-id", f"r{number}", "--url", redis_url]) == 0
    capsys.readouterr()

    code, lines, _ = replay(capsys, redis_url, "--all-open", "--app", APP)
    assert code == 0
    assert sorted(line.split()[0] for line in lines[:-1]) == sorted(f"r{number}" for number in range(12))
    assert lines[-1] == "12 runs replayed: 12 fits"
    assert replay(capsys, redis_url, "--all-open", "--app", APP, "--workflow", "failing")[1][-1].startswith("4 runs")
    assert replay(capsys, redis_url, "--all-open", "--app", APP, "--limit", "5")[1][-1].startswith("5 runs")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--app", APP], 2, "name the runs to replay by their ids, or say --all-open"),
        (["r", "--all-open", "--app", APP], 2, "name the runs to replay by their ids, or say --all-open"),
        (["r", "--limit", "3", "--app", APP], 2, "choose among the runs of --all-open"),
        (["--all-open", "--limit", "0", "--app", APP], 2, "--limit: must be a whole number from 1"),
        (["r"], 2, "--app"),
        (["r", "--app", "no_such_module"], 2, "there is no module 'no_such_module'"),
        (["nobody", "--app", APP], 1, "nobody"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    redis_url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, told: str
) -> None:
    assert main(["start", f"{APP}:patient", "--url", redis_url]) == 0
    capsys.readouterr()

    found, lines, err = replay(capsys, redis_url, *arguments)

    assert (found, lines) == (code, [])
    assert err.startswith("redisworld: error: ")
    assert told in err
    assert err.count("\n") == 1


def test_a_namespace_that_does_not_exist_is_not_made(redis_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = replay(capsys, redis_url, "--all-open", "--app", APP, "--namespace", "nothing")

    assert code == 1
    assert "nothing has been started in it yet" in err


def test_the_help_shows_how_ci_uses_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "replay", "--help"]) == 0
    assert "redisworld run replay --all-open --app app:wf" in capsys.readouterr().out
