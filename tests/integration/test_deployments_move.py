"""Does ``redisworld deployments move`` mend a deployment that nobody serves, also when it is killed half-way?"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from threading import Thread

import pytest
import redis

from redisworld import Settings, World
from redisworld.keys import Partition
from tests.apps import shop_app
from tests.chaos import invariants
from tests.integration.cli_calls import answer, answer_json, called, refusal
from tests.integration.cli_process import ROOT, environment, eventually, worker
from tests.integration.operations_scenes import (
    SHOP,
    miss_heartbeat,
    start,
    until_ended,
    until_waits,
    until_worker_is_listed,
)

RUNS = 1_500


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("REDISWORLD_URL", redis_url)


def count(raw: redis.Redis, name: str) -> int:
    """A counter of the scripts, over all partitions."""
    return sum(int(raw.hget(Partition("default", number).stats, name) or 0) for number in range(4))


def test_runs_of_a_deployment_that_is_gone_are_moved_and_complete(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    with worker(redis_url, "--deployment", "v1", "--affinity", app=SHOP) as gone:
        until_worker_is_listed(redis_url, 1)
        start(redis_url, shop_app.remind, "milk", run_id="asleep", deployment="v1", affinity=True)
        start(redis_url, shop_app.charge, "7", run_id="retries", deployment="v1", affinity=True)
        start(redis_url, shop_app.fulfil, "42", run_id="approval", deployment="v1", affinity=True)
        until_waits(redis_url, "asleep", "timer")
        until_waits(redis_url, "retries", "retry")
        until_waits(redis_url, "approval", "hook")
        gone.process.kill()
        gone.process.wait()
    miss_heartbeat(raw)
    start(redis_url, shop_app.publish, "cat.png", run_id="new", deployment="v1", affinity=True)
    with worker(redis_url, "--deployment", "v2", "--affinity", app=SHOP):
        until_worker_is_listed(redis_url, 1)
        lines = {line["deployment"]: line for line in answer_json(capsys, "deployments")}
        assert (lines["v1"]["served"], lines["v1"]["open_runs"], lines["v1"]["unread"]) == (False, 4, 1)

        would = answer_json(capsys, "deployments", "move", "v1", "v2", "--dry-run")
        assert (would["moved"], would["runs"], would["messages"], would["delayed"]) == (False, 4, 1, 1)
        assert answer_json(capsys, "deployments")[0]["open_runs"] == 4
        told = answer(capsys, "deployments", "move", "v1", "v2", "--yes")
        assert told == "moved from v1 to v2: 4 open runs, 1 waiting message, 1 delayed message\n"

        until_ended(redis_url, "new")
        answer(capsys, "hook", "resume", "order:42", '"yes"')
        until_ended(redis_url, "approval")
        assert {line["stream"] for line in answer_json(capsys, "timers") if line["what"] == "retry"} == {"steps@v2"}
        assert [line["deployment"] for line in answer_json(capsys, "deployments")] == ["v2"]
        assert answer_json(capsys, "run", "result", "new")["result"] == ["cat.png", "cat.png"]
    invariants.check(raw, shop_app.wf, settled=False)


def test_a_move_that_is_killed_is_given_again_and_every_run_completes_once(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def begin() -> None:
        settings = Settings(url=redis_url, deployment="v1", affinity=True)
        async with World.connect(settings=settings) as world:
            for first in range(0, RUNS, 100):
                await asyncio.gather(
                    *(world.start(shop_app.publish, "cat", run_id=f"r{n}") for n in range(first, first + 100))
                )

    asyncio.run(begin())
    command = [sys.executable, "-m", "redisworld", "deployments", "move", "v1", "v2", "--yes"]
    for counter, kills in (("runs_moved", 2), ("messages_moved", 2)):
        for _ in range(kills):
            before = count(raw, counter)
            with subprocess.Popen(command, cwd=ROOT, env=environment(REDISWORLD_URL=redis_url)) as mover:
                try:
                    eventually(lambda before=before, counter=counter: count(raw, counter) > before)
                finally:
                    mover.kill()

    told = answer_json(capsys, "deployments", "move", "v1", "v2", "--yes")

    assert count(raw, "runs_moved") == count(raw, "messages_moved") == RUNS
    assert told["messages"] > 0, "each move before was killed while there was something left to do"
    assert told["held"] == {}
    with worker(redis_url, "--deployment", "v2", "--affinity", app=SHOP) as new:
        assert new.process.stderr is not None
        Thread(target=new.process.stderr.read, daemon=True).start()  # a pipe that nobody reads gets full
        eventually(lambda: count(raw, "runs_completed") == RUNS)
    assert count(raw, "steps_completed") == count(raw, "steps_started") == 2 * RUNS
    invariants.check(raw, shop_app.wf)


def test_a_move_says_what_it_needs(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    start(redis_url, shop_app.remind, "x", run_id="r", deployment="v1", affinity=True)

    for arguments, why in (
        (["v1", "v2"], "add --yes"),
        (["v1", "--yes"], "name TO, or give --unpin"),
        (["v1", "v2", "--unpin", "--yes"], "one of the two"),
        (["v1", "v1", "--yes"], "two deployments"),
        (["v1", "a b", "--yes"], "a plain word"),
    ):
        code, line = refusal(capsys, "deployments", "move", *arguments)
        assert (code, why in line) == (2, True), line
    assert "nobody serves them there yet: redisworld worker MODULE --deployment v2 --affinity" in answer(
        capsys, "deployments", "move", "v1", "v2", "--yes"
    )
    told = answer(capsys, "deployments", "move", "v2", "--unpin", "--yes")
    assert told.startswith("moved from v2 to no deployment: 1 open run, 1 waiting message")


def test_what_a_live_worker_holds_stays_with_it(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    with worker(redis_url, "--deployment", "v1", "--affinity", app=SHOP) as old:
        until_worker_is_listed(redis_url, 1)
        start(redis_url, shop_app.publish, "cat.png", 3, run_id="r", deployment="v1", affinity=True)
        until_waits(redis_url, "r", "step", "step")
        code, out, err = called(capsys, "deployments", "move", "v1", "v2", "--yes")
        assert (code, out) == (1, "")
        assert "stop them first, or leave to them what they hold" in err

        told = answer(capsys, "deployments", "move", "v1", "v2", "--leave-held", "--yes")

        assert "held by live workers of v1, which finish them: " in told
        with worker(redis_url, "--deployment", "v2", "--affinity", app=SHOP):  # what comes of it may go there
            until_ended(redis_url, "r")
            old.process.terminate()
            old.process.wait()
    assert answer_json(capsys, "run", "result", "r")["result"] == ["cat.png", "cat.png"]
    assert count(raw, "steps_started") == 2
    invariants.check(raw, shop_app.wf)
