"""Do rendered containers do what the chart says? Command, environment, probes and drain, against a real Redis."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
import redis

from redisworld import Settings, World
from redisworld.spawn import PrivateRedis, private_redis
from redisworld.world import read_state
from tests.helm import keda
from tests.helm.busy_app import busy, lifelong, waiting
from tests.helm.kubelet import paused, running
from tests.helm.rendering import container, environment, least, merged, one, render
from tests.integration.cli_process import ROOT
from tests.integration.cli_process import environment as clean_environment

SECRETS = {"r1/pw": "p/w@d?#%41+", "r1/user": "worker"}
PERIOD_S = 0.02
QUOTA = 0.25


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateRedis]:
    """A Redis with the ACL users of docs/kubernetes.md."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    users = re.findall(r"ACL SETUSER (\w+) on >… (.*)", page)
    assert [name for name, _ in users] == ["worker", "keda"]
    user = [word for name, may in users for word in ("--user", name, "on", f">{SECRETS['r1/pw']}", *may.split())]
    with private_redis(tcp=True, allow_wheel=True, args=user) as started:
        yield started


def values(server: PrivateRedis) -> dict[str, object]:
    """Values for the test's application on that Redis."""
    redis = {
        "url": server.tcp_url,
        "existingSecret": "r1",
        "existingSecretPasswordKey": "pw",
        "existingSecretUsernameKey": "user",
    }
    defaults = {"concurrency": 4, "drainGraceSeconds": 20, "settings": {"lease_ms": "5s"}}
    return least(app="tests.helm.busy_app:wf", redis=redis, defaults=defaults, runs={"partitions": 2})


@pytest.mark.anyio
async def test_a_rendered_worker_starts_is_ready_works_and_drains_at_sigterm(server: PrivateRedis) -> None:
    documents = render(values(server))
    spec = container(documents, "-default/worker")
    grace = one(documents, "Deployment", "-default")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]

    with running(spec, secrets=SECRETS, REDISWORLD_METRICS_HOST="127.0.0.1") as worker:
        worker.becomes("startupProbe", True)
        worker.becomes("readinessProbe", True)
        assert worker.asks("livenessProbe")
        async with World.connect(server.url) as world:
            await world.start(waiting, 3.0, run_id="drained")
            while not any(step.status == "running" for step in (await world.steps("drained")).values()):  # noqa: ASYNC110  # it can only be asked
                await anyio.sleep(0.05)
            code = worker.terminate(grace)

            assert code == 0, worker.log()
            assert '"worker stopped"' in worker.log()
            assert SECRETS["r1/pw"] not in worker.log()
            (step,) = (await world.steps("drained")).values()
            assert (step.status, step.attempt) == ("completed", 1), "the drain waited for the body"


@contextmanager
def throttled(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A quarter of a CPU: it runs 5 ms of each 20, as a quota in its cgroup would have it (but by the wall clock)."""
    ended = threading.Event()

    def throttle() -> None:
        while not ended.is_set():
            process.send_signal(signal.SIGCONT)
            time.sleep(PERIOD_S * QUOTA)
            process.send_signal(signal.SIGSTOP)
            ended.wait(PERIOD_S * (1 - QUOTA))
        process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.anyio
async def test_neither_an_outage_of_redis_nor_busy_bodies_restart_a_pod(server: PrivateRedis, outage_s: float) -> None:
    spec = container(render(values(server)), "-default/worker")
    probe = spec["livenessProbe"]
    assert "httpGet" in probe, "starts no interpreter"

    with running(spec, secrets=SECRETS, REDISWORLD_METRICS_HOST="127.0.0.1") as worker:
        worker.becomes("readinessProbe", True)
        async with World.connect(server.url) as world:
            await world.start(busy, 4, outage_s + 5, run_id="busy")
            while sum(step.status == "running" for step in (await world.steps("busy")).values()) < 4:  # noqa: ASYNC110  # likewise
                await anyio.sleep(0.05)
        missed = worst = asked = 0
        with throttled(worker.process), paused(server.process):
            ends = time.monotonic() + outage_s
            while time.monotonic() < ends:
                asked += 1
                missed = 0 if worker.asks("livenessProbe") else missed + 1
                worst = max(worst, missed)
                await anyio.sleep(0.5)
            assert not worker.asks("readinessProbe"), "it does say that Redis is away"
        assert asked > 2
        assert worst < probe["failureThreshold"], f"{worst} probes in a row had no answer:\n{worker.log()}"
        worker.becomes("readinessProbe", True)
        async with World.connect(server.url) as world:
            await world.run("busy").terminate()


@pytest.mark.anyio
async def test_the_always_on_pod_wakes_pools_at_zero_and_takes_no_work(server: PrivateRedis) -> None:
    documents = render(merged(values(server), {"autoscaling": {"mode": "keda", "minReplicas": 0}}))
    triggers = [trigger["metadata"] for trigger in one(documents, "ScaledObject", "-default")["spec"]["triggers"]]
    lags = [trigger for trigger in triggers if "lagCount" in trigger]
    pending = [trigger for trigger in triggers if "pendingEntriesCount" in trigger]
    pool, exporter = container(documents, "-default/worker"), container(documents, "-always-on/exporter")
    here = {"REDISWORLD_METRICS_HOST": "127.0.0.1"}

    async def until(true: Callable[[], bool]) -> None:
        with anyio.fail_after(60):
            while not true():  # noqa: ASYNC110  # Redis can only be asked
                await anyio.sleep(0.05)

    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        async with World.connect(server.url, settings=Settings(url=server.url, partitions=2)) as world:
            asleep = await world.start(lifelong, 1, 0.01, "5s", run_id="asleep")
            later = await world.start(waiting, 0.01, run_id="later", delay="5s")
            with running(pool, secrets=SECRETS, **here) as worker:
                await until(lambda: sum(client.zcard(partition.delayed) for partition in world.partitions) == 2)
                assert worker.terminate(30) == 0
            assert keda.wanted(client, triggers) == 0, "no pod is left, and both runs wait"

            nowhere = Path(tempfile.gettempdir())  # no application can be imported there
            with running(exporter, secrets=SECRETS, directory=nowhere, **here) as always_on:
                always_on.becomes("startupProbe", True)
                always_on.becomes("readinessProbe", True)
                await until(lambda: sum(count or 0 for count in keda.readings(client, lags)) == 2)
                assert keda.wanted(client, triggers) == 1
                assert not any(keda.readings(client, pending)), "it takes nothing"
                (only,) = (await read_state(world)).workers
                assert (only.streams, only.state, only.steps_limit) == ((), "ready", 0)
                with running(pool, secrets=SECRETS, **here):
                    assert await asleep.result(timeout=60) == 4
                    assert await later.result(timeout=60) == 0.01
                assert always_on.asks("livenessProbe")
                assert always_on.terminate(30) == 0


def test_helm_test_asks_doctor_and_makes_a_round_trip(server: PrivateRedis) -> None:
    own = {"test": {"workflow": "tests.helm.busy_app:waiting", "args": [0.01], "doctorIgnore": ["persistence"]}}
    documents = render(merged(values(server), own))

    with running(
        container(documents, "-default/worker"), secrets=SECRETS, REDISWORLD_METRICS_HOST="127.0.0.1"
    ) as worker:
        worker.becomes("readinessProbe", True)
        for name, told in (("round-trip", "0.01"), ("doctor", "")):
            spec = container(documents, f"-test/{name}")
            variables = {variable: SECRETS.get(value, value) for variable, value in environment(spec).items()}
            done = subprocess.run(
                [sys.executable, "-m", *spec["command"]],
                cwd=ROOT, env=clean_environment(**variables), capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            assert told in done.stdout


def test_the_user_for_keda_may_ask_what_keda_asks(server: PrivateRedis) -> None:
    documents = render(merged(values(server), {"autoscaling": {"mode": "keda"}}))
    triggers = [trigger["metadata"] for trigger in one(documents, "ScaledObject", "-default")["spec"]["triggers"]]

    with redis.Redis.from_url(str(server.tcp_url), username="keda", password=SECRETS["r1/pw"]) as client:
        readings = keda.readings(client, triggers)  # a NoPermissionError is none of the errors it takes for an answer
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.get("somebody's")

    assert len(readings) == len(triggers)
