"""What does a worker for timers alone do, and what does it leave to others? (``redisworld worker --timers-only``)"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from redisworld import Settings, World
from redisworld.keys import Partition
from tests.apps import shop_app
from tests.chaos import invariants
from tests.integration.cli_calls import answer, answer_json, refusal
from tests.integration.cli_process import ROOT, WAIT_S, environment, eventually, worker
from tests.integration.operations_scenes import SHOP, start, until_ended, until_waits, until_worker_is_listed

PARTITION = Partition("default", 0)


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("REDISWORLD_URL", redis_url)

    async def make() -> None:
        async with World.connect(settings=Settings(url=redis_url, partitions=1)):
            pass

    asyncio.run(make())


@contextmanager
def timekeeper(url: str, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The process, where no application can be imported."""
    settings = {"REDISWORLD_URL": url, "PYTHONPATH": str(ROOT), **variables}
    with subprocess.Popen(
        [sys.executable, "-m", "redisworld", "worker", "--timers-only", "--metrics-port", "0", *arguments],
        cwd=tempfile.gettempdir(), env=environment(**settings), stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_it_promotes_what_is_due_and_takes_none_of_it(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    with worker(redis_url, app=SHOP):
        start(redis_url, shop_app.charge, "7", run_id="retried")
        until_waits(redis_url, "retried", "retry")

    async def later() -> None:
        async with World.connect(settings=Settings(url=redis_url)) as world:
            await world.start(shop_app.publish, "cat.png", run_id="later", delay="1s")

    asyncio.run(later())
    raw.zadd(PARTITION.delayed, {raw.zrange(PARTITION.delayed, -1, -1)[0]: 1})  # the retry is due

    with timekeeper(redis_url, "--exporter") as process:
        eventually(lambda: raw.zcard(PARTITION.delayed) == 0)
        until_worker_is_listed(redis_url, 1)
        assert raw.xlen(PARTITION.workflows()) == raw.xlen(PARTITION.steps()) == 1
        assert not any(
            g["pending"] for key in (PARTITION.workflows(), PARTITION.steps()) for g in raw.xinfo_groups(key)
        )
        assert "none: timers only" in answer(capsys, "workers")
        assert {line["workers"] for line in answer_json(capsys, "queues")} == {0}, "it reads no stream"
        assert [line["served"] for line in answer_json(capsys, "deployments")] in ([], [False])

        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        log = process.stderr.read()
    assert "none, timers only" in log
    assert answer(capsys, "workers") == "no worker lives\n"
    with worker(redis_url, app=SHOP):
        until_ended(redis_url, "later")
    invariants.check(raw, shop_app.wf, settled=False)


def test_it_deletes_finished_runs_and_recovers_wakes_and_leaves_steps_to_those_who_know_them(
    redis_url: str, raw: redis.Redis
) -> None:
    with worker(redis_url, app=SHOP):
        start(redis_url, shop_app.publish, "cat.png", run_id="over")
        until_ended(redis_url, "over")
    raw.zadd(PARTITION.expiring, {"over": 1})
    start(redis_url, shop_app.publish, "dog.png", run_id="lost")
    raw.delete(PARTITION.workflows())

    often = {"REDISWORLD_RECOVER_EVERY_MS": "100", "REDISWORLD_REAP_EVERY_MS": "1000"}
    with timekeeper(redis_url, **often):
        eventually(lambda: raw.exists(PARTITION.run("over")) == 0)
        eventually(lambda: raw.xlen(PARTITION.workflows()) == 1)
        assert raw.exists(f"{PARTITION.tag}reclaim:runs") == 0, "it takes no turn from those who recover steps"
    with worker(redis_url, app=SHOP):
        until_ended(redis_url, "lost")
    invariants.check(raw, shop_app.wf)


def test_it_needs_no_application_and_refuses_what_would_be_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, why in (
        ([SHOP, "--timers-only"], "leave out the module"),
        (["--timers-only", "--queue", "gpu"], "--queue"),
        (["--timers-only", "--exporter", "--metrics-port", "-1"], "--metrics-port is off"),
        ([], "give --timers-only"),
    ):
        code, line = refusal(capsys, "worker", *arguments)
        assert (code, why in line) == (2, True), line


def test_it_goes_on_when_its_connections_break_and_ends_when_it_is_told(redis_url: str, raw: redis.Redis) -> None:
    with timekeeper(redis_url) as process:
        until_worker_is_listed(redis_url, 1)
        raw.client_kill_filter(_type="normal", skipme=True)
        start(redis_url, shop_app.publish, "cat.png", run_id="r")
        raw.zadd(PARTITION.delayed, {"step r nobody": 1})  # a delayed message without a body

        eventually(lambda: raw.zcard(PARTITION.delayed) == 0)
        process.terminate()
        assert process.wait(WAIT_S) == 0
