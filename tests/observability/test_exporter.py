"""Does the exporter tell the truth: without workers, while Redis is away, and to many scrapers at once? (A42)"""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from consumers.exporter import Exporter
from redisworld import World
from redisworld.cli import main
from redisworld.keys import worker_key
from redisworld.spawn import private_redis
from tests.apps import seen_app
from tests.chaos.probing import cli_worker, get, metric, probe
from tests.chaos.processes import Workers, eventually, running
from tests.observability.stage import APP, address, exporter_process

pytestmark = pytest.mark.anyio

RUNS = 30


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    with running(redis_url, tmp_path) as started:
        yield started


async def test_without_any_worker_it_shows_what_waits_and_after_all_have_gone_it_shows_it_again(
    raw: redis.Redis, workers: Workers
) -> None:
    exporter = exporter_process(workers)
    async with World.connect(workers.url) as world:
        for number in range(RUNS):
            await world.start(seen_app.waits, "probe:gate", run_id=f"r{number}")
        assert metric(exporter, "stream_lag_messages", queue="workflows") == RUNS
        assert metric(exporter, "runs", status="pending") == RUNS
        assert metric(exporter, "workers") == 0
        raw.set("probe:gate", 1)

        worker = cli_worker(workers, APP, "--lease", "2s")
        for number in range(RUNS):
            await world.run(f"r{number}").result(timeout=20)
        await eventually(lambda: metric(exporter, "workers", state="ready") == 1)
        worker.stop()
        assert worker.wait(20) == 0
        assert metric(exporter, "workers") == 0
        await world.start(seen_app.waits, "probe:gate", run_id="late")
    assert metric(exporter, "stream_lag_messages", queue="workflows") == 1
    assert metric(exporter, "recorded_runs_finished_total", status="completed") == RUNS
    assert metric(exporter, "stream_oldest_unread_age_seconds", queue="workflows") < 60
    exporter.stop()
    assert exporter.wait(10) == 0


async def test_a_worker_that_drains_says_so_and_leaves_the_list_at_once(raw: redis.Redis, workers: Workers) -> None:
    exporter = exporter_process(workers)
    worker = cli_worker(workers, APP, "--lease", "2s")
    async with World.connect(workers.url) as world:
        await world.start(seen_app.waits, "probe:gate", run_id="r")
        await eventually(lambda: raw.exists("probe:gate:held"))
        worker.stop()
        await eventually(lambda: metric(exporter, "workers", state="draining") == 1)
        assert metric(exporter, "workers") == 1
        raw.set("probe:gate", 1)
    assert worker.wait(20) == 0
    assert metric(exporter, "workers") == 0
    assert not list(raw.scan_iter(worker_key("default", "*")))


async def test_while_redis_is_away_there_are_no_numbers_and_when_it_is_back_there_are(tmp_path: Path) -> None:
    with private_redis(allow_wheel=True) as server, running(server.url, tmp_path) as workers:
        exporter = exporter_process(workers)
        assert metric(exporter, "redis_up") == 1
        assert probe(exporter, "/readyz") == 200
        server.kill()

        told = set(re.findall(r"^redisworld_(\w+)", get(exporter, "/metrics")[1], re.MULTILINE))
        assert told == {"redis_up", "build_info"}
        assert metric(exporter, "redis_up") == 0
        assert probe(exporter, "/readyz") == 503
        assert "cannot be read" in get(exporter, "/readyz")[1]
        assert probe(exporter, "/healthz") == 200
        server.restart()
        await eventually(lambda: metric(exporter, "redis_up") == 1)
        assert metric(exporter, "stream_length") == 0
        assert exporter.log().count("WARNING") <= 5 * 2, "one line a second"


async def test_scrapers_that_come_together_share_one_read(raw: redis.Redis, workers: Workers) -> None:
    exporter = exporter_process(workers)
    metric(exporter, "redis_up")
    raw.config_resetstat()
    raw.client_pause(2_000)  # so that all of them come while the first one waits
    pages: list[bytes] = []

    def scrape() -> None:
        with urllib.request.urlopen(f"http://{address(exporter)}/metrics", timeout=10) as answer:
            pages.append(answer.read())

    scrapers = [threading.Thread(target=scrape) for _ in range(12)]
    for scraper in scrapers:
        scraper.start()
    for scraper in scrapers:
        scraper.join()

    assert len(pages) == 12
    assert all(b"redisworld_redis_up 1.0" in page for page in pages)
    assert raw.info("commandstats")["cmdstat_time"]["calls"] <= 2, "the first one's, and at most one for the others"


async def test_a_failed_read_is_shared_too_and_never_an_older_success(tmp_path: Path) -> None:
    with private_redis(allow_wheel=True) as server:
        async with World.connect(server.url) as world:
            with Exporter(world) as exporter:
                assert exporter.look() is not None
                server.kill()

                assert exporter.look() is None
                assert exporter.ready() is not None
                assert exporter.alive() is None


def test_help_says_what_it_is_for_and_what_it_shows_while_redis_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exporter", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "one for each namespace" in shown
    assert "redisworld_redis_up is 0" in shown
    for option in ("--url", "--namespace", "--metrics-port", "--metrics-host", "--log-level", "--log-format"):
        assert option in shown


@pytest.mark.parametrize(
    ("arguments", "variables", "told"),
    [
        (["exporter", "--metrics-port", "none"], {}, "an exporter without a port does nothing"),
        (["exporter", "--metrics-port", "70000"], {}, "must be a whole number from -1 to 65535"),
        (["exporter", "--url", "redisworld://embedded"], {}, "nobody else can reach it"),
        (["worker", APP, "--exporter", "--metrics-port", "none"], {}, "--metrics-port is off"),
        (["worker", APP], {"REDISWORLD_EXPORTER": "maybe"}, "REDISWORLD_EXPORTER='maybe': must be true, 1, false or 0"),
    ],
)
def test_what_cannot_be_served_is_refused(
    arguments: list[str],
    variables: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert main(arguments) == 2
    assert told in capsys.readouterr().err
