"""What does a worker do while Redis says nothing at all, or is not there yet? (A36, A37, A44)"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
import redis

from redisworld import Settings, World
from redisworld.events import EventKind
from redisworld.spawn import private_redis
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.probing import cli_worker, get, metric, most_warnings_a_second, probe
from tests.chaos.processes import APP, WorkerProcess, Workers, eventually, running, until
from tests.chaos.proxy import preload, proxy, script
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio

SLACK_S = 4.0
"""What a machine with other work may add."""


@pytest.mark.parametrize("call", ["complete_many", "commit_pass", "renew_leases"])
async def test_a_half_open_connection_costs_one_time_out_and_no_body(tmp_path: Path, call: str) -> None:
    """A37: one connection goes silent with a reply on its way; all others live. A body of four leases, two workers."""
    with (
        private_redis(allow_wheel=True) as server,
        proxy(server.url) as between,
        redis.Redis.from_url(server.url) as raw,
        running(server.url, tmp_path) as workers,
    ):
        preload(raw)
        workers.url = between.url
        timeout_ms = 30_000 if call == "renew_leases" else 400
        for _ in range(2):
            workers.start(lease_ms=800, redis_timeout_ms=timeout_ms, env={"CHAOS_REDIS": server.url})
        async with World.connect(settings=Settings(url=server.url, partitions=2)) as world:
            fault = between.swallow_reply(script(call), times=1)
            run = await world.start(chaos_app.many_slow, 4, 3.0, run_id="half-open")
            assert await run.result(timeout=15) == 4
        assert fault.hits == 1
        await settled(raw)
        assert set(notes(raw, "half-open").values()) == {1}
        assert {attempt for _, attempt in logged(raw, "half-open")[EventKind.STEP_STARTED]} == {1}
        invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_sigterm_while_redis_is_a_black_hole_ends_the_process_soon_after_the_grace(
    tmp_path: Path, busy: bool
) -> None:
    """A44 in an outage: nothing can be handed back, so it waits for its lease; the process does not wait."""
    with (
        private_redis(allow_wheel=True) as server,
        proxy(server.url) as between,
        redis.Redis.from_url(server.url) as raw,
        running(between.url, tmp_path) as workers,
    ):
        worker = workers.start(grace_ms=1_000, env={"CHAOS_REDIS": server.url})
        async with World.connect(settings=Settings(url=server.url, partitions=2)) as world:
            if busy:
                await world.start(chaos_app.gate_then_note, "probe:gate", run_id="held")
                await eventually(lambda: notes(raw, "held"))
            between.swallow_all()
            await anyio.sleep(0.3)
            worker.stop()
            assert worker.wait(1 + 3 + 1 + 1 + SLACK_S) == 0
            assert "Traceback" not in worker.log()
            if busy:
                between.heal()
                raw.set("probe:gate", 1)
                workers.start(env={"CHAOS_REDIS": server.url})
                assert await world.run("held").result(timeout=10) == ["a", "d"]
        await settled(raw)
        invariants.check(raw, chaos_app.wf)


async def _stopped_while_blocked(
    raw: redis.Redis, workers: Workers, world: World, block_s: float, *, grace_ms: int
) -> WorkerProcess:
    """A worker that was told to stop while a body blocks its event loop for so long."""
    worker = workers.start(grace_ms=grace_ms)
    await world.start(chaos_app.one_blocking, block_s, run_id="blocked")
    await eventually(lambda: notes(raw, "blocked"))
    worker.stop()
    return worker


async def test_a_second_signal_ends_a_process_whose_body_blocks_the_event_loop(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    async with connect() as world:
        worker = await _stopped_while_blocked(raw, workers, world, 30.0, grace_ms=30_000)
        await anyio.sleep(0.2)
        worker.interrupt()
        assert worker.wait(15) == 1, "the body blocks for 30 s"
        await world.run("blocked").terminate()


async def test_a_body_that_blocks_the_event_loop_does_not_hold_up_the_end_of_a_drain(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    async with connect() as world:
        worker = await _stopped_while_blocked(raw, workers, world, 60.0, grace_ms=100)
        assert worker.wait(30) == 0, "the body blocks for 60 s"
        assert "a body blocks the event loop" in worker.log()
        await world.run("blocked").terminate()


async def test_a_worker_waits_for_a_redis_that_is_down_when_it_starts(tmp_path: Path) -> None:
    """Both are often restarted together. It says so once a second, and one that stays away ends the process."""
    with (
        private_redis(allow_wheel=True, args=("--appendonly", "yes")) as server,
        running(server.url, tmp_path) as workers,
    ):
        server.kill()
        patient = cli_worker(workers, APP, ready=False)
        hasty = cli_worker(workers, APP, ready=False, env={"REDISWORLD_RETRY_REDIS_MS": "700"})
        assert hasty.wait(15) == 1
        [line] = [line for line in hasty.log().splitlines() if "error: " in line]
        assert "redisworld: error: Redis at unix://" in line
        assert patient.returncode is None
        server.restart()
        patient.wait_ready()
        async with World.connect(server.url) as world:
            run = await world.start(chaos_app.two_notes, run_id="after")
            assert await run.result(timeout=10) == ["x", "y"]
        assert most_warnings_a_second(patient) <= 1
        assert "Traceback" not in patient.log() + hasty.log()


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ("default:wrong@", "refuses the user or password of the URL"),
        ("", "asks for a password, and the URL has none"),
        ("reader:pw@", "does not let its user do what redisworld needs: this user has no permissions"),
    ],
    ids=["wrong password", "no password", "may not write"],
)
async def test_a_redis_that_refuses_the_user_ends_the_start_at_once_with_the_reason(
    tmp_path: Path, who: str, told: str
) -> None:
    """A36: waiting would not help, and the password is not told."""
    with private_redis(tcp=True, allow_wheel=True) as server, running(server.url, tmp_path) as workers:
        with redis.Redis.from_url(server.url) as raw:
            raw.execute_command(
                "ACL", "SETUSER", "reader", "on", ">pw", "~*", "&*", "+@read", "+ping", "+hello", "+client"
            )
            raw.config_set("requirepass", "right")
        url = str(server.tcp_url).replace("redis://", f"redis://{who}")
        worker = cli_worker(workers, APP, url=url, ready=False)
        assert worker.wait(15) == 1, "it would wait 20 s for a Redis that is down"
        line = worker.log().splitlines()[-1]
        assert line.startswith("redisworld: error: ")
        assert told in line
        assert "wrong" not in line.replace("WRONGPASS", "")


async def test_readiness_is_red_while_any_loop_fails_and_the_others_work_on(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A42: another program's key where a stream of one partition should be. One line a second, a gauge, no exit."""
    async with connect(partitions=2) as world:
        worker = cli_worker(workers, APP, "--partitions", "2", "--lease", "1s")
        until(lambda: probe(worker, "/readyz") == 200)
        first = world.partitions[0]
        raw.delete(first.steps())
        raw.set(first.steps(), "not a stream")
        until(lambda: probe(worker, "/readyz") == 503, what="red")
        for _ in range(20):
            await anyio.sleep(0.1)
            assert probe(worker, "/readyz") == 503, "green in between: another loop spoke for the one that fails"
            assert probe(worker, "/healthz") == 200
        assert "steps" in get(worker, "/readyz")[1]
        assert metric(worker, "redis_unavailable", loop="steps") == 1
        assert metric(worker, "redis_unavailable", loop="workflows") == 0
        raw.delete(first.steps())
        until(lambda: probe(worker, "/readyz") == 200, what="green again")
        assert metric(worker, "redis_unavailable", loop="steps") == 0
        run = await world.start(chaos_app.fan_out_then_join, 6, run_id="after")
        assert await run.result(timeout=10) == "join 6"
    assert worker.returncode is None
    assert most_warnings_a_second(worker) <= 2  # the reader's fault and the sweep's


async def test_a_worker_whose_slots_are_all_taken_still_notices_that_redis_is_away(tmp_path: Path) -> None:
    """It reads no stream then, so another loop has to tell."""
    with private_redis(allow_wheel=True) as server, running(server.url, tmp_path) as workers:
        with redis.Redis.from_url(server.url) as raw:
            env = {"REDISWORLD_REPLAY_CONCURRENCY": "1", "REDISWORLD_MAX_INLINE_STEPS": "0"}
            worker = cli_worker(workers, APP, "--concurrency", "1", env=env)
            async with World.connect(server.url) as world:
                await world.start(chaos_app.one_slow, 60.0, run_id="full")
                await eventually(lambda: notes(raw, "full"))
        server.pause()
        try:
            until(lambda: probe(worker, "/readyz") == 503, timeout=18, what="red")
            assert probe(worker, "/healthz") == 200
        finally:
            server.resume()
        until(lambda: probe(worker, "/readyz") == 200, timeout=10, what="green")


async def test_a_redis_that_takes_no_more_clients_is_waited_for(tmp_path: Path) -> None:
    with private_redis(allow_wheel=True) as server, running(server.url, tmp_path) as workers:
        with redis.Redis.from_url(server.url) as raw:
            worker = cli_worker(workers, APP, "--lease", "1s")
            crowd = [redis.Redis.from_url(server.url) for _ in range(3)]
            raw.config_set("maxclients", len(raw.client_list()) + 1)
            raw.client_kill_filter(_type="normal", skipme=True)
            for client in crowd:  # take the places before the worker does
                try:
                    client.ping()
                except redis.ConnectionError:
                    break
            await anyio.sleep(1.5)
            assert worker.returncode is None
            raw.config_set("maxclients", 1_000)
            async with World.connect(server.url) as world:
                run = await world.start(chaos_app.two_notes, run_id="after")
                assert await run.result(timeout=10) == ["x", "y"]
            for client in crowd:
                client.close()
        assert most_warnings_a_second(worker) <= 1
        assert "Traceback" not in worker.log()
