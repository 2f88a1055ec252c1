"""Does ``redisworld run why`` find what a run waits for, also what docs/operations.md does not show?"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
import redis

from redisworld import Settings, World
from redisworld.keys import Partition
from redisworld.state import WorkerState
from tests.apps import conf_app, shop_app
from tests.conformance.harness import Consumers
from tests.integration.cli_calls import answer, answer_json, refusal
from tests.integration.cli_process import environment, worker
from tests.integration.operations_scenes import OTHER, SHOP, killed, start, until_waits
from tests.integration.planting import plant

P = Partition("default", 0)


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("REDISWORLD_URL", redis_url)


def waits(capsys: pytest.CaptureFixture[str], run_id: str) -> list[dict[str, Any]]:
    """What a run waits for."""
    found: list[dict[str, Any]] = answer_json(capsys, "run", "why", run_id)["waits_for"]
    return found


def test_a_run_that_has_ended_waits_for_nothing(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    start(redis_url, shop_app.remind, "x", run_id="r1")
    answer(capsys, "run", "terminate", "r1", "--yes")

    assert answer(capsys, "run", "why", "r1").startswith("run r1 waits for nothing: it is cancelled since ")
    assert waits(capsys, "r1") == []
    assert refusal(capsys, "run", "why", "nobody")[0] == 1


def test_a_delayed_start_says_when_it_begins(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    async def begin() -> None:
        async with World.connect(settings=Settings(url=redis_url)) as world:
            await world.start(shop_app.remind, "x", run_id="r1", delay="1h")

    asyncio.run(begin())

    [start_] = waits(capsys, "r1")
    assert (start_["what"], start_["stream"]) == ("start", "workflows")
    assert "waits for its start, which is delayed" in answer(capsys, "run", "why", "r1")


def test_a_wake_that_nobody_has_read_names_its_stream(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    start(redis_url, shop_app.remind, "x", run_id="r1")

    [wake] = waits(capsys, "r1")
    assert (wake["what"], wake["stream"], wake["consumer"], wake["readers"]) == ("wake", "workflows", "", 0)
    assert "nobody: no live worker reads this stream" in answer(capsys, "run", "why", "r1")


def test_a_message_behind_many_others_is_found_where_its_event_says(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def crowd(consumers: Consumers) -> None:
        for number in range(3_000):
            raw.xadd(consumers.partition.workflows(), {"kind": "workflow", "run": "other", "msg": b"x"},
                     id=f"{1_600_000_000_000 + number}-1")  # fmt: skip
        await consumers.world.start(conf_app.pair, run_id="r1")

    plant(redis_url, raw, crowd)

    [wake] = waits(capsys, "r1")
    assert (wake["what"], wake["id"]) == ("wake", "start")


def test_a_delivery_that_was_not_begun_says_who_has_it_and_how_often_it_was_delivered(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    holder = ""

    async def take(consumers: Consumers) -> None:
        nonlocal holder
        await consumers.world.start(conf_app.pair, run_id="r1")
        delivery = await consumers.take("workflows")
        assert delivery is not None
        await consumers.redelivered(delivery)
        holder = consumers.world.consumer

    plant(redis_url, raw, take)

    [wake] = waits(capsys, "r1")
    assert (wake["what"], wake["consumer"], wake["consumer_lives"], wake["deliveries"]) == ("wake", holder, False, 2)
    assert 0 < wake["lease_left_ms"] <= 30_000


def test_a_lease_is_as_long_as_live_workers_say(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    async def hold(consumers: Consumers) -> None:
        await consumers.world.start(conf_app.pair, run_id="r1")
        await consumers.take("workflows")
        for consumer, lease_ms in (("a:1:x", 900_000), ("b:1:x", 600_000), ("older:1:x", 0)):
            beat = WorkerState(consumer=consumer, state="ready", streams=("workflows",), lease_ms=lease_ms)
            await consumers.world.heartbeats.beat(beat, ["workflows"])

    plant(redis_url, raw, hold)

    [wake] = waits(capsys, "r1")
    assert 500_000 < wake["lease_left_ms"] <= 600_000


def test_what_no_worker_knows_is_told_as_handed_back_also_when_its_body_had_begun(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    with killed(redis_url, raw):
        for stream in ("steps", "workflows"):
            for pending in raw.xpending_range(f"rw:{{default:2}}:{stream}", "workers", "-", "+", 10):
                entry, consumer = pending["message_id"], pending["consumer"]
                raw.xclaim(f"rw:{{default:2}}:{stream}", "workers", consumer, 0, [entry], idle=10**6, justid=True)
        with worker(redis_url, app=OTHER):
            until_waits(redis_url, "publish-cat", "handed_back", "handed_back")

            found = waits(capsys, "publish-cat")
            shown = answer(capsys, "run", "why", "publish-cat")

    assert all(what["name"] == "resize" and what["running"] and what["deliveries"] >= 1 for what in found)
    assert "that knows its name, version and deployment" in shown


def test_a_lost_message_is_told_and_doctor_named(
    capsys: pytest.CaptureFixture[str], redis_url: str, raw: redis.Redis
) -> None:
    start(redis_url, shop_app.remind, "x", run_id="r1")
    key = raw.keys("rw:*:workflows")[0]
    raw.xtrim(key, maxlen=0)

    assert [what["what"] for what in waits(capsys, "r1")] == ["lost"]
    assert "redisworld doctor looks through everything" in answer(capsys, "run", "why", "r1")


def test_an_inline_step_names_the_worker_that_runs_it(capsys: pytest.CaptureFixture[str], redis_url: str) -> None:
    with worker(redis_url, app=SHOP) as process:
        start(redis_url, shop_app.publish, "cat.png", 3_600, run_id="publish")
        until_waits(redis_url, "publish", "step", "step")
        consumer = process.first_line.partition("consumer=")[2].split()[0]

        found = waits(capsys, "publish")
        shown = answer_json(capsys, "steps", "publish")

    assert {what["consumer"] for what in found} == {consumer}
    assert {what["stream"] for what in found} <= {"steps", "workflows"}
    assert {step["place"]["consumer"] for step in shown if step["place"]} <= {consumer}
