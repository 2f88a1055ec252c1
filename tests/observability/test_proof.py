"""Is everything that the board asks and the alerts watch there, after real work, on a real Prometheus?

One stage for the whole file: Redis, an exporter, two workers, Prometheus. The last test kills a worker.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from redisworld import World
from tests.apps import seen_app
from tests.chaos.probing import cli_worker, get, metric
from tests.chaos.processes import ROOT, WorkerProcess, eventually
from tests.observability.checking import Checker
from tests.observability.scraping import NAMESPACE, needs_prometheus
from tests.observability.stage import (
    APP,
    BOARD,
    FANS,
    QUEUED,
    RULES,
    WAVES,
    Stage,
    counted_in_logs,
    lazy_fetches_in_logs,
    staged,
)

pytestmark = [needs_prometheus, pytest.mark.anyio]

CHOSEN = {
    "datasource": "abc-prom",
    "cluster": ".*",
    "namespace": NAMESPACE,
    "job": "(my-workers|my-exporter)",
    "workflow": ".*",
}
PAGE = ROOT / "docs/metrics.md"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


def test_every_query_of_the_board_and_every_rule_brings_numbers(stage: Stage, figures: list[str]) -> None:
    checker = Checker(stage.prometheus)
    checker.check_board(BOARD.read_text(), CHOSEN)
    of_board = checker.asked
    checker.check_rules()
    figures.append(f"observability: {checker.asked} queries, {of_board} of the board, {len(checker.problems)} bad")

    assert not checker.problems, "\n".join(checker.problems)
    assert of_board > 60
    assert checker.asked - of_board > 50


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("redisworld_step_claims_total", "redisworld_step_claim_total", "panel 'Claim outcomes': EMPTY"),
        ("job, queue) (redisworld_stream_pending", "job, stream) (redisworld_stream_pending", "no metric has stream"),
        ("{{queue}}", "{{stream}}", "its lines have no stream"),
        ('status=\\"failed\\"', 'outcome=\\"failed\\"', "panel 'Run failure ratio': EMPTY"),
        ("${datasource}", "abc-prom", "does not use the data source that was chosen"),
    ],
)  # fmt: skip
def test_a_planted_fault_in_the_board_is_found(stage: Stage, right: str, wrong: str, told: str) -> None:
    board = BOARD.read_text()
    assert right in board
    checker = Checker(stage.prometheus)

    checker.check_board(board.replace(right, wrong), CHOSEN)

    assert told in "\n".join(checker.problems)


@pytest.mark.parametrize(
    ("name", "right", "wrong", "told"),
    [
        ("RedisworldTimersLate", "timers_overdue_seconds", "timer_overdue_seconds", "EMPTY"),
        ("RedisworldOldestUnreadTooOld", "job, queue)", "job, stream)", "no metric has stream"),
        ("RedisworldReplayDivergence", "reason=", "cause=", "EMPTY"),
    ],
)
def test_a_planted_fault_in_an_alert_is_found(stage: Stage, name: str, right: str, wrong: str, told: str) -> None:
    rules = [rule for group in stage.prometheus.get("rules")["groups"] for rule in group["rules"]]
    [rule] = [rule for rule in rules if rule["name"] == name]
    assert right in rule["query"]
    checker = Checker(stage.prometheus)

    checker.check_rule(rule | {"query": rule["query"].replace(right, wrong)})

    assert f"rule {name}: " in "\n".join(checker.problems)
    assert told in "\n".join(checker.problems)


def test_promtool_finds_nothing_to_say_about_what_is_exported(stage: Stage) -> None:
    for page in stage.pages().values():
        answer = subprocess.run(
            ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
        )

        ours = [line for line in (answer.stdout + answer.stderr).splitlines() if "redisworld_" in line]
        assert ours == []
        assert "error while linting" not in answer.stdout + answer.stderr


def test_every_exported_metric_is_on_the_page_and_every_one_on_the_page_is_exported(stage: Stage) -> None:
    documented = {
        name: frozenset(re.findall(r"`(\w+)`", labels)) - {"le"}
        for name, labels in re.findall(r"^\| `(redisworld_\w+)` \| \w+ \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    }
    exported: dict[str, frozenset[str]] = {}
    for page in stage.pages().values():
        families = re.findall(r"^# TYPE (redisworld_\w+) (\w+)$", page, re.MULTILINE)
        assert len(families) == len(dict(families)), "a metric is there twice"
        for name, _ in families:
            series = re.findall(rf"^{name}(?:_count|_sum|_bucket)?(?:\{{(.*)\}})? ", page, re.MULTILINE)
            labels = {label for line in series for label in re.findall(r'(\w+)="', line)} - {"le"}
            exported[name] = exported.get(name, frozenset()) | labels

    assert documented == exported


def test_script_kept_counts_and_counters_of_workers_say_what_the_logs_say(stage: Stage) -> None:
    logs = counted_in_logs(stage.raw)
    assert served(stage.exporter, logs) == logs
    assert served(stage.second, logs) == logs, "an exporter inside a worker says the same"

    workers = (stage.first, stage.second)
    total = {
        "started": sum(metric(worker, "step_claims_total", outcome="started") for worker in workers),
        "run_context": sum(metric(worker, "step_prologue_total", path="run_context") for worker in workers),
        "runs_get": sum(metric(worker, "step_prologue_total", path="runs_get") for worker in workers),
        "lazy": sum(metric(worker, "lazy_run_fetches_total", reason="last_completer") for worker in workers),
        "finished": sum(metric(worker, "steps_finished_total", outcome="completed") for worker in workers),
        "buried": sum(metric(worker, "dead_lettered_total") for worker in workers),
    }
    assert total == {
        "started": logs["steps_started"],
        "run_context": QUEUED,
        "runs_get": 0,
        "lazy": lazy_fetches_in_logs(stage.raw),
        "finished": logs["steps_completed"],
        "buried": WAVES,
    }
    assert 0 < total["lazy"] <= WAVES * (FANS + 1)
    assert metric(stage.exporter, "recorded_messages_buried_total") == WAVES


def served(process: WorkerProcess, names: dict[str, int]) -> dict[str, int]:
    """What an exporter says of the counts that the logs know too."""
    found = {}
    for name in names:
        noun, _, verb = name.rpartition("_")
        plain = metric(process, f"recorded_{name}_total")
        by_label = [
            metric(process, f"recorded_{noun}_finished_total", **{label: verb}) for label in ("status", "outcome")
        ]
        found[name] = int(plain + sum(by_label))
    return found


async def test_after_a_sigkill_the_counts_are_those_of_the_logs_and_the_dead_worker_is_missed(stage: Stage) -> None:
    third = cli_worker(stage.workers, APP, "--lease", "4s", "--concurrency", "2")
    await eventually(lambda: metric(stage.exporter, "workers", state="ready") == 3)
    async with World.connect(stage.url) as world:
        for number in range(12):  # until one of the three holds a body
            await world.start(seen_app.waits, "probe:gate", run_id=f"gated-{number}")
        await eventually(lambda: str(third.pid).encode() in stage.raw.lrange("probe:gate:held", 0, -1))
        os.kill(third.pid, signal.SIGKILL)
        stage.raw.set("probe:gate", 1)
        for number in range(12):
            await world.run(f"gated-{number}").result(timeout=30)
    logs = counted_in_logs(stage.raw)
    assert served(stage.exporter, logs) == logs
    assert metric(stage.exporter, "recorded_messages_reclaimed_total") >= 1
    [beat] = [key for key in stage.raw.scan_iter("rw:{default}:worker:*") if f":{third.pid}:".encode() in key]
    assert 0 < stage.raw.pttl(beat) <= 15_000
    stage.raw.pexpire(beat, 1)  # the time that nobody needs to wait for here
    await eventually(lambda: metric(stage.exporter, "workers") == 2, what="the dead worker missed")

    stage.first.stop()
    stage.second.stop()
    assert {stage.first.wait(20), stage.second.wait(20)} == {0}
    page = get(stage.exporter, "/metrics")[1]
    assert 'redisworld_workers{state="ready"} 0.0' in page
    assert 'redisworld_stream_length{queue="steps:side"} 0.0' in page, "also a queue that no worker serves any more"
    none_ready = 'namespace_job:redisworld_workers_ready:max{job="my-exporter"} == 0'
    await eventually(lambda: stage.prometheus.samples(none_ready), what="the exporter still tells")


def test_promtool_accepts_the_rules_and_their_tests() -> None:
    promtool("check", "rules", "--lint=all", *RULES)
    promtool("test", "rules", Path(__file__).with_name("rules_test.yaml"))


def promtool(*arguments: str | Path, text: str = "") -> str:
    """What promtool says; AssertionError with it where it finds errors."""
    answer = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 3), answer.stdout + answer.stderr  # 3: advice about names of metrics
    return answer.stdout + answer.stderr


def test_every_alert_is_tested_and_fires_in_a_test() -> None:
    alerts = {name for path in RULES for name in re.findall(r"alert: (\w+)", path.read_text())}
    text = Path(__file__).with_name("rules_test.yaml").read_text()

    assert set(re.findall(r"alertname: (\w+)\n\s+eval_time: \w+\n\s+exp_alerts:", text)) == alerts
