"""Does ``redisworld bench`` measure each workload, and say clearly why it cannot?

The figures themselves are the machine's; what is asserted are counts, orders and shapes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from redisworld.bench.results import Floor, PerStep, Result, as_object, beside, quantiles
from redisworld.cli import main
from redisworld.cli.bench_report import as_markdown, as_text
from redisworld.cli.program import parser
from tests.integration.cli_process import ROOT, command, environment, eventually

QUANTILES = {"p50", "p90", "p99"}
PER_STEP = {"commands", "script_calls", "redis_us", "redis_cpu_us", "bytes", "bytes_in", "bytes_out"}

SMALL = {
    "fanout": ("--branches", "3,20", "--rounds", "2"),
    "sequence": ("--steps", "30", "--rounds", "1"),
    "throughput": ("--steps", "300", "--concurrency", "16"),
    "latency": ("--count", "3"),
    "timers": ("--count", "2", "--delay-ms", "20"),
    "hooks": ("--count", "3"),
    "replay": ("--events", "60", "--rounds", "2"),
    "memory": ("--runs", "100"),
    "starts": ("--count", "50", "--concurrency", "8"),
    "idle": ("--seconds", "6"),  # a blocking read ends within five
}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)


def measured(capsys: pytest.CaptureFixture[str], workload: str, *more: str) -> list[dict[str, Any]]:
    """The objects of a bench that succeeds, and prints nothing else."""
    code = main(["bench", workload, "--json", *SMALL[workload], *more])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert shown.err == ""
    results: list[dict[str, Any]] = json.loads(shown.out)
    assert {result["workload"] for result in results} == {workload}
    return results


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that has to be changed."""
    assert main(["bench", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("redisworld: error: ")
    assert shown.err.count("\n") == 1
    return shown.err


def ordered(times: dict[str, float]) -> None:
    """Quantiles are positive, and in order."""
    assert times.keys() == QUANTILES
    assert 0 < times["p50"] <= times["p90"] <= times["p99"]


# -- each workload


def test_a_fan_out_is_measured_for_each_number_of_branches_beside_its_floor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small, large = measured(capsys, "fanout")
    assert (small["branches"], large["branches"]) == (3, 20)
    for result in (small, large):
        assert (result["rounds"], result["concurrency"], result["body_ms"], result["workers"]) == (2, 8, 1, 1)
        for name in ("ttfs_ms", "ttls_ms", "total_ms"):
            ordered(result[name])
        assert result["ttfs_ms"]["p50"] < result["ttls_ms"]["p50"] < result["total_ms"]["p50"]
        assert result["per_step"].keys() == result["floor"]["per_step"].keys() == PER_STEP
        assert result["floor"]["per_step"]["script_calls"] == 0
        assert result["floor"]["per_step"]["commands"] > 1, "one XADD for each message, and what reads and acks them"
        assert result["ratio"]["redis_us"] == pytest.approx(
            result["per_step"]["redis_us"] / result["floor"]["per_step"]["redis_us"], rel=0.01
        )
    assert large["per_step"]["script_calls"] < small["per_step"]["script_calls"]


def test_a_sequence_is_measured_along_its_steps_beside_four_bare_commands_a_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [result] = measured(capsys, "sequence")
    assert [(bucket["at"], bucket["last"]) for bucket in result["buckets"]] == [(10, 10), (25, 25), (30, 30)]
    assert all(bucket["step_ms"] > 0 for bucket in result["buckets"])
    assert result["growth"] == pytest.approx(
        result["buckets"][-1]["step_ms"] / result["buckets"][0]["step_ms"], rel=0.05
    )
    assert 1 <= result["per_step"]["script_calls"] <= 4
    assert result["floor"]["per_step"]["commands"] == pytest.approx(4, abs=0.2), "XADD, XREADGROUP, XACK, XDEL"


def test_throughput_drains_runs_that_were_started_before_the_worker(capsys: pytest.CaptureFixture[str]) -> None:
    [result] = measured(capsys, "throughput")
    assert (result["steps"], result["concurrency"]) == (300, 16)
    assert result["steps_per_s"] > 0
    assert result["ratio"]["steps_per_s"] > 0


@pytest.mark.parametrize("workload", ["latency", "hooks"])
def test_latency_and_hooks_are_single_messages_beside_single_messages(
    capsys: pytest.CaptureFixture[str], workload: str
) -> None:
    [result] = measured(capsys, workload)
    ordered(result["latency_ms"])
    ordered(result["floor"]["latency_ms"])
    assert "latency_ms" in result["ratio"]


def test_timers_are_never_early(capsys: pytest.CaptureFixture[str]) -> None:
    [result] = measured(capsys, "timers")
    assert (result["count"], result["delay_ms"]) == (2, 20)
    ordered(result["lateness_ms"])


def test_a_replay_tells_the_length_of_the_log_it_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    [result] = measured(capsys, "replay")
    assert 60 <= result["events"] <= 90, "a log of so many events, and those of the measured resumes"
    ordered(result["total_ms"])
    ordered(result["warm_ms"])


def test_memory_tells_what_of_a_run_is_payload(capsys: pytest.CaptureFixture[str]) -> None:
    [result] = measured(capsys, "memory")
    assert result["bytes_per_run"] == result["payload_bytes_per_run"] + result["overhead_bytes_per_run"]
    assert 20 < result["payload_bytes_per_run"] < 300


def test_a_start_is_at_most_one_script_call(capsys: pytest.CaptureFixture[str]) -> None:
    [result] = measured(capsys, "starts")
    assert 0 < result["per_start"]["script_calls"] <= 1, "starts of one tick share a call"
    assert result["floor"]["per_step"]["commands"] == pytest.approx(1, abs=0.2)


def test_an_idle_worker_is_counted_per_second(capsys: pytest.CaptureFixture[str]) -> None:
    [result] = measured(capsys, "idle")
    assert result["commands_per_s"] >= result["script_calls_per_s"] >= 0
    assert result["commands_per_s"] > 0
    if sys.platform == "linux":
        assert result["rss_mib"] > 10


# -- on a given Redis


def test_a_bench_leaves_nothing_on_a_given_redis(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    [first, _] = measured(capsys, "fanout", "--url", redis_url, "--partitions", "2", "--workers", "2")
    assert first["workers"] == 2
    assert raw.dbsize() == 0


# -- what people see


def test_the_table_of_a_process_of_its_own_goes_to_stdout_and_nothing_else_does() -> None:
    done = command("bench", "starts", "--count", "20")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    heading, *_ = done.stdout.splitlines()
    assert heading.split() == ["starts:", "count", "20,", "concurrency", "64", "redisworld", "floor", "ratio"]
    assert "script calls per start" in done.stdout


def a_result(branches: int, ttls: float) -> Result:
    """A fan-out with a floor."""
    per = PerStep(commands=1.5, script_calls=1, redis_us=20, redis_cpu_us=25, bytes=900, bytes_in=500, bytes_out=400)
    result = Result(
        workload="fanout", parameters={"branches": branches}, ttls_ms=quantiles([ttls]), steps_per_s=1_000, per_step=per
    )
    floor = Floor(per_step=per, steps_per_s=4_000, ttls_ms=quantiles([ttls / 2]))
    return beside(result, floor)


def test_markdown_and_text_tell_figure_floor_and_ratio() -> None:
    results = [a_result(64, 10.0), a_result(256, 40.0)]
    assert "| time to last step, ms, p50 | 40 | 20 | 2 |" in as_markdown(results)
    assert "| steps/s | 1,000 | 4,000 | 0.25 |" in as_markdown(results)
    assert "256 branches  ████████████████████████████████████████ 40" in as_text(results)


def test_parameters_stand_beside_the_figures_in_json_and_what_was_not_measured_is_absent() -> None:
    plain = as_object(a_result(64, 10.0))
    assert plain["branches"] == 64
    assert "parameters" not in plain
    assert "latency_ms" not in plain


def test_every_command_of_the_page_is_one_that_the_program_takes() -> None:
    page = (ROOT / "docs" / "performance.md").read_text() + (ROOT / "tests" / "bench" / "README.md").read_text()
    commands = re.findall(r"^(?:\$ )?redisworld (bench [^>#\n]*)", page, re.MULTILINE)
    assert len(commands) >= 4
    for line in commands:
        assert vars(parser().parse_args(shlex.split(line)))["workload"], line


# -- what is refused


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["fanout", "--branches", "64,many"], "--branches: must be a whole number from 1 to 100000, not 'many'"),
        (["sequence", "--steps", "5"], "--steps: must be a whole number from 20"),
        (["latency", "--url", "redisworld://embedded"], "lives inside one process, and a bench starts workers"),
        (["idle", "--seconds", "0"], "--seconds: must be a whole number from 1"),
        (["idle", "--timeout", "soon"], "cannot read duration 'soon'"),
        (["idle", "--json", "--markdown"], "not allowed with"),
        (["fanout", "--plot", "figures.pdf"], "does not end in .png"),
        (["fanout", "--plot", "/no/such/place/figures.png"], "there is no directory '/no/such/place'"),
        (["idle", "--plot", "figures.png"], "of idle there is no curve to draw"),
        (["nothing"], "invalid choice: 'nothing'"),
    ],
)
def test_bad_input_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert told in refused(capsys, *arguments)


def test_a_redis_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "idle", "--url", "redis://:secret@127.0.0.1:1/0"]) == 1
    told = capsys.readouterr().err
    assert "127.0.0.1:1" in told
    assert "secret" not in told


def test_a_picture_needs_matplotlib_and_says_so_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'redisworld[bench]'" in refused(capsys, "fanout", "--plot", str(tmp_path / "figures.png"))


def test_a_worker_that_ends_by_itself_ends_the_bench_with_its_last_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redisworld.bench.session.WORKED", "redisworld.bench.no_such_module:wf")
    assert main(["bench", "idle", "--seconds", "1"]) == 1
    assert "there is no module 'redisworld.bench.no_such_module'" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the worker in /proc")
def test_a_bench_that_is_killed_takes_its_worker_along(tmp_path: Path) -> None:
    bench = subprocess.Popen(
        [sys.executable, "-m", "redisworld", "bench", "idle", "--seconds", "60"],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),  # its marks stay there
    )
    with bench:
        try:
            eventually(lambda: bool(workers_of(bench.pid)))
            [worker] = workers_of(bench.pid)
        finally:
            bench.kill()
    eventually(lambda: not is_running(worker))


def is_running(process: Path) -> bool:
    """Neither gone nor a zombie that nobody has waited for."""
    try:
        return bool((process / "cmdline").read_bytes())
    except OSError:
        return False


def workers_of(pid: int) -> list[Path]:
    """The /proc entries of the workers that this process has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = [Path(f"/proc/{child}") for child in children]
    return [entry for entry in found if b"redisworld.bench.app:wf" in (entry / "cmdline").read_bytes()]
