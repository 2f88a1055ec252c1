"""What is on the stage of the proof: a Redis, an exporter, two workers, a Prometheus, and work of every kind."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import msgspec
import redis

from redisworld import World
from redisworld.events import EventKind
from redisworld.spawn import private_redis
from tests.apps import seen_app
from tests.chaos import invariants
from tests.chaos.probing import cli_worker, get
from tests.chaos.processes import ROOT, WorkerProcess, Workers, eventually, until
from tests.observability.scraping import Prometheus, scraping

APP = "tests.apps.seen_app:wf"
RULES = sorted((ROOT / "helm/redisworld/rules").glob("*.yaml"))
BOARD = ROOT / "helm/redisworld/dashboards/overview.json"

FANS = 2
WIDTH = 6
WAVES = 3
"""One more than there are workers: some worker does each kind of work twice, so that its series rises."""
QUEUED = WAVES * (FANS * WIDTH + 1)
"""Step messages of the work below: of a fan-out all children but the inline one, of a retry its second attempt."""


class Stage(msgspec.Struct, frozen=True):
    """Everything that runs."""

    raw: redis.Redis
    url: str
    workers: Workers
    first: WorkerProcess
    second: WorkerProcess
    exporter: WorkerProcess
    prometheus: Prometheus

    def pages(self) -> dict[str, str]:
        """What /metrics says, by process."""
        named = {"first": self.first, "second": self.second, "exporter": self.exporter}
        return {name: get(process, "/metrics")[1] for name, process in named.items()}


def exporter_process(workers: Workers, *options: str) -> WorkerProcess:
    """``redisworld exporter``, which ends with the workers."""
    command = [sys.executable, "-m", "redisworld", "exporter", "--url", workers.url]
    command += ["--metrics-host", "127.0.0.1", "--metrics-port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDISWORLD_")}
    process = WorkerProcess(command, environment, workers.directory / f"exporter-{len(workers.started)}.log")
    workers.started.append(process)
    until(lambda: _started(process), timeout=20, what="exporter started")
    return process


def _started(process: WorkerProcess) -> bool:
    assert process.returncode is None, process.log()
    return "exporter started" in process.log()


def address(process: WorkerProcess) -> str:
    """Host and port that a process serves on."""
    return process.log().partition("on http://")[2].split('"')[0]


@contextmanager
def staged(directory: Path) -> Iterator[Stage]:
    """The stage, after all the work is done and has been scraped."""
    with ExitStack() as stack:
        server = stack.enter_context(private_redis(tcp=True, allow_wheel=True))
        raw = stack.enter_context(redis.Redis.from_url(server.url))
        workers = stack.enter_context(Workers(server.url, directory))
        exporter = exporter_process(workers)
        first = cli_worker(workers, APP, "--lease", "4s", ready=False)
        second = cli_worker(workers, APP, "--lease", "4s", "--exporter")
        first.wait_ready()
        jobs = {"my-workers": [address(first), address(second)], "my-exporter": [address(exporter)]}
        prometheus = stack.enter_context(scraping(directory, jobs, RULES))
        stage = Stage(raw, server.url, workers, first, second, exporter, prometheus)
        anyio.run(perform, stage)
        yield stage


async def perform(stage: Stage) -> None:
    """All the work, in waves: what rises from one scrape to the next has a rate."""
    async with World.connect(stage.url) as world:
        for number in range(WAVES):
            await work(world, stage.raw, str(number))
            await scraped_twice(stage.prometheus)


async def work(world: World, raw: redis.Redis, wave: str) -> None:
    """Completed, failed, retried, cancelled, by timer, by hook; a dead letter, a lost connection; one goes on."""
    async with anyio.create_task_group() as tasks:
        for number in range(FANS):
            run = await world.start(seen_app.fans_out, WIDTH, run_id=f"fans-{wave}-{number}")
            tasks.start_soon(run.result)
        for workflow, arguments in ((seen_app.retries, ()), (seen_app.sleeps, (0.2,))):
            run = await world.start(workflow, *arguments, run_id=f"{workflow.name}-{wave}")
            tasks.start_soon(run.result)
        asking = await world.start(seen_app.asks, f"token-{wave}", run_id=f"asks-{wave}")
        await eventually(lambda: raw.exists(world.partition(f"token-{wave}").hook(f"token-{wave}")))
        await world.resume(f"token-{wave}", "yes")
        tasks.start_soon(asking.result)
    await world.start(seen_app.fails, run_id=f"fails-{wave}")
    await world.start(seen_app.sleeps, 3600, run_id=f"open-{wave}")
    await world.start(seen_app.sleeps, 3600, run_id=f"cancelled-{wave}")
    await eventually(lambda: raw.zcard(world.partition(f"cancelled-{wave}").delayed))
    await world.cancel(f"cancelled-{wave}", terminate=True)
    raw.xadd(world.partitions[0].steps(), {"kind": "step", "msg": b"\xc1"})
    await eventually(lambda: sum(raw.xlen(partition.dead) for partition in world.partitions) == int(wave) + 1)
    await eventually(lambda: raw.hget(world.partition(f"fails-{wave}").run(f"fails-{wave}"), "status") == b"failed")
    for client in raw.client_list():
        if client["name"] == "redisworld" and client["cmd"].startswith("xreadgroup"):
            raw.client_kill_filter(_id=client["id"])


async def scraped_twice(prometheus: Prometheus) -> None:
    """Return when every target was scraped twice from now on."""
    before = prometheus.value("sum(count_over_time(up[1h]))")
    targets = len(prometheus.get("targets")["activeTargets"])
    with anyio.fail_after(20):
        while prometheus.value("sum(count_over_time(up[1h]))") < before + 2 * targets + 1:  # noqa: ASYNC110
            await anyio.sleep(0.1)


def counted_in_logs(raw: redis.Redis) -> dict[str, int]:
    """What the scripts should have counted, by what the logs of all runs say."""
    kinds: Counter[EventKind] = Counter()
    for partition in invariants.partitions(raw):
        for run_id in invariants.run_ids(raw, partition):
            kinds.update(event.kind for event in invariants.log_of(raw, partition, run_id))
    names = {
        "runs_created": EventKind.RUN_CREATED,
        "runs_started": EventKind.RUN_STARTED,
        "runs_completed": EventKind.RUN_COMPLETED,
        "runs_failed": EventKind.RUN_FAILED,
        "runs_cancelled": EventKind.RUN_CANCELLED,
        "steps_created": EventKind.STEP_CREATED,
        "steps_started": EventKind.STEP_STARTED,
        "steps_completed": EventKind.STEP_COMPLETED,
        "steps_failed": EventKind.STEP_FAILED,
        "steps_retried": EventKind.STEP_RETRYING,
        "waits_completed": EventKind.WAIT_COMPLETED,
        "hooks_received": EventKind.HOOK_RECEIVED,
    }
    return {name: kinds[kind] for name, kind in names.items()}


def lazy_fetches_in_logs(raw: redis.Redis) -> int:
    """Runs whose last completer was a queued step: one lazy run fetch each."""
    fetches = 0
    for partition in invariants.partitions(raw):
        for run_id in invariants.run_ids(raw, partition):
            log = invariants.log_of(raw, partition, run_id)
            started = [event.id for event in log if event.kind == EventKind.STEP_STARTED]  # the inline one comes first
            completed = [event for event in log if event.kind == EventKind.STEP_COMPLETED]
            if completed and (completed[-1].id != started[0] or completed[-1].attempt > 1):
                fetches += 1
    return fetches
